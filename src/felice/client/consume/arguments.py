"""Checks of the numbers that an application passes to calls that take messages, before they take any."""

from __future__ import annotations

from typing import SupportsIndex

_MOST_MESSAGES = 1_000_000


def whole_number(number: SupportsIndex, name: str) -> int:
    """Return the number as an int; raises `TypeError` for a float or a text, `ValueError` for a negative number."""
    whole = _whole(number, name)
    if whole < 0:
        raise ValueError(f"{name} must not be negative: {whole}")
    return whole


def message_limit(num_messages: SupportsIndex) -> int:
    """Return the limit of a `consume` call; raises `ValueError` unless it is between 0 and 1,000,000."""
    limit = num_messages if type(num_messages) is int else _whole(num_messages, "num_messages")
    if not 0 <= limit <= _MOST_MESSAGES:
        raise ValueError(f"num_messages must be between 0 and {_MOST_MESSAGES}")
    return limit


def _whole(number: SupportsIndex, name: str) -> int:
    try:
        return number.__index__()
    except AttributeError:
        raise TypeError(f"{name} must be an int, not {type(number).__name__}") from None
