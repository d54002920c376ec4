"""The sink: checks its options, and names its tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from felice.pipelines.connect.configuration.definitions import ConfigValue
from felice.pipelines.connect.connector.base import SinkConnector, SinkTask
from felice.pipelines.connect.connector.contexts import TopicPartition
from felice.pipelines.connect.connectors.jdbc.options import refused
from felice.pipelines.connect.connectors.jdbc.sink_options import LACKING, OPTIONS, conflicts


class JdbcSink(SinkConnector):
    """Writes tables of a database."""

    version: ClassVar = "1"
    java_class: ClassVar = "io.confluent.connect.jdbc.JdbcSinkConnector"
    definitions: ClassVar = OPTIONS

    @classmethod
    def validate(cls, config: Mapping[str, str]) -> list[ConfigValue]:
        """Every option, with the rules between them."""
        found = {one.name: one for one in cls.definitions.validate(config)}
        for name, error in conflicts(config):
            found[name] = ConfigValue(name, found[name].value, errors=(*found[name].errors, error))
        return [*found.values(), *refused(config, LACKING)]

    @classmethod
    def task_class(cls) -> type[SinkTask]:
        """The task."""
        from felice.pipelines.connect.connectors.jdbc.sink_task import JdbcSinkTask

        return JdbcSinkTask

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        """As many tasks as are allowed: they share the partitions."""
        return [self.config] * max_tasks

    @classmethod
    def alter_offsets(cls, config: Mapping[str, str], offsets: Mapping[TopicPartition, int | None]) -> bool:
        """Accepts every offset, if the database keeps none; else it would be ignored, which the user is told."""
        return not config.get("offsets.table")
