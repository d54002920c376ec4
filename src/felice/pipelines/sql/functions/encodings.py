"""ENCODE, TO_BYTES and FROM_BYTES: texts as bytes, and bytes as texts."""

from __future__ import annotations

import binascii
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from typing import TypeVar

from felice.pipelines.sql.functions.limits import within
from felice.pipelines.sql.functions.table import scalar

T = TypeVar("T")
_NAMES = "hex, utf8, ascii and base64"
_BASE64 = re.compile(r"([A-Za-z0-9+/]*)(={0,2})")
_NO_BASE64 = re.compile(r"[^A-Za-z0-9+/]")
_LITERAL = re.compile(r"[xX]'(.*)'", re.DOTALL)


def _of_hex(text: str) -> bytes:
    try:
        return binascii.unhexlify(text)
    except ValueError:  # `binascii.Error` is one, and so is that of a text with other letters.
        raise ValueError(f"expected pairs of hexadecimal digits, and got {text!r:.40}") from None


def _of_base64(text: str) -> bytes:
    found = _BASE64.fullmatch(text)
    # Padding may be left out, as in Java.
    if found is None or len(found[1]) % 4 == 1 or (found[2] and len(text) % 4):
        raise ValueError(f"expected base64, and got {text!r:.40}")
    return b64decode(found[1] + "=" * (-len(found[1]) % 4))


def _ascii_text(value: bytes) -> str:
    return value.decode("ascii", "replace")


def _utf8_text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


def _base64_text(value: bytes) -> str:
    return b64encode(value).decode()


def _ascii_bytes(text: str) -> bytes:
    return text.encode("ascii", "replace")


def _utf8_bytes(text: str) -> bytes:
    return text.encode("utf-8", "replace")


_TO_BYTES: Mapping[str, Callable[[str], bytes]] = {
    "hex": _of_hex,
    "utf8": _utf8_bytes,
    "ascii": _ascii_bytes,
    "base64": _of_base64,
}
_FROM_BYTES: Mapping[str, Callable[[bytes], str]] = {
    "hex": lambda value: value.hex().upper(),
    "utf8": _utf8_text,
    "ascii": _ascii_text,
    "base64": _base64_text,
}


@scalar(
    "TO_BYTES(text STRING, encoding STRING) -> BYTES",
    f"The bytes of a text; encodings are {_NAMES}.",
    ("TO_BYTES('IQ==', 'base64')", "TO_BYTES('21', 'hex')"),
)
def to_bytes(text: str, encoding: str) -> bytes:
    """Raises ValueError for another encoding, and for a text that is not in it."""
    found = _named(_TO_BYTES, encoding)(text)
    within(len(found))
    return found


@scalar(
    "FROM_BYTES(value BYTES, encoding STRING) -> STRING",
    f"The text of bytes; encodings are {_NAMES}.",
    ("FROM_BYTES(TO_BYTES('ab', 'utf8'), 'hex')", "'6162'"),
)
def from_bytes(value: bytes, encoding: str) -> str:
    """Raises ValueError for another encoding. Bytes that are no characters are U+FFFD."""
    return _bounded(_named(_FROM_BYTES, encoding)(value))


def _named(functions: Mapping[str, T], encoding: str) -> T:
    found = functions.get(encoding.lower())
    if found is None:
        raise ValueError(f"encodings are {_NAMES}, and got {encoding!r:.40}")
    return found


def _bounded(text: str) -> str:
    within(len(text))
    return text


def _lenient_hex(text: str) -> bytes:
    """With `0x` before the digits, or `x'` and `'` around them. Only `0x` may stand before an odd number of them."""
    if text.startswith("0x"):
        return _of_hex(("0" if len(text) % 2 else "") + text[2:])
    literal = _LITERAL.fullmatch(text)
    return _of_hex(text if literal is None else literal[1])


def _lenient_base64(text: str) -> bytes:
    """Of any text: other characters are left out, and what does not make a byte."""
    digits = _NO_BASE64.sub("", text.partition("=")[0].replace("-", "+").replace("_", "/"))
    if len(digits) % 4 == 1:
        digits = digits[:-1]
    return b64decode(digits + "=" * (-len(digits) % 4))


_GIVEN = {**_TO_BYTES, "hex": _lenient_hex, "base64": _lenient_base64}
_WANTED = {**_FROM_BYTES, "hex": bytes.hex}


@scalar(
    "ENCODE(text STRING, given STRING, wanted STRING) -> STRING",
    f"A text of one encoding in another one; encodings are {_NAMES}.",
    ("ENCODE('0x4578616d706C6521', 'hex', 'utf8')", "'Example!'"),
    ("ENCODE('Example!', 'ascii', 'hex')", "'4578616d706c6521'"),
)
def encoded(text: str, given: str, wanted: str) -> str:
    """Raises ValueError for another encoding, for two that are the same, and for a text that is not in it."""
    read, write = _named(_GIVEN, given), _named(_WANTED, wanted)
    if given.lower() == wanted.lower():
        raise ValueError(f"ENCODE needs two different encodings, and got {given!r} twice")
    return _bounded(write(read(text)))
