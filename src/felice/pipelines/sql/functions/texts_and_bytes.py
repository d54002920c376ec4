"""Functions that texts and bytes have both: their parts, their lengths, and what is made of several.

Differs:    a character is a code point. ksqlDB counts those beyond the first 65,536, such as most emoji, as two.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from felice.pipelines.sql.functions.limits import within
from felice.pipelines.sql.functions.table import scalar

T = TypeVar("T", str, bytes)
_BOTH = ("STRING", "BYTES")


def _of_both(
    signature: str, what: str, example: tuple[str, str], **given: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function for texts and for bytes: `*` in the signature is either type."""

    def register(implementation: Callable[..., Any]) -> Callable[..., Any]:
        for type_ in _BOTH:
            found = example if type_ == "STRING" else _in_bytes(*example)
            scalar(signature.replace("*", type_), what, found, **given)(implementation)
        return implementation

    return register


def _in_bytes(call: str, result: str) -> tuple[str, str]:
    """The same example with bytes for each text in quotes."""
    return _each_text(call), _each_text(result)


def _each_text(expression: str) -> str:
    parts = expression.split("'")
    return "".join(f"TO_BYTES('{part}', 'utf8')" if number % 2 else part for number, part in enumerate(parts))


@_of_both("LEN(value *) -> INTEGER", "The number of characters, or of bytes.", ("LEN('abc')", "3"))
def length(value: str | bytes) -> int:
    """How long it is."""
    return len(value)


def _concatenation(empty: T) -> Callable[..., T]:
    return lambda *values: _joined([one for one in values if one is not None], empty)


for _type, _concatenate in (("STRING", _concatenation("")), ("BYTES", _concatenation(b""))):
    _example = ("CONCAT('a', NULL, 'b')", "'ab'")
    scalar(
        f"CONCAT(first {_type}, second {_type}, others {_type} MANY) -> {_type}",
        "All values, one after the other. Nulls are left out.",
        _example if _type == "STRING" else _in_bytes(*_example),
        takes_nulls=True,
    )(_concatenate)


def _joined(values: list[T], separator: T) -> T:
    within(sum(map(len, values)) + len(separator) * (len(values) - 1))
    return separator.join(values)


@_of_both(
    "CONCAT_WS(separator *, first *, others * MANY) -> *",
    "All values, with the separator between them. Nulls are left out.",
    ("CONCAT_WS('-', 'a', NULL, 'b')", "'a-b'"),
    takes_nulls=True,
)
def concatenated_with(separator: T | None, *values: T | None) -> T | None:
    """All as one; None without a separator."""
    if separator is None:
        return None
    return _joined([one for one in values if one is not None], separator)


@_of_both(
    "LPAD(value *, length INTEGER, padding *) -> *",
    "The value with padding before it, or cut, so that it has this length. Null for an empty padding.",
    ("LPAD('Foo', 7, 'Bar')", "'BarBFoo'"),
)
def padded_left(value: T, length: int, padding: T) -> T | None:
    """None for a negative length."""
    before = _padding(value, length, padding)
    return None if before is None else (before + value)[:length]


@_of_both(
    "RPAD(value *, length INTEGER, padding *) -> *",
    "The value with padding after it, or cut, so that it has this length. Null for an empty padding.",
    ("RPAD('Foo', 7, 'Bar')", "'FooBarB'"),
)
def padded_right(value: T, length: int, padding: T) -> T | None:
    """None for a negative length."""
    after = _padding(value, length, padding)
    return None if after is None else (value + after)[:length]


def _padding(value: T, length: int, padding: T) -> T | None:
    if length < 0 or not padding:
        return None
    missing = max(within(length) - len(value), 0)
    return (padding * (missing // len(padding) + 1))[:missing]


@_of_both(
    "SPLIT(value *, delimiter *) -> ARRAY<*>",
    "The parts between the delimiters, which are no regular expressions. An empty one divides all characters.",
    ("SPLIT('a,,b', ',')", "ARRAY['a', '', 'b']"),
)
def divided(value: T, delimiter: T) -> list[T]:
    """At least one part."""
    if not delimiter:
        return [value[at : at + 1] for at in range(len(value))] or [value]
    return value.split(delimiter)


@_of_both(
    "SUBSTRING(value *, start INTEGER) -> *",
    "The value from a place on. The first is 1; negative ones count from the end.",
    ("SUBSTRING('stream', 3)", "'ream'"),
)
def part_from(value: T, start: int) -> T:
    """The rest."""
    return value[_start(value, start) :]


@_of_both(
    "SUBSTRING(value *, start INTEGER, length INTEGER) -> *",
    "At most so many characters or bytes from a place on. The first is 1; negative ones count from the end.",
    ("SUBSTRING('stream', -4, 2)", "'re'"),
)
def part(value: T, start: int, length: int) -> T:
    """The part; empty for a negative length."""
    begin = _start(value, start)
    return value[begin : begin + max(length, 0)]


def _start(value: str | bytes, start: int) -> int:
    return max(len(value) + start, 0) if start < 0 else max(start - 1, 0)
