"""Which configurations of a broker may change while it runs, and to what. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from felice.config import BROKER_OPTIONS, BrokerConfig, ConfigError, Scope
from felice.protocol.errors import ApiError, ErrorCode


def check_dynamic(
    current: Mapping[str, str], changed: Mapping[str, str], static: BrokerConfig, *, for_all: bool
) -> None:
    """Raises `ApiError` unless the step from `current` to `changed` may be taken at once."""
    touched = {name for name in changed.keys() | current.keys() if changed.get(name) != current.get(name)}
    fixed = sorted(name for name in touched if not _may_change(name, for_all))
    if fixed:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"Cannot update these configs dynamically: {', '.join(fixed)}"
        )
    try:
        static.changed(changed)
    except ConfigError as error:
        # Of a broker even a bad value is an invalid request; INVALID_CONFIG is for topics.
        raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from error


def _may_change(name: str, for_all: bool) -> bool:
    option = BROKER_OPTIONS.get(name)
    if option is None:
        return False
    return option.scope is Scope.CLUSTER_WIDE or (option.scope is Scope.PER_BROKER and not for_all)
