"""Checks changes of a broker's configuration at run time. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from felice.config import BrokerConfig, ConfigError, Kind, Scope, find_option, security, shortened
from felice.config.kafka_only import is_settable_at_run_time
from felice.config.references import has_reference
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
    for name in touched & changed.keys():
        option = find_option(name)
        if option is not None and option.kind is Kind.PASSWORD and has_reference(changed[name]):
            # Kafka keeps the reference itself as the secret.
            reason = (
                f"{shortened(name)} cannot be a reference: references are resolved in the broker's file only"
            )
            raise ApiError(ErrorCode.INVALID_REQUEST, reason)
    if too_long := next((name for name in touched if len(name) > MAX_NAME_LENGTH), None):
        reason = f"The name {shortened(too_long)} is longer than {MAX_NAME_LENGTH} characters"
        raise ApiError(ErrorCode.INVALID_REQUEST, reason)
    try:
        config, faults = usable(static, changed)
        for fault in faults:
            # A stored value stays, even if it would be refused now: it must not keep others from being set back.
            if fault.name in touched or config is None:
                raise fault
        for name in touched & changed.keys() & SETTABLE.keys():
            SETTABLE[name].parse(changed[name])
    except ConfigError as error:
        # As in Kafka: an invalid value of a broker is INVALID_REQUEST; INVALID_CONFIG is for topics only.
        raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from error


def usable(static: BrokerConfig, stored: Mapping[str, str]) -> tuple[BrokerConfig | None, list[ConfigError]]:
    """The configuration with the stored values that can be used, and the faults of the others, which do not count.

    An earlier version may have stored a value that is refused today, such as max.connections=0. (The least value, 1,
    would not let its owner in either while another client is connected.)
    The configuration is None if values contradict each other and no stored value is at fault alone.
    """
    left, faults = dict(stored), list[ConfigError]()
    while True:
        try:
            return static.changed(left), faults
        except ConfigError as error:
            faults.append(error)
            if left.pop(error.name, None) is None:
                return None, faults


def check_not_shut_out(address: str, effective: BrokerConfig | None) -> None:
    """Raises `ApiError` if the client at `address` asks for a configuration in which it could not connect again."""
    if effective is not None and effective.connections_of(address) < 1:
        reason = (
            f"The limits of connections would shut out {address}, from which the change comes; "
            f"set max.connections.per.ip.overrides={address}:1 or more"
        )
        raise ApiError(ErrorCode.INVALID_REQUEST, reason)


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
