"""JSON: rows as objects, or one column as its bare value. Lenient as ksqlDB, and fast.

Keeps true:  both ways of reading give the same rows. The typed way (msgspec) reads records with exact names and types,
             the lenient way reads all records. Without msgspec, the lenient way reads every record. So the row of a
             record does not depend on the records that were read before.
How:         A record that the typed way refuses is read leniently. If its names are spelled in another way than the
             typed decoder expects, the decoder is made again for that spelling, so that only the first record of such a
             topic is read leniently. If a record has one of these names in two spellings, the decoder refuses the
             record, and the lenient way decides which field counts. The decoder knows the names of further fields in
             earlier records, and refuses other names, so that no search for spellings is needed in each record.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, cast

from felice.pipelines.sql.rows.coercion import CAPITALS, coercion, loaded
from felice.pipelines.sql.rows.columns import BareFormat, Columns, Row, RowFormat, at_places, types_in
from felice.pipelines.sql.rows.json_text import in_bytes, struct_writer, writer
from felice.pipelines.sql.types import Array, Map, SqlType, Struct

_MOST_SPELLINGS = 16
"""How often a decoder is made again for another spelling."""
_MOST_OTHERS = 64
"""How many names of further fields a decoder accepts."""
_STRING = re.compile(rb'"([^"\\]*(?:\\.[^"\\]*)*)"', re.DOTALL)
_ESCAPED_NAME = re.compile(rb'"[^"\\]*\\u[^"]*"\s*:')
"""A name of a field with an escape, which may be a name of a column. A match may also be part of a text."""

Read = Callable[[bytes], Any]
Write = Callable[[Any], bytes]


def _typed() -> Any:
    """The module of the typed way; None without msgspec."""
    if importlib.util.find_spec("msgspec") is None:
        return None
    from felice.pipelines.sql.rows import json_typed

    return json_typed


class JsonFormat(RowFormat):
    """Rows as objects."""

    name = "JSON"

    @cached_property
    def write(self) -> Write:
        """Writes a row."""
        return object_writer(self.columns)

    @cached_property
    def _reader(self) -> Reader:
        return object_reader(self.columns)

    @cached_property
    def read(self) -> Read:
        """Reads a row; None for JSON's null."""
        return self._reader.read

    def decode_all(self, data: list[bytes | None]) -> list[Any]:
        """The row of each."""
        return self._reader.read_all(data)

    def of_columns(self, places: tuple[int, ...]) -> RowFormat:
        """The format of these columns: other fields need only be JSON."""
        return JsonFormat(at_places(self.columns, places))

    def placed_by(self, data: bytes) -> bytes | None:
        """Not known: other writers put spaces elsewhere."""
        return None


class BareJsonFormat(BareFormat):
    """One column as its bare value."""

    name = "JSON"

    @cached_property
    def write_one(self) -> Write:
        """Writes the column's value."""
        ((_, type_),) = self.columns
        return value_writer(type_)

    @cached_property
    def read_one(self) -> Read:
        """Reads the column's value."""
        ((_, type_),) = self.columns
        return value_reader(type_)

    def placed_by(self, data: bytes) -> bytes | None:
        """Not known, as for objects."""
        return None


def object_writer(columns: Columns) -> Write:
    """The function that writes rows as objects."""
    text, typed = struct_writer(columns), _typed()
    if typed is None:
        return _exact(text)
    kind, encode = typed.plain_class(columns), typed.encode
    if kind is None:
        return _fast(typed.object_writer(columns), text)

    def write(row: Row) -> bytes:
        try:
            data: bytes = encode(kind(*row))
        except UnicodeEncodeError:
            return in_bytes(text(row))
        return data

    return write


def value_writer(type_: SqlType) -> Write:
    """The function that writes values of a type."""
    text, typed = writer(type_), _typed()
    if typed is None:
        return _exact(text)
    encode, shape = typed.encode, typed.shaped(type_)
    return _fast(encode if shape is None else lambda value: encode(shape(value)), text)


def _exact(text: Callable[[Any], str]) -> Write:
    return lambda value: in_bytes(text(value))


def _fast(encode: Write, text: Callable[[Any], str]) -> Write:
    def write(value: Any) -> bytes:
        try:
            return encode(value)
        except UnicodeEncodeError:
            return in_bytes(text(value))

    return write


class Reader:
    """Reads objects leniently."""

    def __init__(self, type_: Struct) -> None:
        self._type = type_
        self._coerce = coercion(type_, CAPITALS)

    def read(self, data: bytes) -> Row | None:
        """The row; None for JSON's null."""
        return cast(Row | None, self._coerce(loaded(data)))

    def read_all(self, data: list[bytes | None]) -> list[Row | None]:
        """The row of each."""
        read = self.read
        return [None if one is None else read(one) for one in data]


def object_reader(columns: Columns) -> Reader:
    """Reads rows from objects."""
    type_, typed = Struct(columns), _typed()
    return Reader(type_) if typed is None else _TypedReader(type_, typed)


def value_reader(type_: SqlType) -> Read:
    """The function that reads values of a type."""
    lenient, typed = _lenient(type_), _typed()
    if typed is None:
        return lenient
    decode = typed.decoder(type_)

    def read(data: bytes) -> Any:
        try:
            return decode(data)
        except ValueError:
            return lenient(data)

    return read


def _lenient(type_: SqlType) -> Read:
    coerce = coercion(type_, CAPITALS)
    return lambda data: coerce(loaded(data))


class _TypedReader(Reader):
    """Reads objects in both ways."""

    def __init__(self, type_: Struct, typed: Any) -> None:
        super().__init__(type_)
        self._typed, self._unset = typed, typed.UNSET
        # A record that does not contain the name, with both in capitals, has no such field. Each record contains the
        # empty name, which stands for names that are no identifiers: JSON may write these with escapes.
        self._names = [name.encode() if name.isidentifier() else b"" for name, _ in type_.fields]
        self._capitals = {name.upper() for name, _ in type_.fields}
        self._has_objects = any(isinstance(one, Struct) for _, of in type_.fields for one in types_in(of))
        self._spellings, self._others = _MOST_SPELLINGS, frozenset[str]()
        self._spell(type_)

    def _spell(self, spelled: Struct) -> None:
        self._spelled = spelled
        expected: dict[bytes, bytes | None] = {}
        for name, found in _respelled(self._type, spelled):
            capitals = name.upper().encode()
            if expected.setdefault(capitals, found.encode()) != found.encode():
                expected[capitals] = None  # Two fields have the name in different spellings.
        self._respelled = expected
        self._make_decoder(is_strict=bool(self._respelled))

    def _make_decoder(self, *, is_strict: bool) -> None:
        others = sorted(self._others) if is_strict else []
        decode, self._convert = self._typed.field_decoder(self._spelled, others, is_strict=is_strict)
        as_tuple, count = self._typed.as_tuple, len(self._names)
        # If the decoder knows all fields of a record, no name has two spellings, and names need not be counted.
        counts_names = bool(self._respelled) and not is_strict
        self._is_strict = is_strict
        # In one assignment, because other threads may read.
        self._way = decode, (lambda made: as_tuple(made)[:count]) if others else as_tuple, counts_names

    def _let_pass(self, data: bytes) -> bool:
        """Make a new decoder after a strict decoder has refused a record because of its names. The new decoder knows
        the further fields, such as columns that a query does not use. If it cannot know them, it is not strict.
        Returns False if names were not the reason.
        """
        value = loaded(data)
        if not isinstance(value, dict):
            return False
        further = value.keys() - self._others - {name for name, _ in self._spelled.fields}
        if not further and not self._has_objects:
            return False
        others = self._others.union(
            name for name in further if name.isidentifier() and name.upper() not in self._capitals
        )
        is_strict = self._others < others and len(others) <= _MOST_OTHERS
        if is_strict:
            self._others = others
        self._make_decoder(is_strict=is_strict)
        return True

    def read(self, data: bytes) -> Row | None:
        """The row; None for JSON's null."""
        decode, as_tuple, counts_names = self._way
        try:
            row: Row = as_tuple(decode(data))
            if counts_names and self._may_be_spelled_twice(data):
                return super().read(data)
            if self._unset in row:
                row = self._without_absent(row, data)
            return row if self._convert is None else cast(Row, self._convert(row))
        except self._typed.Absent:
            return self._learn(data)
        except ValueError:
            if self._is_strict and self._let_pass(data):
                return self.read(data)
            return super().read(data)

    def read_all(self, data: list[bytes | None]) -> list[Row | None]:
        """The row of each; all in the typed way, or one by one."""
        if None in data:
            return super().read_all(data)
        decode, as_tuple, counts_names = self._way
        unset, complete = self._unset, self._without_absent
        try:
            rows = [as_tuple(decode(one)) for one in data]
            if counts_names and any(map(self._may_be_spelled_twice, cast(list[bytes], data))):
                return super().read_all(data)
            for place, row in enumerate(rows):
                if unset in row:
                    rows[place] = complete(row, cast(bytes, data[place]))
            return rows if self._convert is None else list(map(self._convert, rows))
        except ValueError:
            return super().read_all(data)

    def _without_absent(self, row: Row, data: bytes) -> Row:
        """The row with nulls for absent fields. Raises `Absent` if the record may have one in another case."""
        folded, made = _in_capitals(data), list(row)
        for place, value in enumerate(row):
            if value is self._unset:
                if self._names[place] in folded:
                    raise self._typed.Absent
                made[place] = None
        if b"\\u" in data:
            raise self._typed.Absent
        return tuple(made)

    def _may_be_spelled_twice(self, data: bytes) -> bool:
        """Whether a name that the decoder expects in another spelling may be in the record in a further one."""
        expected = self._respelled
        # In one pass: a search for each name would take as many passes as a STRUCT has fields.
        for text in _STRING.findall(data):
            if expected.get(_in_capitals(text), text) != text:
                return True
        # One character is found much faster than two.
        return b"\\" in data and _ESCAPED_NAME.search(data) is not None

    def _learn(self, data: bytes) -> Row | None:
        """Read leniently, and remember the names of fields."""
        value = loaded(data)
        if self._spellings:
            spelled = _spelled(self._type, value)
            if spelled != self._spelled:
                self._spellings -= 1
                self._spell(spelled)
        return cast(Row | None, self._coerce(value))


def _in_capitals(data: bytes) -> bytes:
    return data.upper() if data.isascii() else data.decode().upper().encode()


def _respelled(type_: SqlType, spelled: SqlType) -> Iterator[tuple[str, str]]:
    """The names of fields, with what they are in `spelled`, where that differs."""
    match type_, spelled:
        case Struct(fields), Struct(others):
            for (name, one), (found, other) in zip(fields, others, strict=True):
                if name != found:
                    yield name, found
                yield from _respelled(one, other)
        case (Array(one), Array(other)) | (Map(_, one), Map(_, other)):
            yield from _respelled(one, other)


def _spelled(type_: SqlType, value: Any) -> Any:
    """The type with the names of fields as a value has them."""
    match type_:
        case Struct(fields) if isinstance(value, dict):
            spelled = tuple(_spelled_field(name, one, value) for name, one in fields)
            # Two columns may read one field, which a class cannot.
            return Struct(spelled) if len(dict(spelled)) == len(spelled) else type_
        case Array(element) if isinstance(value, list) and value:
            return Array(_spelled(element, value[0]))
        case Map(key, member) if isinstance(value, dict) and value:
            return Map(key, _spelled(member, next(iter(value.values()))))
        case _:
            return type_


def _spelled_field(name: str, type_: SqlType, value: dict[str, Any]) -> tuple[str, SqlType]:
    found: str | None = name
    # JSON may write a name that is no identifier with escapes, so that its spellings could not be counted.
    if name not in value:
        found = CAPITALS.find(value, name) if name.isidentifier() else None
    return (name, type_) if found is None else (found, _spelled(type_, value[found]))
