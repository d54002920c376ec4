"""JSON as Jackson reads and writes it: the canonical texts of schemas are Jackson's texts.

Keeps true:  `decode` ends in time and memory proportional to the text, refuses texts above `MAX_TEXT_BYTES` or deeper
             than `MAX_DEPTH`, and raises nothing but `InvalidSchema`.
             `encode(decode(text))` is the text that Jackson writes for the tree that it reads from `text`: without
             white space, members in their order, a repeated member at its first place with its last value.
How:         the standard library's decoder, and an encoder that differs from the standard library's in what Jackson
             writes differently: floats as Java prints them, and control characters as `\\u001F`.
             Avro's library reads fractions as floats, Confluent's reader of JSON schemas as decimals with all digits.
"""

from __future__ import annotations

import json
import math
import re
import struct
from decimal import Decimal, InvalidOperation
from typing import Any, NoReturn

from felice.registry.formats.schema import MAX_DEPTH, MAX_TEXT_BYTES, InvalidSchema

Json = Any
"""None, bool, int, float, Decimal, str, list or dict. mypy knows no better name for it."""

MAX_EXPONENT = 1_000
"""Limit of the exponents of decimals: arithmetic with larger ones would take memory that no text shows."""

# The text's end closes strings and comments too: without that, a text of many opening marks would take squared time.
_COMMENTS = re.compile(r'("(?:[^"\\]|\\.)*+(?:"|\Z))|/\*.*?(?:\*/|\Z)|//[^\n]*', re.DOTALL)
_ESCAPED = re.compile(r'[\x00-\x1f"\\]')
_ESCAPES = {chr(code): f"\\u{code:04X}" for code in range(0x20)} | {
    "\b": "\\b",
    "\t": "\\t",
    "\n": "\\n",
    "\f": "\\f",
    "\r": "\\r",
    '"': '\\"',
    "\\": "\\\\",
}
_SURROGATE = re.compile("[\ud800-\udfff]")
_SHOWN_CHARACTERS = 300


def decode(text: str, *, comments: bool = False, decimals: bool = False) -> Json:
    """The value of a JSON text.

    With `comments`, as for Avro's parser, `/* … */` and `// …` are removed before. With `decimals`, numbers with a
    fraction or an exponent are `Decimal`.
    Raises `InvalidSchema` for anything that is not one JSON value, or is too large or too deep.
    """
    if _SURROGATE.search(text):
        raise _half_of_a_pair()
    if len(text) > MAX_TEXT_BYTES or (not text.isascii() and len(text.encode()) > MAX_TEXT_BYTES):
        raise InvalidSchema(f"the schema is larger than {MAX_TEXT_BYTES} bytes")
    if comments and "/" in text:
        text = _COMMENTS.sub(lambda found: found[1] or " ", text)
    try:
        value = (_DECIMAL_DECODER if decimals else _DECODER).decode(text)
    except RecursionError:
        raise too_deep() from None
    except ValueError as error:
        raise InvalidSchema(f"the schema is not valid JSON: {error}") from None
    require_shallow(value)
    if "\\u" in text and _SURROGATE.search(encode(value)):
        raise _half_of_a_pair()
    return value


def encode(value: Json) -> str:
    """The JSON text that Jackson writes for a value."""
    parts: list[str] = []
    _write(value, parts.append)
    return "".join(parts)


def shown(value: Json) -> str:
    """A value's text for an error message: its beginning, if it is long."""
    try:
        text = encode(value)
    except RecursionError:
        return "…"
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"


def sorted_json(value: Json) -> Json:
    """The value with the members of its objects in the order of their names."""
    if isinstance(value, dict):
        return {name: sorted_json(value[name]) for name in sorted(value)}
    if isinstance(value, list):
        return [sorted_json(inner) for inner in value]
    return value


def quoted(text: str) -> str:
    """A string as JSON."""
    return '"' + _ESCAPED.sub(lambda found: _ESCAPES[found[0]], text) + '"'


def java_double(value: float) -> str:
    """A float as Java's `Double.toString` (JDK 19 and later) prints it; in quotes if it is not finite."""
    if not math.isfinite(value):
        return '"NaN"' if math.isnan(value) else f'"{"-" if value < 0 else ""}Infinity"'
    mantissa, _, exponent = f"{value!r}".partition("e")
    if 1e-3 <= abs(value) < 1e7 or value == 0:
        return mantissa
    sign = "-" if value < 0 else ""
    whole, _, fraction = mantissa.removeprefix("-").partition(".")
    digits = (whole + fraction).lstrip("0")
    # The place of the first digit that is not 0, as a power of ten.
    leading = len(whole.lstrip("0")) or len(digits) - len(fraction)
    power = int(exponent or 0) + leading - 1
    digits = digits.rstrip("0") or "0"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{power}"


def as_single(value: float) -> float:
    """The shortest decimal number that rounds to the same 32-bit float, as Java prints a `float`."""
    try:
        exact: float = struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)
    for digits in range(1, 10):
        short = float(f"{exact:.{digits}g}")
        if struct.pack("f", short) == struct.pack("f", exact):
            return short
    return exact


def too_deep() -> InvalidSchema:
    """The error for texts, or schemas after their references are resolved, that nest too deeply."""
    return InvalidSchema(f"the schema nests deeper than {MAX_DEPTH} levels")


def _half_of_a_pair() -> InvalidSchema:
    return InvalidSchema("the schema has half of a surrogate pair, which has no encoding in UTF-8")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number in JSON")


def _decimal(text: str) -> Decimal:
    try:
        value = Decimal(text)
    except InvalidOperation:
        raise ValueError(f"the number {text[:50]} is too large") from None
    if not value.is_finite() or abs(value.adjusted()) > MAX_EXPONENT:
        raise ValueError(f"the number {text[:50]} is too large or too small")
    return value


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)
_DECIMAL_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_decimal)


def require_shallow(value: Json) -> None:
    """Raises `InvalidSchema` if arrays and objects nest deeper than `MAX_DEPTH`."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [inner for inner in level if isinstance(inner, (dict, list))]
        if not level:
            return
        level = [inner for outer in level for inner in (outer.values() if isinstance(outer, dict) else outer)]
    raise too_deep()


def _write(value: Json, write: Any) -> None:
    match value:
        case str():
            write(quoted(value))
        case None:
            write("null")
        case True:
            write("true")
        case False:
            write("false")
        case float():
            write(java_double(value))
        case Decimal():
            write(str(value))
        case dict():
            before = "{"
            for name, inner in value.items():
                write(f"{before}{quoted(name)}:")
                _write(inner, write)
                before = ","
            write("}" if value else "{}")
        case list():
            before = "["
            for inner in value:
                write(before)
                _write(inner, write)
                before = ","
            write("]" if value else "[]")
        case _:
            write(int.__repr__(value))
