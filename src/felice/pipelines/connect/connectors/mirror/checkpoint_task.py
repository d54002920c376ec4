"""The task of checkpoints: translates the offsets of its groups.

Keeps true:  a checkpoint is written when a group went on in the target's terms, or went back in the source.
             Offsets of a group of the target are set only while the group has no members there, and only to later ones.
Source:      Kafka's `MirrorCheckpointTask`.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack

from felice.client.admin.enumerations import ConsumerGroupState
from felice.client.admin.model import ConsumerGroupTopicPartitions
from felice.client.model import TopicPartition
from felice.dataclass import dataclass
from felice.pipelines.connect.connector.base import SourceTask
from felice.pipelines.connect.connectors.mirror.clusters import SOURCE, TARGET, Clusters
from felice.pipelines.connect.connectors.mirror.options import (
    ASSIGNED_GROUPS,
    CHECKPOINTS,
    TOPICS,
    TOPICS_EXCLUDE,
    Chosen,
)
from felice.pipelines.connect.connectors.mirror.records import CheckpointKey, CheckpointValue, source_record
from felice.pipelines.connect.connectors.mirror.sync_reader import SyncReader
from felice.pipelines.connect.model.errors import ConnectError
from felice.pipelines.connect.model.record import SourceRecord

_log = logging.getLogger("felice.connect.mirror")
_AT_ONCE = 100
"""So many groups are asked for at the same time."""
_IDLE = (ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD)


@dataclass(frozen=True, slots=True)
class _Checkpoint:
    group: str
    topic: str
    partition: int
    upstream: int
    downstream: int
    metadata: str

    @property
    def place(self) -> tuple[str, str, int]:
        return self.group, self.topic, self.partition


class MirrorCheckpointTask(SourceTask):
    """Writes the checkpoints of its groups."""

    _clients = ExitStack()
    """Closes the clients that `start` has made, the last one first."""

    def start(self, config: Mapping[str, str]) -> None:
        """Begins to follow the offset syncs."""
        self._clients = ExitStack()
        values = CHECKPOINTS.parse(dict(config))
        self._clusters = Clusters(config, values)
        self._clients.callback(self._clusters.close)
        self._groups: list[str] = json.loads(config[ASSIGNED_GROUPS])
        self._chosen = Chosen(values[TOPICS], values[TOPICS_EXCLUDE])
        self._limit_s: float = values["admin.timeout.ms"] / 1000
        self._interval_s: float = values["emit.checkpoints.interval.seconds"]
        self._moves: bool = values["sync.group.offsets.enabled"]
        self._move_interval_s: float = values["sync.group.offsets.interval.seconds"]
        self._move_at_s = time.monotonic()
        cluster, topic = self._clusters.syncs
        self._syncs = SyncReader(self._clusters.settings(cluster, "consumer"), topic)
        self._clients.callback(self._syncs.close)
        self._known: dict[tuple[str, str, int], _Checkpoint] = {}
        """The newest checkpoint of each group and partition of the target."""
        self._is_first = True

    def poll(self) -> Sequence[SourceRecord] | None:
        """The checkpoints of the groups that went on, after the interval. Raises `RetriableError`, `ConnectError`."""
        if not self._is_first and self.stopping.wait(self._interval_s):
            return None
        self._is_first = False
        self._syncs.read(self._limit_s)
        records = []
        for one in self._translated():
            before = self._known.get(one.place)
            if before is None or one.upstream < before.upstream or one.downstream > before.downstream:
                self._known[one.place] = one
                records.append(self._record(one))
        if self._moves and time.monotonic() >= self._move_at_s:
            self._move_at_s = time.monotonic() + self._move_interval_s
            self._move_groups()
        return records or None

    def close(self) -> None:
        """Closes the clients."""
        self._clients.close()

    def _translated(self) -> Iterator[_Checkpoint]:
        """The checkpoints of all groups. A group that cannot be asked is named in the log, and left out."""
        admin = self._clusters.admin(SOURCE)
        for first in range(0, len(self._groups), _AT_ONCE):
            wanted = [ConsumerGroupTopicPartitions(group) for group in self._groups[first : first + _AT_ONCE]]
            asked = admin.list_consumer_group_offsets(wanted, request_timeout=self._limit_s)
            for group, future in asked.items():
                if self._clusters.is_answered(future, f"cannot read the offsets of the group {group}"):
                    yield from self._of_group(group, future.result().topic_partitions or [])

    def _of_group(self, group: str, offsets: Iterable[TopicPartition]) -> Iterator[_Checkpoint]:
        clusters = self._clusters
        for one in offsets:
            if one.offset < 0 or not self._chosen.has(one.topic):
                continue
            downstream = self._syncs.translation.downstream((one.topic, one.partition), one.offset)
            if downstream is not None:
                remote = clusters.names.remote(clusters.source_alias, one.topic)
                yield _Checkpoint(group, remote, one.partition, one.offset, downstream, one.metadata or "")

    def _record(self, one: _Checkpoint) -> SourceRecord:
        clusters = self._clusters
        return source_record(
            clusters.names.checkpoints(clusters.source_alias),
            CheckpointKey(group=one.group, topic=one.topic, partition=one.partition),
            CheckpointValue(
                upstream_offset=one.upstream, downstream_offset=one.downstream, metadata=one.metadata
            ),
            {"group": one.group, "topic": one.topic, "partition": one.partition},
        )

    # Groups of the target

    def _move_groups(self) -> None:
        """Sets the offsets of groups without members in the target. What fails is logged, and tried again later."""
        by_group: dict[str, list[_Checkpoint]] = {}
        for one in self._known.values():
            by_group.setdefault(one.group, []).append(one)
        if not by_group:
            return
        described = self._clusters.admin(TARGET).describe_consumer_groups(list(by_group))
        for group, asked in described.items():
            try:
                found = self._clusters.answer(asked, f"cannot describe the group {group}")
                if found.state in _IDLE:
                    self._move(group, by_group[group])
            except ConnectError as error:
                _log.warning("%s", error)

    def _move(self, group: str, checkpoints: list[_Checkpoint]) -> None:
        target = self._clusters.admin(TARGET)
        request = ConsumerGroupTopicPartitions(
            group, [TopicPartition(one.topic, one.partition) for one in checkpoints]
        )
        [asked] = target.list_consumer_group_offsets([request]).values()
        what = f"cannot read the offsets of the group {group} in {self._clusters.target_alias}"
        there = {
            (one.topic, one.partition): one.offset
            for one in self._clusters.answer(asked, what).topic_partitions or []
        }
        later = [
            TopicPartition(one.topic, one.partition, one.downstream)
            for one in checkpoints
            if one.downstream > there.get((one.topic, one.partition), -1)
        ]
        if not later:
            return
        [asked] = target.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, later)]).values()
        what = f"cannot set the offsets of the group {group} in {self._clusters.target_alias}"
        for one in self._clusters.answer(asked, what).topic_partitions or []:
            if one.error is not None:
                _log.warning("%s: %s-%d: %s", what, one.topic, one.partition, one.error.str())
