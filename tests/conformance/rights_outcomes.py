"""Asks the cases of `rights_matrix`, and reduces each response to its error codes and the names that it tells."""

from __future__ import annotations

import uuid
from typing import Any

from conformance.rights_case import CLOSED, Case, Names
from conformance.secured import Secured
from conformance.wire import ConnectionClosed, Wire
from felice.protocol.messages.describe_cluster import DescribeClusterRequest
from felice.protocol.schema import schema_of

Outcome = dict[str, Any]


def ask(world: Secured, case: Case, names: Names) -> Outcome:
    """Returns the outcome of a case on a connection of its own."""
    request = case.build(names)
    with Wire(world.bootstrap) if case.user is None else world.user(case.user) as wire:
        wire.send(request, case.version)
        if getattr(request, "acks", 1) == 0:
            try:
                return outcome_of(wire.ask(DescribeClusterRequest(), 0))
            except ConnectionClosed:
                return {"connection": CLOSED}
        return outcome_of(wire.receive(request, case.version))


_IDS = (
    "name",
    "topic",
    "topic_name",
    "topic_id",
    "group_id",
    "transactional_id",
    "key",
    "resource_name",
    "partition_index",
    "partition",
    "partition_id",
    "index",
    "feature",
    "user",
)
_CODES = ("error_code", "partition_error_code", "topic_config_error_code")
# Lists that differ between the brokers for reasons of their own.
_SKIPPED = ("configs", "brokers", "records", "node_endpoints")


def outcome_of(message: Any, path: str = "") -> Outcome:
    """Every row and every error code of a response by the names on the way to it."""
    found: Outcome = {}
    for field in schema_of(type(message)).fields:
        value = getattr(message, field.name)
        if field.name in _CODES:
            found[f"{path}/{field.name}"] = value
        elif isinstance(value, list) and field.name not in _SKIPPED:
            for place, row in enumerate(value):
                if hasattr(type(row), "__slots__") and not isinstance(row, str):
                    where = f"{path}/{field.name}[{_identity(row, place)}]"
                    found[where] = "shown"
                    found |= outcome_of(row, where)
    return found


def _identity(row: Any, place: int) -> str:
    if hasattr(row, "principal_name"):
        return f"{row.principal_type}:{row.principal_name}"
    for name in _IDS:
        value = getattr(row, name, None)
        if value not in (None, "", uuid.UUID(int=0)):
            return "id" if isinstance(value, uuid.UUID) else str(value)
    return str(place)


def tells_of(outcome: Outcome, name: str) -> bool:
    """Whether the response has a row of this name."""
    return any(f"[{name}]" in path for path in outcome)
