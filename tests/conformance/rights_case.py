"""What a case of the rights matrix is: a request, the permissions that it needs, and the error without each of them."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from conformance.secured import ANONYMOUS, Rule
from felice.protocol.api import Api
from felice.protocol.errors import ErrorCode
from felice.security.acl import CLUSTER_NAME, Operation, ResourceType

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
CLUSTER, TRANSACTIONAL_ID = ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID
OF_TOPIC, OF_GROUP, OF_CLUSTER, OF_TRANSACTION = (
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)
OF_TOKEN = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
DENIED = {int(code) for code in (OF_TOPIC, OF_GROUP, OF_CLUSTER, OF_TRANSACTION, OF_TOKEN)}
LEFT_OUT = None
"""Instead of an error code: without the permission the response does not name the resource."""
CLOSED = -1000
"""Instead of an error code: the connection is closed."""


@dataclass(frozen=True, slots=True)
class Need:
    """A permission, and the error without it."""

    kind: ResourceType
    name: str
    operation: Operation
    denied: int | None
    principal: str = ANONYMOUS

    @property
    def rule(self) -> Rule:
        return Rule(self.kind, self.name, self.operation, principal=self.principal)


@dataclass(frozen=True, slots=True)
class Case:
    """One request in one version. Each permission in `in_place_of` is sufficient instead of all needs."""

    name: str
    api: Api
    version: int
    build: Callable[[Names], Any]
    needs: tuple[Need, ...] = ()
    in_place_of: tuple[Need, ...] = ()
    user: str | None = None
    """The user that makes the request; None for the anonymous client."""


@dataclass(frozen=True, slots=True)
class Names:
    """The names of the resources that exist at the broker."""

    topic_id: uuid.UUID


def topic(operation: Operation, denied: int | None = OF_TOPIC, name: str = "t") -> Need:
    return Need(TOPIC, name, operation, denied)


def group(operation: Operation, denied: int | None = OF_GROUP) -> Need:
    return Need(GROUP, "g", operation, denied)


def cluster(operation: Operation, denied: int | None = OF_CLUSTER) -> Need:
    return Need(CLUSTER, CLUSTER_NAME, operation, denied)


def transaction(operation: Operation, denied: int | None = OF_TRANSACTION) -> Need:
    return Need(TRANSACTIONAL_ID, "x", operation, denied)
