"""DELIMITED: a row as one line of CSV, as Apache's commons-csv writes and reads it. Empty is null.

1,foo,          the last column is null
2,"a ""b"", c",1.50
"""

from __future__ import annotations

import base64
import decimal
import re
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from felice.dataclass import dataclass
from felice.pipelines.errors import FormatError
from felice.pipelines.sql.rows.columns import Row, WholeFormat
from felice.pipelines.sql.rows.numbers import decimal_of, double_of, double_text, fitting, time_of, whole_of
from felice.pipelines.sql.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INTEGER,
    STRING,
    TIME,
    TIMESTAMP,
    Decimal,
    SqlType,
)
from felice.pipelines.streams.formats import Format

DEFAULT_DELIMITER = ","
_NAMED_DELIMITERS = {"SPACE": " ", "TAB": "\t"}
_SPECIAL = '"\r\n'

Parse = Callable[[str], Any]


def delimiter_of(given: str) -> str:
    """The character that a statement's delimiter stands for. Raises ValueError if it stands for none."""
    if not given:
        raise ValueError(
            "Delimiter cannot be empty, if you meant to have a tab or space for delimiter, please use the special "
            "values 'TAB' or 'SPACE'"
        )
    character = _NAMED_DELIMITERS.get(given.upper(), given)
    if len(character) != 1:
        raise ValueError(
            f"Invalid delimiter value: '{given}'. Delimiter must be a single character or SPACE, TAB"
        )
    if character in _SPECIAL:
        raise ValueError(f"the delimiter cannot be {character!r}, which has a meaning of its own")
    return character


@dataclass(frozen=True, slots=True, eq=False)
class DelimitedFormat(WholeFormat):
    """Rows as lines. `delimiter` is a character."""

    name = "DELIMITED"
    delimiter: str
    read_places: tuple[int, ...] | None = None

    @property
    def has_names(self) -> bool:
        """The names are not written."""
        return False

    @cached_property
    def _parsers(self) -> list[tuple[int, Parse]]:
        """The parsers of the columns that are read, with the columns' places."""
        return [(place, _parser(self.columns[place][1])) for place in self.places]

    @cached_property
    def _field(self) -> re.Pattern[str]:
        end = re.escape(self.delimiter)
        return re.compile(
            rf'(?:"((?:[^"]|"")*)"[^\S{end}\r\n]*|([^"{end}\r\n][^{end}\r\n]*)?)({end}|[\r\n]|\Z)'
        )

    @cached_property
    def write(self) -> Callable[[Row], bytes]:
        """Writes a row as a line, without an end of line."""
        texts = [_text(type_, self.delimiter, place == 0) for place, (_, type_) in enumerate(self.columns)]
        if len(texts) == 1:
            (only,) = texts
            return lambda value: only(value[0]).encode()
        return lambda value: self.delimiter.join(
            [text(one) for text, one in zip(texts, value, strict=True)]
        ).encode()

    def decode_all(self, data: list[bytes | None]) -> list[Any]:
        """The row of each. Plain lines are read together: as one text, which is divided into lines and columns."""
        plain = self._plain(data)
        if plain is None:
            return Format.decode_all(self, data)
        columns = [
            [row[place] or None for row in plain]
            if parse is str
            else [parse(one) if (one := row[place]) else None for row in plain]
            for place, parse in self._parsers
        ]
        return list(zip(*columns, strict=True)) if columns else [()] * len(data)

    def _plain(self, data: list[bytes | None]) -> Sequence[Sequence[str]] | None:
        """The fields of each; None if a value is null, or is not a line without quotation with all columns."""
        if None in data:
            return None
        text, width = b"\n".join(data).decode(), len(self.columns)  # type: ignore[arg-type]
        if '"' in text or "\r" in text:
            return None
        lines = text.split("\n")
        if len(lines) != len(data) or "" in lines:
            return None
        rows = [line.split(self.delimiter) for line in lines]
        return rows if set(map(len, rows)) == {width} else None

    def read(self, data: bytes) -> Row:
        """The row of the first line that is not empty."""
        fields = self._fields(data.decode())
        if len(fields) != len(self.columns):
            raise FormatError(f"expected {len(self.columns)} fields, and got {len(fields)}")
        return tuple(
            [
                self._parsed(place, parse, fields[place]) if fields[place] else None
                for place, parse in self._parsers
            ]
        )

    def _parsed(self, place: int, parse: Parse, text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise FormatError(f"the column {self.columns[place][0]}: {error}") from None

    def _fields(self, text: str) -> list[str]:
        if '"' not in text:
            return next((line.split(self.delimiter) for line in re.split("[\r\n]", text) if line), [])
        text, place, fields = text.lstrip("\r\n"), 0, list[str]()
        while True:
            found = self._field.match(text, place)
            if found is None:
                raise FormatError(
                    f"the quotation that begins at character {place + 1} is not followed by a delimiter"
                )
            quoted, plain, end = found.groups()
            fields.append(plain or "" if quoted is None else quoted.replace('""', '"'))
            if end != self.delimiter:
                return fields
            place = found.end()


def _text(type_: SqlType, delimiter: str, is_first: bool) -> Callable[[Any], str]:
    """The function that makes a field of a column's value."""
    make = _plain if isinstance(type_, Decimal) else _TEXTS.get(type_, str)

    def text(value: Any) -> str:
        if value is None:
            return ""
        made = value if make is None else make(value)
        if not made:
            return '""' if is_first else ""
        needs_quotes = (
            made[0] <= "#"
            or made[-1] <= " "
            or (is_first and made[0] > "~")
            or delimiter in made
            or '"' in made
            or "\n" in made
            or "\r" in made
        )
        return f'"{made.replace(chr(34), chr(34) * 2)}"' if needs_quotes else made

    return text


def _plain(value: decimal.Decimal) -> str:
    return f"{value:f}"


def _parser(type_: SqlType) -> Parse:
    if not isinstance(type_, Decimal):
        return _PARSERS[type_]
    fit = fitting(type_)
    return lambda text: fit(decimal_of(text))


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _int(text: str) -> int:
    return whole_of(text, 32)


def _long(text: str) -> int:
    return whole_of(text, 64)


_PARSERS: dict[SqlType, Parse] = {
    BOOLEAN: lambda text: text.lower() == "true",
    INTEGER: _int,
    BIGINT: _long,
    DOUBLE: double_of,
    STRING: str,
    BYTES: _bytes,
    DATE: _int,
    TIME: lambda text: time_of(_long(text)),
    TIMESTAMP: _long,
}
TYPES = tuple(_PARSERS)
"""The types that the format has, beside DECIMAL."""
_TEXTS: dict[SqlType, Callable[[Any], str] | None] = {
    STRING: None,
    BOOLEAN: lambda value: "true" if value else "false",
    DOUBLE: double_text,
    BYTES: lambda value: base64.b64encode(value).decode(),
}
