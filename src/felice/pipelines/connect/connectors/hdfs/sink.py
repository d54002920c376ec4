"""The sink: checks its options, names its tasks, and sets offsets in its logs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from felice.pipelines.connect.connector.base import SinkConnector, SinkTask
from felice.pipelines.connect.connector.contexts import TopicPartition
from felice.pipelines.connect.connectors.hdfs.options import LACKING, OPTIONS, conflicts


class HdfsSink(SinkConnector):
    """Writes files of records to HDFS."""

    version: ClassVar = "1"
    java_class: ClassVar = "io.confluent.connect.hdfs.HdfsSinkConnector"
    definitions: ClassVar = OPTIONS
    lacking: ClassVar = LACKING

    @classmethod
    def conflicts(cls, config: Mapping[str, str]) -> list[tuple[str, str]]:
        """The rules between options."""
        return conflicts(config)

    @classmethod
    def task_class(cls) -> type[SinkTask]:
        """The task."""
        from felice.pipelines.connect.connectors.hdfs.sink_task import HdfsSinkTask

        return HdfsSinkTask

    @classmethod
    def alter_offsets(cls, config: Mapping[str, str], offsets: Mapping[TopicPartition, int | None]) -> bool:
        """Sets the offsets in the logs, which decide where a task reads on. A reset is the beginning of the topic."""
        from felice.pipelines.connect.connectors.hdfs.storage import Storage
        from felice.pipelines.connect.connectors.hdfs.write_ahead import Journal

        options = OPTIONS.parse(dict(config))
        storage = Storage(options)
        for at, offset in offsets.items():
            Journal(storage, options, at).restart(offset or 0)
        return True
