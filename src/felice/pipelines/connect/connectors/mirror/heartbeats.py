"""Heartbeats: a record at regular times, whose way over clusters shows whether mirrors run."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import ClassVar

from felice.pipelines.connect.connector.base import SourceConnector, SourceTask
from felice.pipelines.connect.connectors.mirror import names
from felice.pipelines.connect.connectors.mirror.options import HEARTBEATS, LACKING, SOURCE_ALIAS, TARGET_ALIAS
from felice.pipelines.connect.model.record import SourceRecord


class MirrorHeartbeat(SourceConnector):
    """Writes heartbeats to the target cluster."""

    version: ClassVar = "1"
    java_class: ClassVar = "org.apache.kafka.connect.mirror.MirrorHeartbeatConnector"
    definitions: ClassVar = HEARTBEATS
    lacking: ClassVar = LACKING

    @classmethod
    def task_class(cls) -> type[SourceTask]:
        """The task."""
        return MirrorHeartbeatTask

    @classmethod
    def exactly_once_support(cls, config: Mapping[str, str]) -> bool | None:
        """Yes: there is nothing to read twice."""
        return True

    def start(self, config: Mapping[str, str]) -> None:
        """Creates the topic."""
        super().start(config)
        values = HEARTBEATS.parse(dict(config))
        self._emits: bool = values["emit.heartbeats.enabled"]
        if self._emits:
            from felice.pipelines.connect.connectors.mirror.clusters import TARGET, Clusters

            with Clusters(config, values) as clusters:
                clusters.create_own(TARGET, names.HEARTBEATS, values["heartbeats.topic.replication.factor"])

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        """One task."""
        return [self.config] if self._emits else []


class MirrorHeartbeatTask(SourceTask):
    """Writes the heartbeats."""

    def start(self, config: Mapping[str, str]) -> None:
        """Reads the options."""
        values = HEARTBEATS.parse(dict(config))
        self._source, self._target = values[SOURCE_ALIAS], values[TARGET_ALIAS]
        self._interval_s: float = values["emit.heartbeats.interval.seconds"]

    def poll(self) -> Sequence[SourceRecord] | None:
        """A heartbeat, after the interval."""
        from felice.pipelines.connect.connectors.mirror import records

        if self.stopping.wait(self._interval_s):
            return None
        key = records.HeartbeatKey(source=self._source, target=self._target)
        value = records.HeartbeatValue(timestamp=int(time.time() * 1000))
        place = {"sourceClusterAlias": self._source, "targetClusterAlias": self._target}
        return [records.source_record(names.HEARTBEATS, key, value, place)]
