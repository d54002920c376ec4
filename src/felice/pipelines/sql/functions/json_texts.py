"""JSON in texts, as ksqlDB's functions read and write it.

Keeps true: numbers keep their digits. What follows the first value is not read, as in ksqlDB.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from decimal import Decimal, DecimalException
from typing import Any, Final, NoReturn


class _Missing:
    """The type of `MISSING`."""


MISSING: Final = _Missing()
"""What a text without any value holds."""


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _number(text: str) -> Decimal:
    try:
        return Decimal(text)
    except DecimalException:
        raise ValueError(f"the number {text} is too large") from None


_DECODER = json.JSONDecoder(parse_float=_number, parse_constant=_refuse_constant)
_SPACE = " \t\n\r"


def parsed(text: str) -> Any:
    """The first value of a text, with `Decimal`s for numbers that are not whole; `MISSING` if there is none.

    Raises ValueError.
    """
    start = len(text) - len(text.lstrip(_SPACE))
    if start == len(text):
        return MISSING
    try:
        value, end = _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{text[:100]!r} is not JSON: {error}") from None
    if not isinstance(value, str | list | dict) and end < len(text) and text[end] not in _SPACE:
        raise ValueError(f"{text[:100]!r} is not JSON: there is no space after its first value")
    return value


GREATEST_EXPONENT = 9_999
"""Numbers with a greater one, or with more digits after the point, are not written: they would fill the memory."""
_ESCAPES = {code: f"\\u{code:04X}" for code in range(32)} | {
    ord(character): f"\\{escape}" for character, escape in zip('"\\\b\f\n\r\t', '"\\bfnrt', strict=True)
}


def quoted(text: str) -> str:
    """A text in JSON."""
    return f'"{text.translate(_ESCAPES)}"'


def written(value: Any) -> str:
    """A value that `parsed` gave, without spaces. Numbers have no exponent. Raises ValueError for enormous ones."""
    return _WRITERS[type(value)](value)


def _written_decimal(value: Decimal) -> str:
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int)
    if abs(exponent) > GREATEST_EXPONENT:
        raise ValueError(f"the number {value} has too many digits to be written")
    return f"{value:f}"


def _written_list(values: list[Any]) -> str:
    return f"[{','.join(map(written, values))}]"


def _written_object(value: Mapping[str, Any]) -> str:
    return written_object((key, written(one)) for key, one in value.items())


def written_object(entries: Any) -> str:
    """An object of names and values that are JSON already."""
    return "{" + ",".join(f"{quoted(name)}:{text}" for name, text in entries) + "}"


_WRITERS: Mapping[type, Callable[[Any], str]] = {
    type(None): lambda _: "null",
    bool: lambda value: "true" if value else "false",
    int: str,
    Decimal: _written_decimal,
    str: quoted,
    list: _written_list,
    dict: _written_object,
}
