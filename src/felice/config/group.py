"""The options of a group: they replace the values of its broker, within the limits of its broker (KIP-848).

A broker has three options for each: `group.NAME` is the default, and `group.KIND.min.…` and `group.KIND.max.…` are the
limits.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from felice.config.option import (
    ConfigError,
    Kind,
    Option,
    OptionValue,
    Scope,
    construct,
    option,
    options_of,
    parse_all,
)
from felice.dataclass import dataclass

if TYPE_CHECKING:
    from felice.config.coordinator_options import CoordinatorOptions

_OF_BROKER = "group."
SESSION_TIMEOUT = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL = "consumer.heartbeat.interval.ms"
ASSIGNMENT_INTERVAL = "consumer.assignment.interval.ms"


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """The options of one group."""

    consumer_session_timeout_ms: int = option(
        SESSION_TIMEOUT,
        Kind.INT,
        45_000,
        "The broker removes a member of the consumer group after this time without a heartbeat.",
        scope=Scope.CLUSTER_WIDE,
        minimum=1,
        synonyms=((_OF_BROKER + SESSION_TIMEOUT, 1),),
    )
    consumer_heartbeat_interval_ms: int = option(
        HEARTBEAT_INTERVAL,
        Kind.INT,
        5_000,
        "How often members of the consumer group send heartbeats; must be shorter than the session timeout.",
        scope=Scope.CLUSTER_WIDE,
        minimum=1,
        synonyms=((_OF_BROKER + HEARTBEAT_INTERVAL, 1),),
    )
    consumer_assignment_interval_ms: int = option(
        ASSIGNMENT_INTERVAL,
        Kind.INT,
        1_000,
        "The shortest time between two computations of the consumer group's assignment.",
        scope=Scope.CLUSTER_WIDE,
        minimum=0,
        synonyms=((_OF_BROKER + ASSIGNMENT_INTERVAL, 1),),
    )

    @classmethod
    def of(cls, broker: CoordinatorOptions) -> GroupConfig:
        """The options of a group that sets none itself."""
        return construct(cls, _values_of(broker))

    @classmethod
    def parse(cls, overrides: Mapping[str, str], broker: CoordinatorOptions) -> GroupConfig:
        """The options of a group that sets these itself. Raises `ConfigError`."""
        for name, text in overrides.items():
            if name not in GROUP_OPTIONS:
                raise ConfigError(name, text, "Unknown group config name")
        found = construct(cls, {**_values_of(broker), **parse_all(GROUP_OPTIONS, overrides)})
        found.check(broker)
        return found

    @classmethod
    def in_force(cls, overrides: Mapping[str, str], broker: CoordinatorOptions) -> GroupConfig:
        """The options of a group whose stored options may be beyond the broker's present limits.

        The limit replaces a value beyond it. The broker's value replaces a value that cannot be parsed. The broker's
        values replace all options of the group if its heartbeat interval and session timeout contradict each other.
        """
        values = _values_of(broker)
        for name, text in overrides.items():
            with suppress(ConfigError, KeyError):
                own = GROUP_OPTIONS[name].parse(text)
                assert isinstance(own, int)
                lowest, highest = (_value(broker, limit) for limit in _limits_of(name))
                values[GROUP_OPTIONS[name].attribute] = min(max(own, lowest), highest)
        found = construct(cls, values)
        return (
            found
            if found.consumer_heartbeat_interval_ms < found.consumer_session_timeout_ms
            else cls.of(broker)
        )

    def check(self, broker: CoordinatorOptions, prefix: str = "") -> None:
        """Raises `ConfigError` for a value beyond a limit, and for a heartbeat interval not below the session timeout.

        `prefix` begins the names of these options in the errors.
        """
        for name, declared in GROUP_OPTIONS.items():
            value, (lowest, highest) = getattr(self, declared.attribute), _limits_of(name)
            if value < _value(broker, lowest):
                raise ConfigError(prefix + name, value, f"it is below {lowest} ({_value(broker, lowest)})")
            if value > _value(broker, highest):
                raise ConfigError(prefix + name, value, f"it is above {highest} ({_value(broker, highest)})")
        if self.consumer_heartbeat_interval_ms >= self.consumer_session_timeout_ms:
            raise ConfigError(
                prefix + HEARTBEAT_INTERVAL,
                self.consumer_heartbeat_interval_ms,
                f"it must be below {prefix}{SESSION_TIMEOUT} ({self.consumer_session_timeout_ms})",
            )


def check_group_values(broker: CoordinatorOptions) -> None:
    """Raises `ConfigError` if the broker's values for groups are beyond its limits, or contradict each other."""
    for lowest, highest in map(_limits_of, GROUP_OPTIONS):
        if _value(broker, lowest) > _value(broker, highest):
            reason = f"it is above {highest} ({_value(broker, highest)})"
            raise ConfigError(lowest, _value(broker, lowest), reason)
    GroupConfig.of(broker).check(broker, _OF_BROKER)


def _limits_of(name: str) -> tuple[str, str]:
    """The names of the broker's options for the minimum and maximum of a group's option."""
    kind, _, rest = name.partition(".")
    return f"{_OF_BROKER}{kind}.min.{rest}", f"{_OF_BROKER}{kind}.max.{rest}"


def _values_of(broker: CoordinatorOptions) -> dict[str, OptionValue]:
    return {declared.attribute: _value(broker, _OF_BROKER + name) for name, declared in GROUP_OPTIONS.items()}


def _value(broker: CoordinatorOptions, name: str) -> int:
    value: int = getattr(broker, name.replace(".", "_"))
    return value


GROUP_OPTIONS: dict[str, Option] = options_of(GroupConfig)
"""The options of a group, by name."""
