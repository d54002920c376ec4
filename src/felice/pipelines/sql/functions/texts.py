"""Functions of texts.

Differs:    a character is a code point. ksqlDB counts those beyond the first 65,536, such as most emoji, as two.
"""

from __future__ import annotations

import re
import uuid

from felice.pipelines.sql.functions.limits import within
from felice.pipelines.sql.functions.table import scalar

_SPACE = "".join(map(chr, range(33)))
"""What Java's `trim` removes."""
_WORD = re.compile(r"[^\s]+\s*", re.ASCII)
_ESCAPE = re.compile(r"\\(?:u+([0-9A-Fa-f]{4})|([0-3]?[0-7]{1,2})|(.)|$)", re.DOTALL)
_ESCAPED = {"b": "\b", "n": "\n", "t": "\t", "f": "\f", "r": "\r"}
_LAST_CHARACTER = 0x10FFFF


@scalar("UCASE(text STRING) -> STRING", "The text in capitals.", ("UCASE('Abc')", "'ABC'"))
def upper_case(text: str) -> str:
    """All letters in upper case."""
    return text.upper()


@scalar("LCASE(text STRING) -> STRING", "The text in small letters.", ("LCASE('Abc')", "'abc'"))
def lower_case(text: str) -> str:
    """All letters in lower case."""
    return text.lower()


@scalar(
    "INITCAP(text STRING) -> STRING",
    "The text with a capital at the beginning of each word, and other letters small. Spaces divide words.",
    ("INITCAP('the qUICK fox')", "'The Quick Fox'"),
)
def capitalized(text: str) -> str:
    """As ksqlDB, without the spaces before the first word."""
    return "".join(found[0].upper() + found[1:] for found in _WORD.findall(text.lower()))


@scalar(
    "TRIM(text STRING) -> STRING",
    "The text without spaces at its beginning and end.",
    ("TRIM('  a b ')", "'a b'"),
)
def trimmed(text: str) -> str:
    """Control characters are spaces, as for Java's `trim`."""
    return text.strip(_SPACE)


@scalar(
    "REPLACE(text STRING, old STRING, new STRING) -> STRING",
    "The text with a new part for each old one.",
    ("REPLACE('a-b-c', '-', '+')", "'a+b+c'"),
)
def replaced(text: str, old: str, new: str) -> str:
    """All parts. Raises ValueError for a result that is too long."""
    within(len(text) + text.count(old) * (len(new) - len(old)))
    return text.replace(old, new)


@scalar(
    "INSTR(text STRING, part STRING) -> INTEGER",
    "The position of a part, counted from 1; 0 if it is not in the text.",
    ("INSTR('CORPORATE FLOOR', 'OR')", "2"),
    takes_nulls=True,
)
def place(text: str | None, part: str | None) -> int:
    """The first place; 0 for nulls."""
    return _occurrence(text, part, 1, 1)


@scalar(
    "INSTR(text STRING, part STRING, start INTEGER) -> INTEGER",
    "The position of a part, searched from the position `start` on. A negative `start` counts from the end of the "
    "text, and the search goes backwards. 0 if the part is not found.",
    ("INSTR('CORPORATE FLOOR', 'OR', 3)", "5"),
    ("INSTR('CORPORATE FLOOR', 'OR', -3)", "5"),
    takes_nulls=True,
)
def place_from(text: str | None, part: str | None, start: int | None) -> int | None:
    """The next place; 0 if there is none."""
    return None if start is None else _occurrence(text, part, start, 1)


@scalar(
    "INSTR(text STRING, part STRING, start INTEGER, occurrence INTEGER) -> INTEGER",
    "The position where a part occurs for the `occurrence`th time, searched from the position `start` on. A negative "
    "`start` counts from the end of the text, and the search goes backwards. 0 if the part is not found so often.",
    ("INSTR('CORPORATE FLOOR', 'OR', 3, 2)", "14"),
    ("INSTR('CORPORATE FLOOR', 'OR', -3, 2)", "2"),
    takes_nulls=True,
)
def occurrence(text: str | None, part: str | None, start: int | None, count: int | None) -> int | None:
    """0 if it does not occur so often. Occurrences may share characters."""
    return None if start is None or count is None else _occurrence(text, part, start, count)


def _occurrence(text: str | None, part: str | None, start: int, count: int) -> int:
    if text is None or part is None or not 1 <= abs(start) <= len(text) or count < 1:
        return 0
    if start > 0:
        return _found(text, part, start - 1, count) + 1
    at = _found(text[::-1], part[::-1], -start - 1, count)
    return 0 if at < 0 else len(text) - at - len(part) + 1


def _found(text: str, part: str, at: int, count: int) -> int:
    """The index of an occurrence; -1 if there is none."""
    at -= 1
    for _ in range(min(count, len(text) + 1)):
        at = text.find(part, at + 1)
        if at < 0:
            return -1
    return at


@scalar(
    "FIELD(text STRING, texts STRING MANY) -> INTEGER",
    "The position of the first of `texts` that is equal to `text`, counted from 1; 0 if there is none, and for null.",
    ("FIELD('b', 'a', NULL, 'b')", "3"),
    takes_nulls=True,
)
def place_among(text: str | None, *texts: str | None) -> int:
    """Null is equal to nothing."""
    return texts.index(text) + 1 if text is not None and text in texts else 0


@scalar(
    "CHR(code INTEGER) -> STRING",
    "The character of a Unicode code; null if there is none.",
    ("CHR(75)", "'K'"),
)
def character(code: int) -> str | None:
    """Raises ValueError for half of a pair of UTF-16."""
    if not 0 <= code <= _LAST_CHARACTER:
        return None
    if 0xD800 <= code <= 0xDFFF:
        raise ValueError(f"the code {code} is half of a character")
    return chr(code)


@scalar(
    "CHR(code STRING) -> STRING",
    "The character of a Unicode code after a backslash and `u`; null if the text does not begin so.",
    (r"CHR('\u004b')", "'K'"),
)
def character_of_text(code: str) -> str | None:
    """All of Java's escapes are characters. Raises ValueError for one that is not complete."""
    if len(code) < 6 or not code.startswith("\\u"):
        return None
    try:
        return _ESCAPE.sub(_unescaped, code).encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise ValueError(f"{code!r:.40} is half of a character") from None


def _unescaped(found: re.Match[str]) -> str:
    unicode, octal, letter = found.groups()
    if letter == "u":
        raise ValueError(f"expected four hexadecimal digits after \\u, and got {found.string!r:.40}")
    if letter is not None:
        return _ESCAPED.get(letter, letter)
    return chr(int(unicode, 16) if unicode else int(octal, 8)) if unicode or octal else ""


@scalar(
    "SPLIT_TO_MAP(text STRING, entries STRING, values STRING) -> MAP<STRING, STRING>",
    "The map of a text: the first delimiter divides entries, the second a key from its value. The last of equal keys "
    "counts, and an entry without the second delimiter does not. Null for empty or equal delimiters.",
    ("SPLIT_TO_MAP('a=1;b=2', ';', '=')", "MAP('a' := '1', 'b' := '2')"),
)
def map_of(text: str, entries: str, values: str) -> dict[str, str] | None:
    """A value ends at the next delimiter of values."""
    if not entries or not values or entries == values:
        return None
    parts = (entry.split(values, 2) for entry in text.split(entries) if values in entry)
    return {key: value for key, value, *_ in parts}


@scalar("UUID() -> STRING", "A random UUID.", ("LEN(UUID())", "36"), is_random=True)
def random_uuid() -> str:
    """Version 4."""
    return str(uuid.uuid4())


@scalar(
    "UUID(value BYTES) -> STRING",
    "The UUID of 16 bytes; null for another number of them.",
    (
        "UUID(TO_BYTES('237e9877e79b42d4a765321741963000', 'hex'))",
        "'237e9877-e79b-42d4-a765-321741963000'",
    ),
)
def uuid_of(value: bytes) -> str | None:
    """In small letters."""
    return str(uuid.UUID(bytes=value)) if len(value) == 16 else None
