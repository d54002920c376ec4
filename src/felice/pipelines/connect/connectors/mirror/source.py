"""The source: finds the topics to mirror, and divides their partitions among tasks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from felice.pipelines.connect.connector.base import SourceConnector, SourceTask
from felice.pipelines.connect.connector.contexts import Place
from felice.pipelines.connect.connectors.mirror.options import LACKING, PARTITIONS, SOURCE
from felice.pipelines.connect.connectors.mirror.places import (
    CLUSTER,
    OFFSET,
    PARTITION,
    TOPIC,
    divided,
    text_of,
)
from felice.pipelines.connect.model.errors import ConnectError

if TYPE_CHECKING:
    from felice.pipelines.connect.connectors.mirror.clusters import Clusters
    from felice.pipelines.connect.connectors.mirror.watching import Watch


class MirrorSource(SourceConnector):
    """Copies the records of topics of another cluster."""

    version: ClassVar = "1"
    java_class: ClassVar = "org.apache.kafka.connect.mirror.MirrorSourceConnector"
    definitions: ClassVar = SOURCE
    lacking: ClassVar = LACKING

    _clusters: Clusters | None = None
    _watch: Watch | None = None

    @classmethod
    def task_class(cls) -> type[SourceTask]:
        """The task."""
        from felice.pipelines.connect.connectors.mirror.source_task import MirrorSourceTask

        return MirrorSourceTask

    @classmethod
    def exactly_once_support(cls, config: Mapping[str, str]) -> bool | None:
        """Yes, if tasks read only what was committed in the source."""
        prefixes = ("consumer.", "source.consumer.")
        found = next((config[name] for one in prefixes if (name := f"{one}isolation.level") in config), "")
        return found == "read_committed"

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
        from felice.pipelines.connect.connectors.mirror.clusters import Clusters
        from felice.pipelines.connect.connectors.mirror.topics import TopicMirror
        from felice.pipelines.connect.connectors.mirror.watching import Watch, is_done

        super().start(config)
        values = SOURCE.parse(dict(config))
        self._is_enabled: bool = values["enabled"]
        if not self._is_enabled:
            return
        clusters = self._clusters = Clusters(config, values)
        for cluster in ("source", "target"):
            clusters.settings(cluster, "admin")  # raises for what is wrong, before any cluster is asked
        self._topics = TopicMirror(clusters, values)
        self._emits_syncs: bool = values["emit.offset-syncs.enabled"]
        self._sync_replicas: int = values["offset-syncs.topic.replication.factor"]
        self._has_syncs = False
        is_ready = is_done(self._prepare)
        watch = self._watch = Watch("felice-mirror-topics")
        for name, job, now in (
            ("refresh.topics", self._refresh, False),
            ("sync.topic.configs", self._topics.sync_configs, True),
            ("sync.topic.acls", self._topics.sync_acls, True),
        ):
            if values[f"{name}.enabled"]:
                watch.every(values[f"{name}.interval.seconds"], job, now=now)
        if not is_ready:
            watch.once(self._refresh)
        watch.start()

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        """The partitions in turns, so that those of one topic are in many tasks."""
        if not self._is_enabled:
            return []
        shares = divided([text_of(one) for one in self._topics.partitions], max_tasks)
        return [{**self.config, PARTITIONS: ",".join(share)} for share in shares]

    def stop(self) -> None:
        """Ends the look for topics."""
        if self._watch is not None:
            self._watch.stop()
        if self._clusters is not None:
            self._clusters.close()

    def _prepare(self) -> bool:
        """Whether the partitions to mirror have changed."""
        assert self._clusters is not None
        if self._emits_syncs and not self._has_syncs:
            self._clusters.create_own(*self._clusters.syncs, self._sync_replicas)
            self._has_syncs = True
        return self._topics.look()

    def _refresh(self) -> None:
        if self._prepare():
            self.context.request_task_reconfiguration()
