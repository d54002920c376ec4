"""The sink: checks its options, and names its tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from felice.pipelines.connect.configuration.definitions import ConfigValue
from felice.pipelines.connect.connector.base import SinkConnector, SinkTask
from felice.pipelines.connect.connector.contexts import TopicPartition
from felice.pipelines.connect.connectors.objects.options import LACKING, OPTIONS, conflicts


class S3Sink(SinkConnector):
    """Writes files of records to a bucket."""

    version: ClassVar = "1"
    java_class: ClassVar = "io.confluent.connect.s3.S3SinkConnector"
    definitions: ClassVar = OPTIONS

    @classmethod
    def validate(cls, config: Mapping[str, str]) -> list[ConfigValue]:
        """Every option, with the rules between them."""
        found = {one.name: one for one in cls.definitions.validate(config)}
        for name, error in conflicts(config):
            found[name] = ConfigValue(name, found[name].value, errors=(*found[name].errors, error))
        lacking = [
            ConfigValue(
                name, config[name], errors=(f"The option {name} is not supported by this connector.",)
            )
            for name in LACKING
            if name in config
        ]
        return [*found.values(), *lacking]

    @classmethod
    def task_class(cls) -> type[SinkTask]:
        """The task."""
        from felice.pipelines.connect.connectors.objects.sink_task import S3SinkTask

        return S3SinkTask

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        """As many tasks as are allowed: they share the partitions."""
        return [self.config] * max_tasks

    @classmethod
    def alter_offsets(cls, config: Mapping[str, str], offsets: Mapping[TopicPartition, int | None]) -> bool:
        """Accepts every offset: the bucket keeps none."""
        return True
