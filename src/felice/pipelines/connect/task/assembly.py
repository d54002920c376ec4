"""Makes the parts of a task from its connector's configuration: converters, transformations, errors, groups of topics.

Keeps true:  a converter that the connector does not name is the worker's, with the worker's options for it.
             A transformation whose predicate is not defined is refused: otherwise it would change every record.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from felice.pipelines.connect.configuration.connector import (
    DEFAULT_GROUP,
    HEADER_CONVERTER,
    KEY_CONVERTER,
    PREDICATES,
    TOPIC_GROUPS,
    TRANSFORMS,
    VALUE_CONVERTER,
    topic_group,
)
from felice.pipelines.connect.configuration.definitions import ConfigDefinitions
from felice.pipelines.connect.configuration.validation import CONDITION, Configurations
from felice.pipelines.connect.configuration.worker import with_prefix
from felice.pipelines.connect.converters.converter import Converter
from felice.pipelines.connect.converters.headers import ByConverter, HeaderConverter
from felice.pipelines.connect.model.errors import ConfigError
from felice.pipelines.connect.plugins import Kind, Plugins
from felice.pipelines.connect.task.control import Control
from felice.pipelines.connect.task.conversion import Conversion, Step
from felice.pipelines.connect.task.loop import log
from felice.pipelines.connect.task.new_topics import TopicGroup
from felice.pipelines.connect.task.tolerance import ErrorPolicy, LogReporter, Reporter, Tolerance
from felice.pipelines.connect.transforms.predicates import Predicate
from felice.pipelines.java.regex import compiled


class Parts:
    """The parts of the tasks of one connector. Every call makes new ones: a task shares nothing with another."""

    def __init__(self, plugins: Plugins, worker: Mapping[str, str], config: Mapping[str, str]) -> None:
        """`worker` and `config` are the options of worker and connector. Raises `ConfigError`."""
        self._plugins = plugins
        self._worker = worker
        self._config = config
        self.values = Configurations(plugins, worker).definitions(config).parse(config)
        """The connector's options by their names, without those of its plugins."""

    def tolerance(self, control: Control) -> Tolerance:
        """What happens to records that fail. With `errors.log.enable` they are in the log, too."""
        values = self.values
        policy = ErrorPolicy(
            tolerates_all=values["errors.tolerance"] == "all",
            retry_timeout_ms=values["errors.retry.timeout"],
            retry_delay_max_ms=values["errors.retry.delay.max.ms"],
            log_enabled=values["errors.log.enable"],
            log_includes_messages=values["errors.log.include.messages"],
        )
        reporters: list[Reporter] = []
        if policy.log_enabled:
            reporters.append(LogReporter(log, includes_messages=policy.log_includes_messages))
        return Tolerance(policy, reporters, control)

    def conversion(self, tolerance: Tolerance) -> Conversion:
        """The converters and transformations. Raises `ConfigError` and `DataError` for options that they refuse."""
        return Conversion(
            self._converter(KEY_CONVERTER, is_key=True),
            self._converter(VALUE_CONVERTER, is_key=False),
            self._header_converter(),
            self._steps(),
            tolerance,
        )

    def topic_groups(self) -> list[TopicGroup]:
        """The groups of topics that a source creates, the default last. Empty: the source creates no topics."""
        if f"topic.creation.{DEFAULT_GROUP}.partitions" not in self.values:
            return []
        return [self._topic_group(name) for name in (*self.values[TOPIC_GROUPS], DEFAULT_GROUP)]

    def _topic_group(self, name: str) -> TopicGroup:
        prefix, values = f"topic.creation.{name}.", self.values
        own = topic_group(name)
        return TopicGroup(
            name,
            values[prefix + "replication.factor"],
            values[prefix + "partitions"],
            tuple(map(compiled, values[prefix + "include"])),
            tuple(map(compiled, values[prefix + "exclude"])),
            {
                option.removeprefix(prefix): text
                for option, text in self._config.items()
                if option.startswith(prefix) and option not in own
            },
        )

    # Converters

    def _converter(self, option: str, *, is_key: bool, kind: Kind = Kind.CONVERTER) -> Converter:
        name: str | None = self.values[option]
        if name is None:
            raise ConfigError(f"{option} is set neither for the connector nor for the worker")
        found: type[Converter] = self._plugins.get(name, kind).load()
        return found(self._own(found.definitions, self._given(option), option + "."), is_key=is_key)

    def _header_converter(self) -> HeaderConverter:
        found = self._plugins.get(self.values[HEADER_CONVERTER], Kind.HEADER_CONVERTER).load()
        if issubclass(found, HeaderConverter):
            simple: HeaderConverter = found()
            return simple
        return ByConverter(self._converter(HEADER_CONVERTER, is_key=False, kind=Kind.HEADER_CONVERTER))

    def _given(self, option: str) -> Mapping[str, str]:
        """The options beside a converter: those of the connector if it names the converter."""
        return self._config if option in self._config else self._worker

    def _own(self, definitions: ConfigDefinitions, given: Mapping[str, str], prefix: str) -> dict[str, Any]:
        """The values of a plugin's own options, by their names without the prefix."""
        return definitions.parse(with_prefix(given, prefix))

    # Transformations

    def _steps(self) -> list[Step]:
        predicates = {alias: self._predicate(alias) for alias in self.values[PREDICATES]}
        return [self._step(alias, predicates) for alias in self.values[TRANSFORMS]]

    def _step(self, alias: str, predicates: Mapping[str, Predicate]) -> Step:
        prefix = f"{TRANSFORMS}.{alias}."
        plugin = self._plugins.get(self.values[prefix + "type"], Kind.TRANSFORMATION)
        found = plugin.load()
        own = self._own(found.definitions, self._config, prefix)
        transformation = found(own) if plugin.part is None else found(own, plugin.part)
        condition = self._own(CONDITION, self._config, prefix)
        name = condition["predicate"]
        if name is None:
            return Step(transformation)
        if name not in predicates:
            raise ConfigError(
                f"{prefix}predicate names {name!r}, which is not in {PREDICATES}: {', '.join(predicates) or 'empty'}"
            )
        return Step(transformation, predicates[name], condition["negate"])

    def _predicate(self, alias: str) -> Predicate:
        prefix = f"{PREDICATES}.{alias}."
        found: type[Predicate] = self._plugins.get(self.values[prefix + "type"], Kind.PREDICATE).load()
        return found(self._own(found.definitions, self._config, prefix))
