"""Elections and reassignments that clients ask for.

Keeps true: C1 as in `cluster_admin`. Each partition has its own outcome: an impossible one does not stop the others.
How:        `election` and `reassignment` decide on the image, `writing` writes; after a version conflict they decide
            again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from felice.controller import reassignment
from felice.controller.duties import (
    Decision,
    StateChange,
    state_change,
    topic_change,
)
from felice.controller.election import elect_after_liveness_change, preferred
from felice.controller.reassignment import Move
from felice.controller.writing import answering, carry_out
from felice.metadata import ClusterImage, MetadataStore, TopicImage
from felice.metadata.layout import MAX_STATES_PER_TRANSACTION, NO_LEADER
from felice.metadata.watcher import Watcher
from felice.protocol.errors import ApiError, ErrorCode
from felice.protocol.topic_partition import PartitionKey

_MAX_ATTEMPTS = 10


class Leaderships:
    """Carries out ElectLeaders and AlterPartitionReassignments requests on the metadata store."""

    def __init__(self, store: MetadataStore, watcher: Watcher) -> None:
        self._store = store
        self._watcher = watcher

    @answering
    async def elect(
        self, wanted: Iterable[PartitionKey] | None, *, is_unclean: bool
    ) -> dict[PartitionKey, ApiError | None]:
        """The outcome of each partition (of all, if None is asked for); the image shows the leaders."""
        pending = _all_partitions(self._watcher.image) if wanted is None else list(dict.fromkeys(wanted))
        outcome: dict[PartitionKey, ApiError | None] = {}
        for _ in range(_MAX_ATTEMPTS):
            image = self._watcher.image
            decisions: list[Decision] = []
            for topic, index in pending:
                try:
                    decision = _elected(image, topic, index, is_unclean)
                except ApiError as error:
                    outcome[topic, index] = error
                else:
                    outcome[topic, index] = None
                    decisions.append(decision)
            lost = await carry_out(self._store, self._watcher, image, decisions)
            pending = [(one.topic, one.partition) for one in lost if isinstance(one, StateChange)]
            if not pending:
                return outcome
        return {**outcome, **dict.fromkeys(pending, _kept_changing())}

    @answering
    async def reassign(
        self, topic: str, wanted: Mapping[int, Sequence[int] | None], *, may_change_factor: bool
    ) -> dict[int, ApiError | None]:
        """The outcome of each partition. The target replicas are added, or with None the reassignment is cancelled; the
        image shows the result.
        """
        outcome: dict[int, ApiError | None] = {}
        rows = list(wanted.items())
        for at in range(0, len(rows), MAX_STATES_PER_TRANSACTION):
            some = dict(rows[at : at + MAX_STATES_PER_TRANSACTION])
            outcome.update(await self._reassign(topic, some, may_change_factor))
        return outcome

    async def _reassign(
        self, topic: str, wanted: Mapping[int, Sequence[int] | None], may_change_factor: bool
    ) -> dict[int, ApiError | None]:
        outcome: dict[int, ApiError | None] = {}
        for _ in range(_MAX_ATTEMPTS):
            image = self._watcher.image
            known = image.topics.get(topic)
            moves: list[Move] = []
            for index, replicas in wanted.items():
                try:
                    moves.append(_move(image, known, index, replicas, may_change_factor))
                    outcome[index] = None
                except ApiError as error:
                    outcome[index] = error
            if known is None or not moves:
                return outcome
            if not await carry_out(self._store, self._watcher, image, [topic_change(known, moves)]):
                return outcome
        return {index: error or _kept_changing() for index, error in outcome.items()}


def _elected(image: ClusterImage, name: str, index: int, is_unclean: bool) -> StateChange:
    topic, partition = image.topics.get(name), image.partition(name, index)
    if topic is None or partition is None or partition.partition_epoch < 0:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    is_led = partition.leader in image.brokers
    if is_led and (is_unclean or partition.leader == partition.replicas[0]):
        raise ApiError(ErrorCode.ELECTION_NOT_NEEDED)
    if is_unclean:
        state = elect_after_liveness_change(
            partition, image.brokers, image.controller_epoch, allows_unclean=True
        )
        if state is None or state.leader == NO_LEADER:
            raise ApiError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)
        return state_change(topic, partition, state)
    state = preferred(partition, image.brokers, image.controller_epoch)
    if state is None:
        raise ApiError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)
    return state_change(topic, partition, state)


def _move(
    image: ClusterImage,
    topic: TopicImage | None,
    index: int,
    replicas: Sequence[int] | None,
    may_change_factor: bool,
) -> Move:
    partition = topic.partition(index) if topic is not None else None
    if partition is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if replicas is None:
        return reassignment.cancel(partition, image.brokers, image.controller_epoch)
    if not may_change_factor and len(replicas) != len(partition.origin):
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"the replication factor would change from {len(partition.origin)} to {len(replicas)}",
        )
    return reassignment.begin(partition, replicas, image.brokers, image.controller_epoch)


def _all_partitions(image: ClusterImage) -> list[PartitionKey]:
    return [(topic.name, row.partition) for topic in image.topics.values() for row in topic.partitions]


def _kept_changing() -> ApiError:
    return ApiError(ErrorCode.REQUEST_TIMED_OUT, "the partition kept changing")
