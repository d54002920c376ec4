"""The sink: checks its options, and names its tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from felice.pipelines.connect.connector.base import SinkConnector
from felice.pipelines.connect.connector.contexts import TopicPartition
from felice.pipelines.connect.connectors.iceberg.options import LACKING, OPTIONS


class IcebergSink(SinkConnector):
    """Writes rows to tables of Iceberg."""

    version: ClassVar = "1"
    java_class: ClassVar = "org.apache.iceberg.connect.IcebergSinkConnector"
    definitions: ClassVar = OPTIONS
    lacking: ClassVar = LACKING
    task: ClassVar = "felice.pipelines.connect.connectors.iceberg.sink_task:IcebergSinkTask"

    @classmethod
    def alter_offsets(cls, config: Mapping[str, str], offsets: Mapping[TopicPartition, int | None]) -> bool:
        """Sets the offsets in the tables, which decide what is added. Raises `ConnectError` if they are not known."""
        from felice.pipelines.connect.connectors.iceberg.tables import set_offsets

        set_offsets(config, offsets)
        return True
