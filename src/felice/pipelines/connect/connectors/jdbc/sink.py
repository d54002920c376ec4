"""The sink: checks its options, and names its tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from felice.pipelines.connect.connector.base import SinkConnector
from felice.pipelines.connect.connector.contexts import TopicPartition
from felice.pipelines.connect.connectors.jdbc.sink_options import LACKING, OPTIONS


class JdbcSink(SinkConnector):
    """Writes tables of a database."""

    version: ClassVar = "1"
    java_class: ClassVar = "io.confluent.connect.jdbc.JdbcSinkConnector"
    definitions: ClassVar = OPTIONS
    lacking: ClassVar = LACKING
    task: ClassVar = "felice.pipelines.connect.connectors.jdbc.sink_task:JdbcSinkTask"

    @classmethod
    def alter_offsets(cls, config: Mapping[str, str], offsets: Mapping[TopicPartition, int | None]) -> bool:
        """Accepts every offset, unless the database keeps the offsets (`offsets.table`): then these have no effect."""
        return not config.get("offsets.table")
