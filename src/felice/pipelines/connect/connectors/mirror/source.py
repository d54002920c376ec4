"""The source: finds the topics to mirror, and divides their partitions among tasks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar

from felice.pipelines.connect.connector.contexts import Place
from felice.pipelines.connect.connectors.mirror.connector import LookingConnector, interval_of
from felice.pipelines.connect.connectors.mirror.options import PARTITIONS, SOURCE, client_options
from felice.pipelines.connect.connectors.mirror.places import (
    CLUSTER,
    OFFSET,
    PARTITION,
    TOPIC,
    divided,
    text_of,
)
from felice.pipelines.connect.model.errors import ConnectError


class MirrorSource(LookingConnector):
    """Copies the records of topics of another cluster."""

    java_class: ClassVar = "org.apache.kafka.connect.mirror.MirrorSourceConnector"
    definitions: ClassVar = SOURCE
    task: ClassVar = "felice.pipelines.connect.connectors.mirror.source_task:MirrorSourceTask"

    @classmethod
    def exactly_once_support(cls, config: Mapping[str, str]) -> bool | None:
        """Yes, if tasks read only what was committed in the source."""
        return client_options(config, "source", "consumer").get("isolation.level") == "read_committed"

    @classmethod
    def alter_offsets(cls, config: Mapping[str, str], offsets: Mapping[Any, Place | None]) -> bool:
        """Accepts partitions with cluster, topic and partition, and offsets of 0 and more."""
        for text, offset in offsets.items():
            partition = json.loads(text)
            for name, kind in ((CLUSTER, str), (TOPIC, str), (PARTITION, int)):
                if type(partition.get(name)) is not kind:
                    raise ConnectError(f"The partition {text} needs '{name}', a {kind.__name__}")
            if offset is not None and (type(at := offset.get(OFFSET)) is not int or at < 0):
                raise ConnectError(f"The offset {json.dumps(offset)} needs '{OFFSET}', a number from 0 on")
        return True

    def start(self, config: Mapping[str, str]) -> None:
        """Looks for topics, and begins to look for others. What fails is tried again."""
        from felice.pipelines.connect.connectors.mirror.topics import TopicMirror

        super().start(config)
        values = SOURCE.parse(dict(config))
        self._is_enabled: bool = values["enabled"]
        if not self._is_enabled:
            return
        topics = self._topics = TopicMirror(self._open(config, values), values)
        self._emits_syncs: bool = values["emit.offset-syncs.enabled"]
        self._sync_replicas: int = values["offset-syncs.topic.replication.factor"]
        self._has_syncs = False
        jobs = {"sync.topic.configs": topics.sync_configs, "sync.topic.acls": topics.sync_acls}
        self._begin(
            interval_of(values, "refresh.topics"),
            [
                (every_s, job)
                for name, job in jobs.items()
                if (every_s := interval_of(values, name)) is not None
            ],
        )

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        """The partitions in turns, so that those of one topic are in many tasks."""
        if not self._is_enabled:
            return []
        shares = divided([text_of(one) for one in self._topics.partitions], max_tasks)
        return [{**self.config, PARTITIONS: ",".join(share)} for share in shares]

    def _look(self) -> bool:
        """Whether the partitions to mirror have changed."""
        if self._emits_syncs and not self._has_syncs:
            self._clusters.create_own(*self._clusters.syncs, self._sync_replicas)
            self._has_syncs = True
        return self._topics.look()
