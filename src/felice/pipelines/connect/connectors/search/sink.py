"""The sink: checks its options, and names its tasks."""

from __future__ import annotations

from typing import ClassVar

from felice.pipelines.connect.connector.base import OffsetlessSink
from felice.pipelines.connect.connectors.search.options import LACKING, OPTIONS


class ElasticsearchSink(OffsetlessSink):
    """Writes documents to Elasticsearch or OpenSearch."""

    version: ClassVar = "1"
    java_class: ClassVar = "io.confluent.connect.elasticsearch.ElasticsearchSinkConnector"
    definitions: ClassVar = OPTIONS
    lacking: ClassVar = LACKING
    task: ClassVar = "felice.pipelines.connect.connectors.search.sink_task:ElasticsearchSinkTask"
