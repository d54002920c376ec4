"""Plans new topics and new partitions: names, counts and replicas, with the errors that Kafka's clients know. Pure.

`cluster_admin` writes what is planned here.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import field

from felice.config import TOPIC_OPTIONS, BrokerConfig, ConfigError, TopicConfig, canonical_texts
from felice.controller import topic_names
from felice.controller.placement import PlacementError, check_assignment, place_replicas
from felice.dataclass import dataclass
from felice.env import Random
from felice.metadata import ClusterImage, TopicImage
from felice.protocol.errors import ApiError, ErrorCode
from felice.protocol.uuids import format_uuid

# Kafka's limit for one request; a larger number is taken for a typing error.
MAX_PARTITIONS_A_TOPIC = 10_000


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A request for a topic; -1 leaves a number to the broker's configuration."""

    name: str
    partition_count: int = -1
    replication_factor: int = -1
    assignment: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PlannedTopic:
    """A requested topic with all its defaults and replicas filled in."""

    name: str
    topic_id: uuid.UUID
    partitions: Mapping[int, tuple[int, ...]]
    configs: Mapping[str, str]

    @property
    def replication_factor(self) -> int:
        """The number of replicas of each partition; all partitions of a topic have the same."""
        return len(self.partitions[0])


def plan_topic(
    requested: NewTopic, image: ClusterImage, config: BrokerConfig, random: Random
) -> PlannedTopic:
    """The topic with an id, with the broker's defaults and with replicas placed on live brokers.

    Raises `ApiError` if the name, a number, an assignment or an option is invalid, or the name is taken.
    """
    if fault := topic_names.fault_of(requested.name):
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, fault)
    if requested.name in image.topics:
        raise already_exists(requested.name)
    if fault := image.topic_faults.get(requested.name):
        raise ApiError(
            ErrorCode.TOPIC_ALREADY_EXISTS,
            f"Topic '{requested.name}' already exists, but its node in the metadata store means nothing: {fault}",
        )
    if requested.name in image.pending_deletions:
        raise ApiError(
            ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{requested.name}' is being deleted; try again soon."
        )
    if other := topic_names.collision_of(requested.name, image.topics):
        raise ApiError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic '{requested.name}' collides with existing topic: {other}",
        )
    partitions = (
        _assigned(requested, image) if requested.assignment else _placed(requested, image, config, random)
    )
    configs = checked_topic_config(requested.configs, config)
    return PlannedTopic(requested.name, new_topic_id(random), partitions, configs)


def _assigned(requested: NewTopic, image: ClusterImage) -> Mapping[int, tuple[int, ...]]:
    if requested.partition_count != -1 or requested.replication_factor != -1:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            "Replica assignment and partition count or replication factor cannot both be given",
        )
    _check_assignment(requested.assignment, sorted(image.brokers))
    return requested.assignment


def _placed(
    requested: NewTopic, image: ClusterImage, config: BrokerConfig, random: Random
) -> dict[int, tuple[int, ...]]:
    count = config.num_partitions if requested.partition_count == -1 else requested.partition_count
    factor = (
        config.default_replication_factor
        if requested.replication_factor == -1
        else requested.replication_factor
    )
    brokers = _racks(image)
    if not 0 < count <= MAX_PARTITIONS_A_TOPIC:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"Number of partitions must be between 1 and {MAX_PARTITIONS_A_TOPIC}, not {count}",
        )
    if not 0 < factor <= len(brokers):
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Replication factor must be between 1 and the brokers alive ({len(brokers)}), not {factor}",
        )
    start, shift = (random.randrange(len(brokers)) for _ in range(2))
    return place_replicas(brokers, count, factor, start_index=start, start_shift=shift)


def plan_partitions(
    topic: TopicImage, total_count: int, assignments: Sequence[Sequence[int]] | None, image: ClusterImage
) -> Mapping[int, tuple[int, ...]]:
    """Replicas of the partitions to add, so that there are `total_count`; they are placed unless assigned.

    Raises `ApiError` if the count or an assignment is invalid, or the topic is being reassigned.
    """
    existing = len(topic.partitions)
    if any(partition.is_reassigning for partition in topic.partitions):
        raise ApiError(ErrorCode.REASSIGNMENT_IN_PROGRESS, f"{topic.name} is moving to other brokers")
    if total_count <= existing:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"Topic currently has {existing} partitions, which is not lower than the requested {total_count}",
        )
    if total_count > MAX_PARTITIONS_A_TOPIC:
        raise ApiError(ErrorCode.INVALID_PARTITIONS, f"at most {MAX_PARTITIONS_A_TOPIC} partitions")
    brokers = _racks(image)
    replicas = topic.partitions[0].replicas
    if assignments is None:
        if len(replicas) > len(brokers):
            raise ApiError(
                ErrorCode.INVALID_REPLICATION_FACTOR, "fewer brokers are alive than replicas wanted"
            )
        start = next((index for index, broker in enumerate(sorted(brokers)) if broker >= replicas[0]), 0)
        return place_replicas(
            brokers,
            total_count - existing,
            len(replicas),
            start_index=start,
            start_shift=start,
            first_partition=existing,
        )
    if len(assignments) != total_count - existing:
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{total_count - existing} new partitions need as many assignments, not {len(assignments)}",
        )
    assigned = {existing + index: tuple(row) for index, row in enumerate(assignments)}
    _check_assignment(assigned, sorted(brokers), existing)
    if any(len(found) != len(replicas) for found in assigned.values()):
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"the topic's replication factor is {len(replicas)}"
        )
    return assigned


def _racks(image: ClusterImage) -> dict[int, str | None]:
    return {broker_id: broker.rack for broker_id, broker in sorted(image.brokers.items())}


def new_topic_id(random: Random) -> uuid.UUID:
    """A random topic id (version 4) that Kafka's tools can take as an argument."""
    while True:
        # Kafka reserves the ids 0 and 1; ids that begin with '-' would look like options to its tools.
        topic_id = uuid.UUID(int=random.getrandbits(128), version=4)
        if not format_uuid(topic_id).startswith("-"):
            return topic_id


def checked_topic_config(configs: Mapping[str, str], broker: BrokerConfig) -> Mapping[str, str]:
    """The overrides in their canonical spelling.

    Raises `ApiError` (INVALID_CONFIG) if one is unknown, has a bad value, or contradicts another option.
    """
    try:
        TopicConfig.parse(configs, broker)
    except ConfigError as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from error
    return canonical_texts(configs, TOPIC_OPTIONS.get)


def _check_assignment(
    assignment: Mapping[int, Sequence[int]], brokers: Sequence[int], first_partition: int = 0
) -> None:
    try:
        check_assignment(assignment, brokers, first_partition=first_partition)
    except PlacementError as error:
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, str(error)) from error


def already_exists(name: str) -> ApiError:
    """The error for a topic whose name is taken."""
    return ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
