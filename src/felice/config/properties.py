"""Java's `.properties` syntax, in which `server.properties` is written."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
# `str.splitlines` would also end a line at form feeds and Unicode separators.
_LINE_END = r"\r\n|\n|\r"
# An odd number of backslashes, and not the four digits of a character.
_MALFORMED = r"(?<!\\)(?:\\\\)*\\u(?![0-9a-fA-F]{4})"
_SEPARATOR = r"(?<!\\)(?:\\\\)*(?P<sep>[ \t\f]*[=:][ \t\f]*|[ \t\f]+)"


def parse_properties(text: str) -> dict[str, str]:
    """Returns keys and values in the order of the text. A repeated key has its last value.

    Raises ValueError for an escape that Java refuses, such as `\\user`, which would silently become another text.
    """
    return dict(_split(line) for line in _logical_lines(text))


def format_properties(properties: Mapping[str, str], heading: str = "") -> str:
    """The text of a `.properties` file that Java reads back as `properties`; `heading` becomes comment lines."""
    lines = [f"#{line}" for line in heading.splitlines()]
    lines += [f"{_escape(key, ' =:')}={_escape(value, '')}" for key, value in properties.items()]
    return "\n".join(lines) + "\n"


def _logical_lines(text: str) -> Iterator[str]:
    pending = ""
    for raw in re.split(_LINE_END, text):
        line = raw.lstrip(" \t\f")
        if not pending and (not line or line[0] in "#!"):
            continue
        # An odd number of backslashes at the end joins this line to the next.
        if (len(line) - len(line.rstrip("\\"))) % 2:
            pending += line[:-1]
            continue
        yield pending + line
        pending = ""
    if pending:
        yield pending


def _split(line: str) -> tuple[str, str]:
    found = re.search(_SEPARATOR, line)
    if not found:
        return _unescape(line), ""
    key = _unescape(line[: found.start("sep")])
    try:
        return key, _unescape(line[found.end("sep") :])
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from None


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    if re.search(_MALFORMED, text) is not None:
        raise ValueError("malformed \\u escape; write \\\\ for one \\")
    return re.sub(
        r"\\(u[0-9a-fA-F]{4}|.)",
        lambda m: chr(int(m[1][1:], 16)) if len(m[1]) == 5 else _ESCAPES.get(m[1], m[1]),
        text,
    )


def _escape(text: str, also: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")
    for character in also:
        escaped = escaped.replace(character, "\\" + character)
    return escaped
