"""Checks changes of a broker's configuration at run time. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from felice.config import BrokerConfig, ConfigError, Scope, find_option, security, shortened
from felice.config.kafka_only import is_settable_at_run_time
from felice.config.without_effect import SETTABLE
from felice.protocol.errors import ApiError, ErrorCode

# Unknown names are stored, too, so their length is limited.
MAX_NAME_LENGTH = 255


def check_dynamic(
    current: Mapping[str, str], changed: Mapping[str, str], static: BrokerConfig, *, for_all: bool
) -> None:
    """Raises `ApiError` unless a running broker may change from `current` to `changed`."""
    touched = {name for name in changed.keys() | current.keys() if changed.get(name) != current.get(name)}
    fixed = sorted(name for name in touched if not _may_change(name, for_all))
    if fixed:
        names = shortened(", ".join(fixed))
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Cannot update these configs dynamically: {names}")
    if unprefixed := sorted(touched & security.OPTIONS.keys()):
        reason = (
            "These security configs can be dynamically updated only per-listener using the listener prefix: "
        )
        raise ApiError(ErrorCode.INVALID_REQUEST, reason + ", ".join(unprefixed))
    if too_long := next((name for name in touched if len(name) > MAX_NAME_LENGTH), None):
        reason = f"The name {shortened(too_long)} is longer than {MAX_NAME_LENGTH} characters"
        raise ApiError(ErrorCode.INVALID_REQUEST, reason)
    try:
        static.changed(changed)
        for name in touched & changed.keys() & SETTABLE.keys():
            SETTABLE[name].parse(changed[name])
    except ConfigError as error:
        # As in Kafka: an invalid value of a broker is INVALID_REQUEST; INVALID_CONFIG is for topics only.
        raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from error


def without_effect(current: Mapping[str, str], changed: Mapping[str, str]) -> list[str]:
    """Returns the names of newly set options that have no effect."""
    return sorted(
        name for name in changed if find_option(name) is None and changed[name] != current.get(name)
    )


def _may_change(name: str, for_all: bool) -> bool:
    option = find_option(name)
    if option is None:
        return is_settable_at_run_time(name)
    return option.scope is Scope.CLUSTER_WIDE or (option.scope is Scope.PER_BROKER and not for_all)
