"""The sink: checks its options, and names its tasks."""

from __future__ import annotations

from typing import ClassVar

from felice.pipelines.connect.connector.base import OffsetlessSink
from felice.pipelines.connect.connectors.objects.options import LACKING, OPTIONS


class S3Sink(OffsetlessSink):
    """Writes files of records to a bucket."""

    version: ClassVar = "1"
    java_class: ClassVar = "io.confluent.connect.s3.S3SinkConnector"
    definitions: ClassVar = OPTIONS
    lacking: ClassVar = LACKING
    task: ClassVar = "felice.pipelines.connect.connectors.objects.sink_task:S3SinkTask"
