"""Keys and values of the topics of workers: text, and JSON without a schema, as Kafka's workers write them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from felice.pipelines.connect.model.errors import DataError


def encoded(value: Mapping[str, Any]) -> bytes:
    """The bytes of a JSON object."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


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
