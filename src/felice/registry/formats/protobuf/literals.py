"""Names, strings and numbers as .proto text has them. A value that has no such form raises `Unprintable`."""

from __future__ import annotations

import math
import re
import struct

_IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_TYPE_NAME = re.compile(r"\.?[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
_NUMBER = re.compile(r"-?[A-Za-z0-9.]+([eE][+-]?\d+)?", re.ASCII)
_ESCAPED = re.compile(r"([ !#-\[\]-~]|\\[ -~])*")  # printable ASCII; `"` and `\` only behind a `\`
_SPECIAL = {"\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "\\": "\\\\"}


class Unprintable(Exception):
    """The descriptor has no equivalent .proto text. The message says why, in one line."""


def identifier(name: str) -> str:
    """`name`, if it is one: nothing else may stand where the grammar wants an identifier."""
    if not _IDENTIFIER.fullmatch(name):
        raise Unprintable(f"the descriptor has the name {name[:80]!r}, which is no identifier")
    return name


def type_name(name: str) -> str:
    """`name`, if it is the name of a type or package: identifiers with dots, and perhaps one before them."""
    if not _TYPE_NAME.fullmatch(name):
        raise Unprintable(f"the descriptor has the type name {name[:80]!r}, which is no name")
    return name


def number(text: str) -> str:
    """The text of a number, `inf` or `nan` in a descriptor, if it is one."""
    if not _NUMBER.fullmatch(text):
        raise Unprintable(f"the descriptor has the default {text[:80]!r}, which is no number")
    return text


def quoted(text: str) -> str:
    """A string literal."""
    return (
        '"' + "".join(_SPECIAL.get(c) or (c if " " <= c != "\x7f" else f"\\{ord(c):03o}") for c in text) + '"'
    )


def quoted_bytes(value: bytes) -> str:
    """A string literal of ASCII characters for bytes."""
    return (
        '"'
        + "".join(_SPECIAL.get(chr(b)) or (chr(b) if 32 <= b < 127 else f"\\{b:03o}") for b in value)
        + '"'
    )


def quoted_escaped(text: str) -> str:
    """A string literal for the default of a `bytes` field, which a descriptor has with its escapes."""
    if not _ESCAPED.fullmatch(text):
        raise Unprintable(f"the descriptor has the default {text[:80]!r}, which is not escaped")
    return f'"{text}"'


def floating(value: float, *, single: bool) -> str:
    """The shortest number that a parser reads as `value`; `single` for 32 bits."""
    text = repr(value)
    if single and math.isfinite(value):
        texts = (f"{value:.{digits}g}" for digits in range(6, 10))
        text = next(text for text in texts if struct.pack("<f", float(text)) == struct.pack("<f", value))
    return text.removesuffix(".0")


def json_name(name: str) -> str:
    """The name in JSON of a field with the name `name`, unless the schema gives another: `user_id` has `userId`."""
    first, *others = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in others)
