"""Configurations as DescribeConfigs shows them: every value with its source. Pure.

The value of an option of a topic or a group comes from the topic or the group, or else from a broker option that is its
synonym (the dynamic value of this broker, that of all brokers, the file), or else from the default. The value of a
broker option has the same sources except the topic. Options without effect are shown as in
`felice.config.without_effect`. An unknown name has no value and is sensitive, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import TypeAlias

from felice.config import BROKER_OPTIONS, TOPIC_OPTIONS, Kind, Option, Scope, find_option
from felice.config.client_metrics import CLIENT_METRICS_OPTIONS
from felice.config.group import GROUP_OPTIONS
from felice.config.without_effect import FIXED, SETTABLE
from felice.dataclass import dataclass
from felice.protocol.messages.describe_configs import ConfigSource

# One source of a value: the option's name there, the text of the value, and the kind of source.
Found: TypeAlias = tuple[str, str | None, ConfigSource]

_SENSITIVE = (Kind.PASSWORD, Kind.UNKNOWN)
# The options that set the same time in coarser units: log.retention.minutes and .hours of log.retention.ms.
_COARSER = {
    option.synonyms[0][0]: tuple(name for name, _ in option.synonyms[1:])
    for option in TOPIC_OPTIONS.values()
    if option.synonyms
}
_NODE_ID, _OLD_NODE_ID = "node.id", "broker.id"  # two names of one option: each sets the other


@dataclass(frozen=True, slots=True)
class BrokerLayers:
    """The sources of a broker's configuration, the strongest first."""

    dynamic: Mapping[str, str]
    dynamic_default: Mapping[str, str]
    static: Mapping[str, str]
    derived: Mapping[str, str] = field(default_factory=dict)
    """Values of unset options that this broker derives from others: the addresses that it gives to clients, and how
    it connects to other brokers."""

    def names(self) -> set[str]:
        """The names that have a value in any source."""
        return {*self.dynamic, *self.dynamic_default, *self.static}

    def values_of(self, name: str) -> Iterator[tuple[str, str, ConfigSource]]:
        """Yields the values of an option with their sources, the strongest first."""
        for layer, source in (
            (self.dynamic, ConfigSource.DYNAMIC_BROKER_CONFIG),
            (self.dynamic_default, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
            (self.static, ConfigSource.STATIC_BROKER_CONFIG),
        ):
            if name in layer:
                yield name, layer[name], source


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One configuration. `synonyms` holds every source that has a value, the strongest first."""

    option: Option
    value: str | None
    source: ConfigSource
    read_only: bool
    synonyms: tuple[Found, ...]

    @property
    def name(self) -> str:
        """The name of the option."""
        return self.option.name

    @property
    def is_sensitive(self) -> bool:
        """Whether the value must not be shown."""
        return self.option.kind in _SENSITIVE


def topic_entries(overrides: Mapping[str, str], broker: BrokerLayers) -> list[ConfigEntry]:
    """Returns every configuration of a topic."""
    source = ConfigSource.TOPIC_CONFIG
    return [_entry_over_broker(option, overrides, source, broker) for option in TOPIC_OPTIONS.values()]


def broker_entries(broker: BrokerLayers) -> list[ConfigEntry]:
    """Returns every configuration of a broker."""
    entries = [_broker_entry(option, broker) for option in BROKER_OPTIONS.values()]
    entries += [_entry(option, _default_of(option), read_only=True) for option in FIXED.values()]
    listed = {name for name, option in SETTABLE.items() if option.default is not None}
    others = (listed | broker.names()) - BROKER_OPTIONS.keys() - FIXED.keys()
    return entries + [_broker_entry(named_option(name), broker) for name in sorted(others)]


def named_option(name: str) -> Option:
    """The declaration of a broker's option of this name, also if the option has no effect, or means nothing."""
    return find_option(name) or option_without_effect(name)


def option_without_effect(name: str) -> Option:
    """Returns the option to show for a name that is set and has no effect."""
    found = FIXED.get(name) or SETTABLE.get(name)
    return found or Option(name, Kind.UNKNOWN, None, "An option that means nothing here.")


def dynamic_default_entries(broker: BrokerLayers) -> list[ConfigEntry]:
    """Returns only the dynamic values that were set for all brokers."""
    only = BrokerLayers({}, broker.dynamic_default, {})
    return [_broker_entry(named_option(name), only) for name in broker.dynamic_default]


def logger_entries(levels: Mapping[str, str]) -> list[ConfigEntry]:
    """Returns the levels of a broker's loggers, by name."""
    source = ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG
    return [
        ConfigEntry(Option(name, Kind.STRING, None, ""), level, source, read_only=False, synonyms=())
        for name, level in levels.items()
    ]


def client_metrics_entries(overrides: Mapping[str, str]) -> list[ConfigEntry]:
    """Returns every configuration of a client metrics resource."""
    source = ConfigSource.CLIENT_METRICS_CONFIG
    return [
        _entry(option, [*_own(option, overrides, source), *_default_of(option)], read_only=False)
        for option in CLIENT_METRICS_OPTIONS.values()
    ]


def group_entries(overrides: Mapping[str, str], broker: BrokerLayers) -> list[ConfigEntry]:
    """Returns every configuration of a group."""
    source = ConfigSource.GROUP_CONFIG
    return [_entry_over_broker(option, overrides, source, broker) for option in GROUP_OPTIONS.values()]


def _own(option: Option, overrides: Mapping[str, str], source: ConfigSource) -> list[Found]:
    # Kafka's brokers and tools store values as they were typed in the same nodes of ZooKeeper.
    name = option.name
    return [(name, option.canonical(overrides[name]), source)] if name in overrides else []


def _entry_over_broker(
    option: Option, overrides: Mapping[str, str], source: ConfigSource, broker: BrokerLayers
) -> ConfigEntry:
    """The entry of an option whose value comes from broker options if the resource does not set it."""
    found = _own(option, overrides, source)
    of_broker = [value for synonym, _ in option.synonyms for value in broker.values_of(synonym)]
    found += of_broker
    for synonym, _ in option.synonyms if of_broker else option.synonyms[:1]:
        found += _default_of(BROKER_OPTIONS[synonym])
    factors = dict(option.synonyms)
    return _entry(option, found, read_only=False, factor=factors.get(found[0][0], 1) if found else 1)


def _broker_entry(option: Option, broker: BrokerLayers) -> ConfigEntry:
    found: list[Found] = list(broker.values_of(option.name))
    for synonym, _ in option.synonyms:
        found += broker.values_of(synonym)
    defaults = _default_of(option)
    for coarser in _COARSER.get(option.name, ()) if found else ():
        found += broker.values_of(coarser)
        defaults += _default_of(BROKER_OPTIONS[coarser])
    if option.name == _OLD_NODE_ID:
        found += broker.values_of(_NODE_ID)
    if not found and option.name in broker.derived:
        found.append((option.name, broker.derived[option.name], _source_of_derived(option, broker)))
    return _entry(option, [*found, *defaults], read_only=option.scope is Scope.READ_ONLY)


def _source_of_derived(option: Option, broker: BrokerLayers) -> ConfigSource:
    """The source of a derived value; of addresses it is that of `listeners`, from which they are derived."""
    is_set = option.name == "advertised.listeners" and "listeners" in broker.static
    return ConfigSource.STATIC_BROKER_CONFIG if is_set else ConfigSource.DEFAULT_CONFIG


def _default_of(option: Option) -> list[Found]:
    if option.default is None:
        return []
    return [(option.name, option.format(option.default), ConfigSource.DEFAULT_CONFIG)]


def _entry(option: Option, found: list[Found], *, read_only: bool, factor: int = 1) -> ConfigEntry:
    """The entry of an option; `factor` converts the first value to the option's unit."""
    if option.kind in _SENSITIVE:
        found = [(name, None, source) for name, _, source in found]
    default = ("", option.format(option.default), ConfigSource.DEFAULT_CONFIG)
    _, value, source = found[0] if found else default
    # -1 means 'no limit' in every unit and stays -1.
    if value is not None and factor != 1 and int(value) > 0:
        value = str(int(value) * factor)
    return ConfigEntry(option, value, source, read_only, tuple(found))
