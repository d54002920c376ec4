"""The records of the offsets topic: keys `["connector",{partition}]`, values `{offset}`, in JSON as Kafka writes it.

Keeps true:  two partitions with the same members have the same key, also if their JSON orders the members differently.
"""

from __future__ import annotations

import json
from typing import Any

from felice.pipelines.connect.connector.contexts import Place
from felice.pipelines.connect.model.errors import ConnectError
from felice.pipelines.connect.storage.json_records import decoded, encoded, json_text

OffsetKey = tuple[str, str]
"""The connector, and the partition's text (`key_text`)."""


def key_text(partition: Place) -> str:
    """A partition of a source as a text, the same for partitions with the same members."""
    return json_text(partition, sorts=True)


def partition_of(key: OffsetKey) -> dict[str, Any]:
    """The partition of a key."""
    found: dict[str, Any] = json.loads(key[1])
    return found


def key_of(connector: str, partition: Place) -> OffsetKey:
    """The key of a partition of a connector's source."""
    return connector, key_text(partition)


def key_bytes(key: OffsetKey) -> bytes:
    """The bytes of a key."""
    connector, partition = key
    return f"[{json_text(connector)},{partition}]".encode()


def key_from_bytes(data: bytes) -> OffsetKey:
    """The key of these bytes. Raises `ConnectError` for what is no key of Kafka Connect."""
    try:
        connector, partition = json.loads(data)
    except (ValueError, TypeError, RecursionError):
        raise ConnectError(
            f"a key of the offsets topic is not [connector, partition]: {data[:80]!r}"
        ) from None
    if not isinstance(connector, str) or not isinstance(partition, dict):
        raise ConnectError(f"a key of the offsets topic is not [connector, partition]: {data[:80]!r}")
    return key_of(connector, partition)


def value_bytes(offset: Place) -> bytes:
    """The bytes of an offset."""
    return encoded(offset)


def value_from_bytes(data: bytes) -> dict[str, Any]:
    """The offset of these bytes. Raises `DataError`."""
    return decoded(data)
