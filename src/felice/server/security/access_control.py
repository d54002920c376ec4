"""Permissions of the client of one request, and the audit log.

Keeps true: the audit log has Kafka's logger, levels and text: refusals at INFO, permissions at DEBUG, and at TRACE the
            questions that only filter a list or fill a bit field.
            One request writes at most `MAX_LINES` refusals.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol, TypeVar

from felice.config import BrokerConfig, shortened
from felice.protocol.api import API
from felice.security.acl import (
    CLUSTER_NAME,
    SUPPORTED_OPERATIONS,
    AclsByResource,
    Operation,
    ResourceType,
)
from felice.security.authorizer import Authorizer, Decision

_audit = logging.getLogger("kafka.authorizer.logger")

TRACE = 5
logging.addLevelName(TRACE, "TRACE")
MAX_LINES = 100
_SEVERAL = "*any*"

H = TypeVar("H")


class Access(Protocol):
    """Permissions of the client of one request."""

    def allows(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        """Whether the client may do what it asked for."""
        ...

    def shows(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        """The same for a check that only filters a list, which is no attempt of the operation."""
        ...

    def allows_any(self, operation: Operation, kind: ResourceType) -> bool:
        """Whether the client may do an operation on at least one resource of a type."""
        ...

    def operations(self, kind: ResourceType, name: str) -> int:
        """The bit field of the operations that the client may do."""
        ...


class _Context(Protocol):
    """The used part of a request's context."""

    @property
    def access(self) -> Access: ...


class _Everything:
    """Allows everything: a broker without an authorizer."""

    def allows(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        return True

    def shows(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        return True

    def allows_any(self, operation: Operation, kind: ResourceType) -> bool:
        return True

    def operations(self, kind: ResourceType, name: str) -> int:
        return _ALL_OPERATIONS[kind]


EVERYTHING: Access = _Everything()

_ALL_OPERATIONS = {
    kind: sum(1 << operation for operation in operations) for kind, operations in SUPPORTED_OPERATIONS.items()
}


class _ByRules:
    """The access of one request's client by ACLs."""

    __slots__ = ("_api_key", "_authorizer", "_host", "_lines", "_principal")

    def __init__(self, authorizer: Authorizer, principal: str, host: str, api_key: int) -> None:
        self._authorizer = authorizer
        self._principal = principal
        self._host = host
        self._api_key = api_key
        self._lines = 0

    def allows(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        decision = self._authorizer.decide(self._principal, self._host, operation, kind, name)
        self._log(decision, operation, kind, name)
        return decision.is_allowed

    def shows(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        decision = self._authorizer.decide(self._principal, self._host, operation, kind, name)
        if _audit.isEnabledFor(TRACE):
            self._write(TRACE, decision, operation, kind, name)
        return decision.is_allowed

    def allows_any(self, operation: Operation, kind: ResourceType) -> bool:
        decision = self._authorizer.decide_any(self._principal, self._host, operation, kind)
        self._log(decision, operation, kind, _SEVERAL)
        return decision.is_allowed

    def operations(self, kind: ResourceType, name: str) -> int:
        return self._authorizer.operations(self._principal, self._host, kind, name)

    def _log(self, decision: Decision, operation: Operation, kind: ResourceType, name: str) -> None:
        level = logging.DEBUG if decision.is_allowed else logging.INFO
        if not _audit.isEnabledFor(level):
            return
        self._lines += not decision.is_allowed
        if self._lines <= MAX_LINES:
            self._write(level, decision, operation, kind, name)
        elif self._lines == MAX_LINES + 1:
            _audit.info(f"Principal = {self._principal} is Denied more in this request, which is not listed")

    def _write(
        self, level: int, decision: Decision, operation: Operation, kind: ResourceType, name: str
    ) -> None:
        api = API.by_key.get(self._api_key)
        _audit.log(
            level,
            f"Principal = {self._principal} is {'Allowed' if decision.is_allowed else 'Denied'} "
            f"operation = {operation.name} from host = {self._host} "
            f"on resource = {kind.text}:LITERAL:{shortened(name)} for request = {api.name if api else self._api_key} "
            f"with resourceRefCount = 1 based on rule {decision.reason}",
        )


def open_to_all(handle: H) -> H:
    """The guard of handlers that need no permission."""
    return handle


def in_handler(handle: H) -> H:
    """The guard of handlers that check permissions themselves, with `context.access`."""
    return handle


class AccessControl:
    """The authorizer of a broker, or none."""

    def __init__(self, config: BrokerConfig, acls: Callable[[], AclsByResource]) -> None:
        """`acls` returns the current rules. The authorizer follows them at the next request."""
        self._acls = acls
        self._authorizer = (
            Authorizer(config.super_user_names, allow_if_no_acl=config.allow_everyone_if_no_acl_found)
            if config.has_authorizer
            else None
        )

    @property
    def is_enabled(self) -> bool:
        """Whether clients need permission."""
        return self._authorizer is not None

    def of(self, principal: str, host: str, api_key: int) -> Access:
        """The access of the client of one request."""
        if self._authorizer is None:
            return EVERYTHING
        self._authorizer.follow(self._acls())
        return _ByRules(self._authorizer, principal, host, api_key)


def cluster_operations(context: _Context) -> int:
    """The bit field of authorised operations of the cluster; empty for a client that may not describe the cluster."""
    access = context.access
    if not access.shows(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return 0
    return access.operations(ResourceType.CLUSTER, CLUSTER_NAME)
