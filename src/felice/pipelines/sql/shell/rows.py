"""Rows of queries as they come: the messages of a stream, and a table that grows.

Keeps true: a number is shown as the server wrote it. The columns of rows stand below those of the header above them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from felice.pipelines.sql.shell.client import NoAnswer, Refused
from felice.pipelines.sql.shell.output import harmless
from felice.pipelines.sql.syntax.errors import SqlSyntaxError
from felice.pipelines.sql.syntax.tokens import tokens_of

TOMBSTONE = "<TOMBSTONE>"
_LEAST_WIDTH = 6
_WIDTH_WITHOUT_TERMINAL = 16
_WIDEST = 500
"""Without a terminal, a longer value does not widen its column, or each later row would have as many spaces."""
_BETWEEN = " \t\r\n,[]"
# Numbers with a point keep their digits: 1.10 stays 1.10.
_DECODER = json.JSONDecoder(parse_float=str)


class Message(NamedTuple):
    """A message of a query's stream: its text, and the same decoded."""

    text: str
    content: dict[str, Any]


def messages_of(line: str) -> Iterator[Message]:
    """The messages in a line of the answer: the answer is one array, an element on each line. Raises `ShellError`."""
    at = 0
    while True:
        while at < len(line) and line[at] in _BETWEEN:
            at += 1
        if at == len(line):
            return
        try:
            content, end = _DECODER.raw_decode(line, at)
        except ValueError:
            content, end = None, at
        if not isinstance(content, dict):
            raise NoAnswer(f"the server sent no row: {line[at : at + 80]}")
        if "@type" in content and "message" in content:
            raise Refused(str(content["message"]), content)
        if isinstance(error := content.get("errorMessage"), dict):
            raise Refused(str(error.get("message", error)), error)
        yield Message(line[at:end], content)
        at = end


def columns_of(schema: str) -> list[str]:
    """The names of the columns of a schema such as `` `A` STRING KEY, `B` ARRAY<INTEGER> ``."""
    try:
        tokens = tokens_of(schema)[:-1]
    except SqlSyntaxError:
        return [schema]
    names, depth, is_name = [], 0, True
    for token in tokens:
        if is_name:
            names.append(token.value)
            is_name = False
        depth += token.is_sign("<", "(") - token.is_sign(">", ")")
        is_name = depth == 0 and token.is_sign(",")
    return names


def text_of_value(value: object) -> str:
    """A value of a row as ksqlDB's shell shows it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"[{', '.join(map(text_of_value, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{name}={text_of_value(one)}' for name, one in value.items())}}}"
    return str(value)


class RowTable:
    """The lines of a table whose rows come one by one."""

    def __init__(
        self, columns: Sequence[str], screen: int | None, width: int = 0, *, wraps: bool = True
    ) -> None:
        """With a `width` all columns have this width. Otherwise they fill the screen. Without a screen, a value that is
        longer than its column widens the column, and the header is printed again.
        """
        self._columns = columns
        self._is_cut = width > 0 or screen is not None
        self._wraps = wraps
        if not width and screen is not None:
            width = max(_LEAST_WIDTH, (screen - 1) // max(1, len(columns)) - 1)
        least = [width or max(_WIDTH_WITHOUT_TERMINAL, _width_of(name)) for name in columns]
        self._widths = least

    def header(self) -> str:
        """The lines above the rows."""
        line = f"+{'+'.join('-' * width for width in self._widths)}+"
        return "\n".join((line, self.row(self._columns), line))

    def row(self, values: Sequence[object], *, is_tombstone: bool = False) -> str:
        """The lines of a row."""
        empty = TOMBSTONE if is_tombstone else "null"
        texts = [_in_one_line(empty if value is None else text_of_value(value)) for value in values]
        grown = self._grown(texts)
        cells = [self._lines(text, width) for text, width in zip(texts, self._widths, strict=False)]
        height = max((len(cell) for cell in cells), default=1)
        lines = "\n".join(
            f"|{'|'.join(_padded(cell, number, width) for cell, width in zip(cells, self._widths, strict=False))}|"
            for number in range(height)
        )
        return f"{self.header()}\n{lines}" if grown else lines

    def _grown(self, texts: Sequence[str]) -> bool:
        """Widens columns for longer values if values are not cut. Returns whether a column is wider now. The width at
        least doubles, so that the header is seldom printed again.
        """
        if self._is_cut:
            return False
        wider = [
            width if size <= width or size > _WIDEST else max(size, 2 * width)
            for size, width in zip(map(_width_of, texts), self._widths, strict=False)
        ]
        before, self._widths = self._widths, wider
        return wider != before

    def _lines(self, text: str, width: int) -> list[str]:
        from rich.cells import chop_cells, set_cell_size

        if not self._is_cut or _width_of(text) <= width:
            return [text]
        if self._wraps:
            return chop_cells(text, width)
        return [set_cell_size(text, max(0, width - 3)).rstrip() + "..."[:width]]


def _in_one_line(text: str) -> str:
    return harmless(text.expandtabs(4).replace("\n", "\\n"))


def _width_of(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(text)


def _padded(cell: Sequence[str], number: int, width: int) -> str:
    text = cell[number] if number < len(cell) else ""
    return text + " " * (width - _width_of(text))
