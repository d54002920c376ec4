"""Bit sets of authorized operations, as Metadata and similar APIs return them on request.

There is no authorizer, so every client may do every operation of a resource.
"""

from __future__ import annotations

from collections.abc import Iterable

_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE = 3, 4, 5, 6, 7, 8
_CLUSTER_ACTION, _DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE = 9, 10, 11, 12


def _bits(operations: Iterable[int]) -> int:
    return sum(1 << operation for operation in operations)


ALL_TOPIC_OPERATIONS = _bits(
    (_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE, _DESCRIBE_CONFIGS, _ALTER_CONFIGS)
)
ALL_CLUSTER_OPERATIONS = _bits(
    (_CREATE, _ALTER, _DESCRIBE, _CLUSTER_ACTION, _DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE)
)
ALL_GROUP_OPERATIONS = _bits((_READ, _DELETE, _DESCRIBE, _DESCRIBE_CONFIGS, _ALTER_CONFIGS))
