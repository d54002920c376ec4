"""The sink: checks its options, and names its tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from felice.pipelines.connect.connector.base import SinkConnector, SinkTask
from felice.pipelines.connect.connectors.iceberg.options import LACKING, OPTIONS, conflicts


class IcebergSink(SinkConnector):
    """Writes rows to tables of Iceberg."""

    version: ClassVar = "1"
    java_class: ClassVar = "org.apache.iceberg.connect.IcebergSinkConnector"
    definitions: ClassVar = OPTIONS
    lacking: ClassVar = LACKING

    @classmethod
    def conflicts(cls, config: Mapping[str, str]) -> list[tuple[str, str]]:
        """The rules between options."""
        return conflicts(config)

    @classmethod
    def task_class(cls) -> type[SinkTask]:
        """The task."""
        from felice.pipelines.connect.connectors.iceberg.sink_task import IcebergSinkTask

        return IcebergSinkTask
