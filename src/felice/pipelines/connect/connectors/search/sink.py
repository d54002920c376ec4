"""The sink: checks its options, and names its tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from felice.pipelines.connect.connector.base import SinkConnector, SinkTask
from felice.pipelines.connect.connector.contexts import TopicPartition
from felice.pipelines.connect.connectors.search.options import LACKING, OPTIONS, conflicts


class ElasticsearchSink(SinkConnector):
    """Writes documents to Elasticsearch or OpenSearch."""

    version: ClassVar = "1"
    java_class: ClassVar = "io.confluent.connect.elasticsearch.ElasticsearchSinkConnector"
    definitions: ClassVar = OPTIONS
    lacking: ClassVar = LACKING

    @classmethod
    def conflicts(cls, config: Mapping[str, str]) -> list[tuple[str, str]]:
        """The rules between options."""
        return conflicts(config)

    @classmethod
    def task_class(cls) -> type[SinkTask]:
        """The task."""
        from felice.pipelines.connect.connectors.search.sink_task import ElasticsearchSinkTask

        return ElasticsearchSinkTask

    @classmethod
    def alter_offsets(cls, config: Mapping[str, str], offsets: Mapping[TopicPartition, int | None]) -> bool:
        """Accepts every offset: the server keeps none."""
        return True
