"""Keys as text in a path or a query, and keys and values as JSON."""

from __future__ import annotations

import base64
import json
import math
import re
import uuid
from collections.abc import Callable
from typing import Any

from felice.pipelines.streams.formats import Format


def _whole(text: str) -> int:
    if not re.fullmatch("-?[0-9]{1,19}", text):
        raise ValueError(text)
    return int(text)


def _number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


_FROM_TEXT: dict[str, Callable[[str], Any]] = {
    "string": str,
    "bytes": lambda text: base64.b64decode(text, validate=True),
    "uuid": uuid.UUID,
    **dict.fromkeys(("short", "int", "long"), _whole),
    **dict.fromkeys(("float", "double"), _number),
    "boolean": lambda text: {"true": True, "false": False}[text],
}


def key_of(text: str, format_: Format) -> Any:
    """The key that a text stands for. In a format without texts of its own, such as `json`, it is JSON; what is no JSON
    is the text itself. Raises ValueError if the format has no such key.
    """
    if (read := _FROM_TEXT.get(format_.name)) is not None:
        try:
            return read(text)
        except (ValueError, KeyError):
            raise ValueError(f"{text!r} is no key of format {format_.name}") from None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def plain(value: Any) -> Any:
    """A key or value as JSON has it: bytes in base64, other objects as text."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        if isinstance(value, (bytes, bytearray)):
            return base64.b64encode(value).decode()
        if isinstance(value, dict):
            return {str(name): plain(one) for name, one in value.items()}
        if isinstance(value, (list, tuple)):
            return [plain(one) for one in value]
        return str(value)
    return value
