"""Records of the topics of workers: keys are texts, values are JSON without a schema, as Kafka's workers write them."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from typing import Any

from felice.pipelines.connect.model.errors import DataError

_log = logging.getLogger("felice.connect.storage")

Record = tuple[bytes, bytes | None]
"""A key and a value; None removes the key."""


def json_text(value: object, *, sorts: bool = False) -> str:
    """A value as JSON without spaces. `sorts` orders the members of objects by name."""
    return json.dumps(value, sort_keys=sorts, ensure_ascii=False, separators=(",", ":"))


def encoded(value: Mapping[str, Any]) -> bytes:
    """The bytes of a JSON object."""
    return json_text(value).encode()


def decoded(data: bytes) -> dict[str, Any]:
    """The JSON object of these bytes. Raises `DataError`."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        raise DataError(f"not JSON: {data[:60]!r}") from None
    if not isinstance(value, dict):
        raise DataError(f"not a JSON object: {data[:60]!r}")
    return value


def member(value: Mapping[str, Any], name: str, kind: type) -> Any:
    """A member of an object, which must have this type. Raises `DataError`."""
    found = value.get(name)
    if type(found) is not kind:
        raise DataError(f"{name} is no {kind.__name__}: {found!r:.60}")
    return found


def texts(value: Mapping[str, Any], name: str) -> dict[str, str]:
    """A member that maps texts to texts; null values are left out. Raises `DataError`."""
    found = member(value, name, dict)
    for key, one in found.items():
        if one is not None and not isinstance(one, str):
            raise DataError(f"{name} has a value that is no text: {key}")
    return {key: one for key, one in found.items() if one is not None}


def read_record(
    topic: str,
    apply: Callable[[str, dict[str, Any] | None], None],
    key: bytes | None,
    value: bytes | None,
    offset: int,
) -> None:
    """Gives a record to `apply`. One that is not understood is named in the log and skipped."""
    try:
        apply((key or b"").decode(), None if value is None else decoded(value))
    except (DataError, UnicodeDecodeError) as error:
        skipped(topic, key, offset, error)


def skipped(topic: str, key: bytes | None, offset: int, error: Exception) -> None:
    """Names a record in the log that is not understood."""
    _log.error("record %d of the %s topic, %r, is not understood and skipped: %s", offset, topic, key, error)
