"""The sink: checks its options, names its tasks, and sets offsets in its logs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from felice.pipelines.connect.connector.base import SinkConnector
from felice.pipelines.connect.connector.contexts import TopicPartition
from felice.pipelines.connect.connectors.hdfs.options import LACKING, OPTIONS


class HdfsSink(SinkConnector):
    """Writes files of records to HDFS."""

    version: ClassVar = "1"
    java_class: ClassVar = "io.confluent.connect.hdfs.HdfsSinkConnector"
    definitions: ClassVar = OPTIONS
    lacking: ClassVar = LACKING
    task: ClassVar = "felice.pipelines.connect.connectors.hdfs.sink_task:HdfsSinkTask"

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
