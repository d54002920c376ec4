"""Checks the whole configuration of a connector, and finds all that is wrong with it at once.

Keeps true:  options, values and errors are those of Kafka Connect 4.3's answer to
             `PUT /connector-plugins/{plugin}/config/validate`. No value of a password is in the answer.
Differs:     there are no options of plugin versions. Groups of topics (`topic.creation.<group>.*`) are checked here;
             Kafka finds their errors when the tasks start. An option that is missing has one error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from felice.dataclass import dataclass
from felice.pipelines.connect.configuration.connector import (
    CONNECTOR_CLASS,
    DEFAULT_GROUP,
    HEADER_CONVERTER,
    KEY_CONVERTER,
    PREDICATES,
    SINK,
    SOURCE,
    TOPIC_GROUPS,
    TRANSFORMS,
    VALUE_CONVERTER,
    check_topics,
    refuse_unknown_versions,
    topic_group,
)
from felice.pipelines.connect.configuration.definitions import (
    HIDDEN,
    ConfigDefinitions,
    ConfigValue,
    Definition,
    Importance,
    Type,
    Validator,
    parse_value,
)
from felice.pipelines.connect.configuration.overrides import refused_overrides
from felice.pipelines.connect.configuration.worker import with_prefix
from felice.pipelines.connect.connector.base import Connector
from felice.pipelines.connect.model.errors import ConfigError
from felice.pipelines.connect.plugins import Kind, Plugin, Plugins

_CONVERTER_KINDS = {
    KEY_CONVERTER: Kind.CONVERTER,
    VALUE_CONVERTER: Kind.CONVERTER,
    HEADER_CONVERTER: Kind.HEADER_CONVERTER,
}

_DEFAULT_TOPICS = f"topic.creation.{DEFAULT_GROUP}."
"""A source with such an option creates its topics itself."""


@dataclass(frozen=True, slots=True)
class Validation:
    """What is wrong with a configuration. `configs` has each option's definition and its value with errors."""

    groups: tuple[str, ...]
    configs: tuple[tuple[Definition | None, ConfigValue], ...]

    @property
    def error_count(self) -> int:
        """The number of errors."""
        return sum(len(value.errors) for _, value in self.configs)

    def with_values(self, shown: Mapping[str, str], hidden: Mapping[str, str]) -> Validation:
        """The same with other values of some options, also in the texts of their errors."""
        configs = []
        for definition, value in self.configs:
            if (name := value.name) in shown:
                text = None if value.value is None or value.value == HIDDEN else shown[name]
                errors = tuple(error.replace(hidden[name], shown[name]) for error in value.errors)
                value = replace(value, value=value.value if text is None else text, errors=errors)
            configs.append((definition, value))
        return Validation(self.groups, tuple(configs))


class Configurations:
    """Checks configurations of connectors, with the plugins and the converters of a worker."""

    def __init__(self, plugins: Plugins, worker: Mapping[str, str]) -> None:
        """`worker` has the worker's options; its converters are those of connectors that name none."""
        self._plugins = plugins
        self._worker = worker

    def connector(self, config: Mapping[str, str]) -> tuple[Plugin, type[Connector]]:
        """The connector that a configuration names. Raises `ConfigError`."""
        name = config.get(CONNECTOR_CLASS)
        if not name:
            raise ConfigError(
                f"Connector config {{{', '.join(sorted(config))}}} contains no connector type; set {CONNECTOR_CLASS}"
            )
        full = self._plugins.class_name(CONNECTOR_CLASS, name.strip())
        plugin = self._plugins.get(full, Kind.SOURCE, Kind.SINK)
        return plugin, plugin.load()

    def validate(self, config: Mapping[str, str]) -> Validation:
        """All options that a configuration can have, with all that is wrong. Raises `ConfigError`: no connector."""
        refuse_unknown_versions(config)
        plugin, connector = self.connector(config)
        definitions = self.definitions(config)
        values = {one.name: one for one in definitions.validate(config)}
        parts = [definitions]
        if plugin.kind is Kind.SINK:
            for name, errors in check_topics(config).items():
                values[name] = replace(values[name], errors=(*values[name].errors, *errors))
        for prefix, group, own in self._parts(config, values):
            parts.append(own.prefixed(prefix, group))
            values.update((one.name, one) for one in _checked(own, prefix, config))
            if prefix.startswith(TRANSFORMS):
                parts.append(CONDITION.prefixed(prefix, group))
                values.update((one.name, one) for one in parts[-1].validate(config))
        for name, error in _conditions_without_predicate(config):
            if not values[name].errors:
                values[name] = replace(values[name], errors=(error,))
        values.update((one.name, one) for one in connector.validate(config))
        values.update((one.name, one) for one in refused_overrides(self._worker, config))
        every = {one.name: one for part in (*parts, connector.definitions) for one in part}
        groups = dict.fromkeys(group for part in (*parts, connector.definitions) for group in part.groups)
        configs = tuple((every.get(name), value) for name, value in values.items())
        return Validation(tuple(groups), configs)

    def definitions(self, config: Mapping[str, str]) -> ConfigDefinitions:
        """The options that every connector has, with those of this configuration's aliases and groups of topics."""
        plugin, _ = self.connector(config)
        common = SINK if plugin.kind is Kind.SINK else SOURCE
        found = ConfigDefinitions(self._with_plugins(one) for one in common)
        for alias in _aliases(config, TRANSFORMS):
            found += self._aliased(TRANSFORMS, alias, Kind.TRANSFORMATION)
        for alias in _aliases(config, PREDICATES):
            found += self._aliased(PREDICATES, alias, Kind.PREDICATE)
        if plugin.kind is Kind.SOURCE and any(name.startswith(_DEFAULT_TOPICS) for name in config):
            for group in (DEFAULT_GROUP, *_aliases(config, TOPIC_GROUPS)):
                found += topic_group(group)
        return found

    def _with_plugins(self, one: Definition) -> Definition:
        kind = _CONVERTER_KINDS.get(one.name)
        if kind is not None:
            default = self._worker.get(one.name, one.default)
            full = None if default is None else self._plugins.class_name(one.name, default)
            return replace(self._class(one, kind), default=full)
        if one.name == CONNECTOR_CLASS:
            return replace(one, resolver=None)
        return one

    def _class(self, one: Definition, kind: Kind) -> Definition:
        names = [found.name for found in self._plugins.of(kind)]
        return replace(
            one,
            resolver=self._plugins.class_name,
            validator=self._of_kind(kind),
            recommender=lambda name, others: names,
        )

    def _of_kind(self, kind: Kind) -> Validator:
        def check(option: str, name: str | None) -> None:
            if name is not None:
                self._plugins.get(name, kind)

        return check

    def _aliased(self, option: str, alias: str, kind: Kind) -> ConfigDefinitions:
        group, prefix = f"{option.capitalize()}: {alias}", f"{option}.{alias}."
        of_type = Definition(
            prefix + "type",
            Type.CLASS,
            documentation=f"The class of the {kind.text} {alias}.",
            importance=Importance.HIGH,
            group=group,
            order=0,
            width="LONG",
            display_name=f"{kind.interface} type for {alias}",
        )
        return ConfigDefinitions([self._class(of_type, kind)])

    # The options of converters, transformations and predicates themselves

    def _parts(
        self, config: Mapping[str, str], values: Mapping[str, ConfigValue]
    ) -> Iterable[tuple[str, str | None, ConfigDefinitions]]:
        """The options of each plugin that the configuration names, with their prefix and group.

        Plugins that are wrong have none.
        """
        for option, kind in _CONVERTER_KINDS.items():
            # The options of the worker's converter stand in the worker's configuration.
            if option in config and not values[option].errors:
                definitions = self._converter_definitions(values[option].value or "", kind)
                yield option + ".", None, definitions
        for option, kind in ((TRANSFORMS, Kind.TRANSFORMATION), (PREDICATES, Kind.PREDICATE)):
            for alias in _aliases(config, option):
                prefix = f"{option}.{alias}."
                chosen = values[prefix + "type"]
                if chosen.errors:
                    continue
                own = self._plugins.get(chosen.value or "", kind).load().definitions
                yield prefix, f"{option.capitalize()}: {alias}", own

    def _converter_definitions(self, name: str, kind: Kind) -> ConfigDefinitions:
        found: ConfigDefinitions = getattr(
            self._plugins.get(name, kind).load(), "definitions", ConfigDefinitions()
        )
        return found


CONDITION = ConfigDefinitions(
    [
        Definition(
            "predicate",
            Type.STRING,
            None,
            "The alias of a predicate: the transformation changes only records of which it is true.",
            Importance.MEDIUM,
        ),
        Definition(
            "negate",
            Type.BOOLEAN,
            False,
            "Whether the transformation changes only records of which the predicate is not true.",
            Importance.MEDIUM,
        ),
    ]
)
"""The options of a transformation that say which records it changes (KIP-585)."""


def _aliases(config: Mapping[str, str], option: str) -> list[str]:
    return list(dict.fromkeys(parse_value(option, config.get(option, ""), Type.LIST)))


def _checked(own: ConfigDefinitions, prefix: str, config: Mapping[str, str]) -> Iterable[ConfigValue]:
    """The values of a plugin's own options. Its checks see the options without their prefix, as Kafka's do."""
    given = with_prefix(config, prefix)
    for one in own.validate(given):
        errors = one.errors
        if own[one.name].is_required and one.name not in given:
            errors = tuple(text.replace(f'"{one.name}"', f'"{prefix}{one.name}"') for text in errors)
        yield replace(one, name=prefix + one.name, errors=errors)


def _conditions_without_predicate(config: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    """The types of transformations that negate no predicate, with the error."""
    for alias in _aliases(config, TRANSFORMS):
        prefix = f"{TRANSFORMS}.{alias}."
        if prefix + "negate" in config and prefix + "predicate" not in config:
            yield (
                prefix + "type",
                f"Config '{prefix}negate' was provided but there is no config '{prefix}predicate' defining a "
                "predicate to be negated.",
            )
