"""What an import makes of a cluster's metadata and of the partitions that were found. Pure.

Keeps true: nothing is left out without being named in `left`, with the reason.
            An imported partition has this node as its only replica and leader, with a leader epoch above all that its
            log and the metadata know.
            A log is taken for a partition only if both have the same topic id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from uuid import UUID

from felice.config import TOPIC_OPTIONS, ConfigError, Kind, Option, Scope, find_option
from felice.config.client_metrics import CLIENT_METRICS_OPTIONS
from felice.controller import features, topic_names
from felice.controller.producer_id_blocks import BLOCK_SIZE
from felice.dataclass import dataclass
from felice.metadata import layout
from felice.metadata.client_entity import ClientEntity
from felice.metadata.layout import ProducerIdBlock, StateNode, TopicNode
from felice.migration.cluster_state import (
    BROKER,
    CLIENT_METRICS,
    GROUP,
    TOPIC,
    ClusterState,
    Partition,
    Topic,
)
from felice.migration.errors import MigrationError
from felice.protocol.topic_partition import PartitionKey
from felice.security.acl import Acl, ResourcePattern

METADATA_TOPIC = "__cluster_metadata"
_MANY = 10
_MARKER_OF_TIERED_STORAGE = "remote.storage.enable"
_TIERED_STORAGE_TOPIC = "__remote_log_metadata"
_FIRST_CONTROLLER_EPOCH = 0


@dataclass(frozen=True, slots=True)
class FoundPartition:
    """A partition's directory. `last_epoch` is that of the last entry of its epoch history, -1 without one."""

    key: PartitionKey
    path: Path
    topic_id: UUID | None
    last_epoch: int = -1
    is_legacy: bool = False
    size_bytes: int = 0

    @property
    def name(self) -> str:
        """As in `orders-0`."""
        return "{}-{}".format(*self.key)


@dataclass(frozen=True, slots=True)
class Left:
    """Something that is not taken over, or only in part, and the reason."""

    kind: str
    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class ImportPlan:
    """What is imported. `nodes` are those of the metadata store without parents; `empty` partitions have no log."""

    nodes: Mapping[str, bytes]
    partitions: Sequence[FoundPartition]
    empty: Sequence[PartitionKey]
    left: Sequence[Left]
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Here:
    """The node whose directories are imported. `directory_ids` are those of the directories that were given."""

    node_id: int
    cluster_id: str
    directory_ids: frozenset[UUID] = frozenset()
    # ZooKeeper holds passwords in configurations of brokers in encrypted form.
    has_encrypted_passwords: bool = False
    may_miss_logs: bool = False


def plan_import(
    state: ClusterState, found: Sequence[FoundPartition], set_aside: Sequence[Path], here: Here
) -> ImportPlan:
    """See the module. Raises `MigrationError` if the import must be refused."""
    _check_directories(state, here)
    planner = _Planner(state, found, here)
    for topic in sorted(state.topics.values(), key=lambda topic: topic.name):
        planner.add_topic(topic)
    planner.check_missing()
    planner.add_unclaimed_logs(set_aside)
    planner.add_configs()
    planner.add_clients()
    planner.add_acls()
    planner.add_ids()
    return planner.plan()


def _check_directories(state: ClusterState, here: Here) -> None:
    if here.may_miss_logs or not here.directory_ids:
        return
    missing = [one for one in state.brokers.get(here.node_id, ()) if one not in here.directory_ids]
    if missing:
        raise MigrationError(
            f"node {here.node_id} has {len(missing)} more log directories than were given; name all entries of its "
            "log.dirs, or import without their logs with --allow-missing"
        )


class _Planner:
    def __init__(self, state: ClusterState, found: Sequence[FoundPartition], here: Here) -> None:
        self._state = state
        self._here = here
        self._found: dict[PartitionKey, list[FoundPartition]] = {}
        for one in found:
            self._found.setdefault(one.key, []).append(one)
        self._nodes: dict[str, bytes] = {
            layout.CLUSTER_ID: layout.encode_cluster_id(here.cluster_id),
            layout.CONTROLLER_EPOCH: str(_FIRST_CONTROLLER_EPOCH).encode(),
        }
        self._taken: list[FoundPartition] = []
        self._empty: list[PartitionKey] = []
        # Empty partitions that should have a log.
        self._missing: list[PartitionKey] = []
        self._left: list[Left] = []
        self._topics: list[Topic] = []
        self._counts: dict[str, int] = {}

    def plan(self) -> ImportPlan:
        """What was added so far."""
        counts = {"topics": len(self._topics), "partitions": len(self._taken), **self._counts}
        return ImportPlan(self._nodes, self._taken, self._empty, self._left, counts)

    def _leave(self, kind: str, name: str, reason: str) -> None:
        self._left.append(Left(kind, name, reason))

    def _count(self, what: str, number: int = 1) -> None:
        self._counts[what] = self._counts.get(what, 0) + number

    # -- topics ----------------------------------------------------------------------------------------

    def add_topic(self, topic: Topic) -> None:
        """Takes a topic with its logs, or says why not."""
        if fault := topic_names.fault_of(topic.name):
            raise MigrationError(f"the metadata has a topic whose name is not valid: {fault}")
        if sorted(topic.partitions) != list(range(len(topic.partitions))) or not topic.partitions:
            raise MigrationError(
                f"the metadata has topic {topic.name} with partitions {sorted(topic.partitions)}"
            )
        logs = {number: self._log_of(topic, number) for number in topic.partitions}
        if reason := self._refusal(topic, logs):
            self._leave("topic", topic.name, reason)
            return
        self._topics.append(topic)
        replicas: dict[int, tuple[int, ...]] = {}
        for number, partition in sorted(topic.partitions.items()):
            replicas[number] = (self._here.node_id,) if self._is_here(partition) else partition.replicas
            state = self._state_of(topic, number, partition, logs[number])
            self._nodes[layout.state_path(topic.name, number)] = layout.encode_state(state)
        node = TopicNode(topic.topic_id, replicas, {}, {})
        self._nodes[layout.topic_path(topic.name)] = layout.encode_topic(node)
        self._nodes[layout.topic_id_path(topic.name, topic.topic_id)] = b""

    def _is_here(self, partition: Partition) -> bool:
        return self._here.node_id in partition.replicas

    def _log_of(self, topic: Topic, number: int) -> FoundPartition | None:
        """The log of a partition. A replica that is no longer this node's stays where it is."""
        if not self._is_here(topic.partitions[number]):
            return None
        of_topic = [
            log for log in self._found.get((topic.name, number), ()) if log.topic_id in (topic.topic_id, None)
        ]
        if len(of_topic) > 1:
            paths = " and ".join(str(log.path) for log in of_topic)
            raise MigrationError(
                f"{paths} are both partition {number} of topic {topic.name}; move the older one away"
            )
        return of_topic[0] if of_topic else None

    def _refusal(self, topic: Topic, logs: Mapping[int, FoundPartition | None]) -> str | None:
        config = self._config(topic)
        if config.get(_MARKER_OF_TIERED_STORAGE) == "true" or topic.name == _TIERED_STORAGE_TOPIC:
            return "its older records are in tiered storage, which Felice does not read"
        if legacy := [log.name for log in logs.values() if log is not None and log.is_legacy]:
            return f"{_listed(legacy)} has records in message format 0 or 1; only format 2 is read"
        if not any(map(self._is_here, topic.partitions.values())):
            nodes = sorted({replica for one in topic.partitions.values() for replica in one.replicas})
            return f"all its replicas are on other nodes: {_listed(map(str, nodes))}"
        return None

    def _state_of(
        self, topic: Topic, number: int, partition: Partition, log: FoundPartition | None
    ) -> StateNode:
        node_id, name = self._here.node_id, f"{topic.name}-{number}"
        if not self._is_here(partition):
            nodes = _listed(map(str, partition.replicas))
            self._leave("partition", name, f"its replicas are on other nodes ({nodes}); it is offline")
            isr = partition.isr or partition.eligible or partition.replicas
            return StateNode(layout.NO_LEADER, partition.leader_epoch, _FIRST_CONTROLLER_EPOCH, isr)
        if log is None:
            self._empty.append((topic.name, number))
            # The records name no directory for a new partition until it has one.
            if not partition.directories or partition.directory_on(node_id) is not None:
                self._missing.append((topic.name, number))
        else:
            self._taken.append(log)
            if not partition.is_complete_on(node_id):
                self._leave(
                    "partition", name, f"node {node_id} was not in sync; the last records may be missing"
                )
        epoch = max(partition.leader_epoch, log.last_epoch if log else -1) + 1
        return StateNode(node_id, epoch, _FIRST_CONTROLLER_EPOCH, (node_id,))

    def check_missing(self) -> None:
        """A partition of this node without a log: new partitions have none yet, all others should have one."""
        if self._missing and not self._here.may_miss_logs:
            names = _listed("{}-{}".format(*key) for key in self._missing)
            raise MigrationError(
                f"{len(self._missing)} partitions of node {self._here.node_id} have no log in the directories that "
                f"were given: {names}. Name all entries of log.dirs, or let these partitions begin empty with "
                "--allow-missing"
            )
        for topic, number in self._empty:
            self._leave("partition", f"{topic}-{number}", "it has no log, and begins empty at offset 0")

    def add_unclaimed_logs(self, set_aside: Sequence[Path]) -> None:
        """Names directories that are no partition of the metadata."""
        by_name = {topic.name for topic in self._state.topics.values()}
        imported = {topic.topic_id for topic in self._topics}
        taken = {log.path for log in self._taken}
        for log in sorted((log for logs in self._found.values() for log in logs), key=lambda log: log.path):
            if log.path in taken:
                continue
            topic = self._state.topics.get(log.topic_id) if log.topic_id is not None else None
            if topic is not None and topic.topic_id not in imported:
                continue  # its topic is named already
            if topic is not None:
                reason = f"node {self._here.node_id} is no replica of it any more"
            elif log.key[0] in by_name:
                reason = "it belongs to an older topic of this name"
            else:
                reason = "no topic of the metadata has this name and id"
            self._leave("directory", str(log.path), reason)
        for path in set_aside:
            self._leave("directory", str(path), "Kafka had set it aside")

    # -- configurations --------------------------------------------------------------------------------

    def add_configs(self) -> None:
        """Takes the configurations of topics, brokers and client metrics that have an effect here."""
        for topic in self._topics:
            config = self._known(f"topic {topic.name}", self._config(topic), TOPIC_OPTIONS.get)
            self._nodes[layout.topic_config_path(topic.name)] = layout.encode_config(config)
        for (kind, name), config in sorted(self._state.configs.items()):
            if kind == BROKER:
                self._add_broker_config(name, config)
            elif kind == CLIENT_METRICS:
                known = self._known(f"client metrics {name}", config, CLIENT_METRICS_OPTIONS.get)
                if known:
                    self._nodes[layout.client_metrics_path(name)] = layout.encode_config(known)
            elif kind == GROUP:
                self._leave(
                    "configuration",
                    f"group {name}",
                    "an import leaves options of groups out; set them again with felice configs",
                )
            elif kind != TOPIC:
                self._leave("configuration", name, f"resource type {kind} is unknown")

    def _config(self, topic: Topic) -> Mapping[str, str]:
        return self._state.configs.get((TOPIC, topic.name), {})

    def _add_broker_config(self, name: str, config: Mapping[str, str]) -> None:
        if name not in ("", str(self._here.node_id)):
            self._leave("configuration", f"broker {name}", "it is of another node")
            return
        owner = f"broker {name}" if name else "all brokers"
        if known := self._known(owner, config, find_option):
            path = layout.broker_config_path(name or layout.DEFAULT_ENTITY)
            self._nodes[path] = layout.encode_config(known)

    def _known(
        self, owner: str, config: Mapping[str, str], option_named: Callable[[str], Option | None]
    ) -> dict[str, str]:
        kept = {}
        for name, text in sorted(config.items()):
            if fault := self._fault_of(option_named(name), text):
                self._leave("configuration", f"{owner}: {name}", fault)
            else:
                kept[name] = text
        self._count("configurations", len(kept))
        return kept

    def _fault_of(self, option: Option | None, text: str) -> str | None:
        if option is None:
            return "Felice has no such option"
        if option.scope is Scope.READ_ONLY:
            return "it cannot change at run time; set it in the broker's file"
        if option.kind is Kind.PASSWORD and self._here.has_encrypted_passwords:
            return "it is encrypted with Kafka's password.encoder.secret; set it again"
        try:
            option.parse(text)
        except ConfigError as error:
            return str(error) if option.kind is not Kind.PASSWORD else "its value is not valid here"
        return None

    # -- clients ---------------------------------------------------------------------------------------

    def add_clients(self) -> None:
        """Takes quotas and SCRAM credentials, which share the nodes of users."""
        configs: dict[ClientEntity, dict[str, str]] = {}
        for entity, quotas in self._state.quotas.items():
            configs.setdefault(entity, {}).update({key: repr(value) for key, value in quotas.items()})
            self._count("quotas", len(quotas))
        for user, credentials in self._state.scram.items():
            config = configs.setdefault(ClientEntity(user=user), {})
            config |= {mechanism: credential.format() for mechanism, credential in credentials.items()}
            self._count("SCRAM credentials", len(credentials))
        for entity, config in configs.items():
            self._nodes[layout.client_config_path(entity)] = layout.encode_config(config)

    def add_acls(self) -> None:
        """Takes access rules, except those whose names cannot be nodes."""
        rules: dict[ResourcePattern, list[Acl]] = {}
        for binding in self._state.acls.values():
            rules.setdefault(binding.resource, []).append(binding.acl)
        for resource, acls in rules.items():
            if "/" in resource.name:
                name = f"{resource.kind.text} {resource.name}"
                self._leave(
                    "access rules", name, "names with a slash cannot be stored; until now they applied"
                )
                continue
            self._nodes[layout.acls_path(resource)] = layout.encode_acls(acls)
            self._count("access rules", len(acls))

    def add_ids(self) -> None:
        """Takes the producer ids that were given out, and the finalized features; names delegation tokens."""
        levels = {
            name: min(self._state.features[name], highest)
            for name, (_, highest) in features.SUPPORTED.items()
            if self._state.features.get(name, 0) > 0
        }
        self._nodes[layout.FEATURES] = layout.encode_features(levels)
        if end := self._state.next_producer_id:
            block = ProducerIdBlock(self._here.node_id, max(0, end - BLOCK_SIZE), end - 1)
            self._nodes[layout.PRODUCER_ID_BLOCK] = layout.encode_producer_id_block(block)
        for token in sorted(self._state.tokens):
            reason = "delegation tokens are not imported: they need Kafka's secret key; create them again"
            self._leave("delegation token", token, reason)


def _listed(names: Iterable[str]) -> str:
    found = list(names)
    more = len(found) - _MANY
    return ", ".join(found[:_MANY]) + (f" and {more} more" if more > 0 else "")
