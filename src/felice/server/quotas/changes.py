"""Checks and applies changes of the quotas of one entity. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from ipaddress import ip_address

from felice.config import shortened
from felice.metadata.client_entity import DEFAULT, ClientEntity
from felice.protocol.errors import ApiError, ErrorCode
from felice.protocol.messages.alter_client_quotas import OpData
from felice.server.quotas.limits import CLIENT_KINDS, IP_KINDS, QuotaKind

_INT_MAX = 2**31 - 1
_LONG_MAX = 2**63 - 1


def changed_quotas(
    entity: ClientEntity, current: Mapping[str, str], changes: Iterable[OpData]
) -> dict[str, str]:
    """The entity's configuration after the changes. Keys that are not quotas stay. Raises `ApiError`."""
    _check_address(entity)
    allowed = {kind.value: kind for kind in (CLIENT_KINDS if entity.ip is None else IP_KINDS)}
    changed = dict(current)
    for change in changes:
        if change.remove:
            changed.pop(change.key, None)
        elif change.key in allowed:
            changed[change.key] = _text(allowed[change.key], change.value)
        else:
            raise _invalid(f"Invalid configuration key {shortened(change.key)}")
    return changed


def _check_address(entity: ClientEntity) -> None:
    """Refuses host names. Kafka resolves them, but then a quota's meaning depends on what DNS answers."""
    if entity.ip is None or entity.ip == DEFAULT:
        return
    try:
        ip_address(entity.ip)
    except ValueError:
        raise _invalid(f"{shortened(entity.ip)} is not a valid IP address") from None


def _text(kind: QuotaKind, value: float) -> str:
    """The text in which Kafka stores the value."""
    if not value > 0:
        raise _invalid(f"Quota {kind.value} must be greater than 0")
    if not kind.is_whole:
        if not math.isfinite(value):
            raise _invalid(f"{kind.value} must be finite")
        return repr(float(value))
    if value > float(_LONG_MAX):
        raise _invalid(f"Proposed value for {kind.value} is too large for a LONG.")
    if value != int(value):
        raise _invalid(f"{kind.value} cannot be a fractional value.")
    if kind is QuotaKind.CONNECTIONS and value > _INT_MAX:
        raise _invalid(f"Proposed value for {kind.value} is too large for an INT.")
    # As a double the largest long is one more.
    return str(min(int(value), _LONG_MAX))


def _invalid(reason: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, reason)
