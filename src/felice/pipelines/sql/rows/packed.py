"""MessagePack of rows, for state and repartitions: each value comes back as it was.

    row = an array of the columns' values       DECIMAL a text     STRUCT an array     MAP a map, with keys of any type

Keeps true:  the bytes are the same with msgspec and without it. (Half of a pair of surrogates is written as UTF-8 would
             write it; msgspec refuses that, and the other way takes its place.)
             A row of plain immutable values is its own packed form.
"""

from __future__ import annotations

import decimal
import hashlib
import importlib.util
from collections.abc import Callable
from functools import cached_property
from types import GenericAlias
from typing import Any

from felice.pipelines.sql.rows import message_pack
from felice.pipelines.sql.rows.columns import Columns, Row, RowFormat
from felice.pipelines.sql.types import (
    BOOLEAN,
    BYTES,
    DOUBLE,
    STRING,
    Array,
    Decimal,
    Map,
    Primitive,
    SqlType,
    Struct,
    fields_text,
)
from felice.pipelines.streams.formats import UNWRITABLE

_LONGEST_LAYOUT = 1000
"""The longest text of a layout. A longer text is replaced by its hash, which can be compared but not read."""


def tuples(columns: Columns) -> PackedFormat:
    """The format of rows of these columns."""
    return PackedFormat(columns)


class PackedFormat(RowFormat):
    """Rows in MessagePack."""

    name = "packed rows"

    @property
    def has_names(self) -> bool:
        """The names are not written."""
        return False

    @property
    def layout(self) -> str:
        """The names and types of the columns: rows are read by their order."""
        text = fields_text(self.columns)
        return text if len(text) <= _LONGEST_LAYOUT else hashlib.sha256(text.encode()).hexdigest()

    @cached_property
    def _is_plain(self) -> bool:
        return all(isinstance(type_, Primitive) for _, type_ in self.columns)

    @cached_property
    def _restore(self) -> Callable[[Any], Any]:
        return _restored(Struct(self.columns))

    @cached_property
    def _typed(self) -> tuple[Callable[[Any], bytes], Callable[[bytes], Any]]:
        if importlib.util.find_spec("msgspec") is None:
            return message_pack.packed, lambda data: self._restore(message_pack.unpacked(data))
        import msgspec

        annotation = GenericAlias(tuple, tuple(_annotation(type_) for _, type_ in self.columns))
        return msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder(annotation).decode

    @cached_property
    def _refusals(self) -> tuple[type[Exception], ...]:
        """What `read` raises for half of a pair of surrogates: another error in each version of msgspec."""
        if importlib.util.find_spec("msgspec") is None:
            return (UnicodeDecodeError,)
        import msgspec

        return UnicodeDecodeError, msgspec.DecodeError

    @cached_property
    def write(self) -> Callable[[Row], bytes]:
        """Writes a row."""
        encode = self._typed[0]

        def write(value: Row) -> bytes:
            try:
                return encode(value)
            except UnicodeEncodeError:
                return message_pack.packed(value)

        return write

    @cached_property
    def key_bytes(self) -> Callable[[Row], bytes]:
        """Writes a key. Raises a `FormatError` that names one without bytes."""
        encode = self._typed[0]

        def write(key: Row) -> bytes:
            try:
                return encode(key)
            except UNWRITABLE:
                return RowFormat.key_bytes(self, key)

        return write

    def read(self, data: bytes) -> Any:
        """The row of these bytes."""
        try:
            return self._typed[1](data)
        except self._refusals:
            return self._restore(message_pack.unpacked(data))

    @property
    def plain(self) -> type | None:
        """Tuples, if no value in them can change."""
        return tuple if self._is_plain else None

    @cached_property
    def pack(self) -> Callable[[Row], Any]:
        """Makes the packed form: the row itself if no value in it can change, else its bytes."""
        write = self.write
        return (lambda value: value if type(value) is tuple else write(value)) if self._is_plain else write

    @cached_property
    def unpack(self) -> Callable[[Any], Any]:
        """Makes the row of a packed form."""
        read = self.read
        return lambda packed: packed if type(packed) is tuple else read(packed)

    def encode_all(self, values: list[Row | None]) -> list[bytes | None]:
        """The bytes of each row."""
        try:
            write = self._typed[0]
            return [None if value is None else write(value) for value in values]
        except UnicodeEncodeError:
            return super().encode_all(values)

    def decode_all(self, data: list[bytes | None]) -> list[Any]:
        """The row of each."""
        try:
            read = self._typed[1]
            return [None if one is None else read(one) for one in data]
        except self._refusals:
            return super().decode_all(data)


def _annotation(type_: SqlType) -> Any:
    match type_:
        case Array(element):
            return list[_annotation(element)] | None  # type: ignore[misc]
        case Map(key, member):
            return dict[_annotation(key), _annotation(member)] | None  # type: ignore[misc]
        case Struct(fields):
            return GenericAlias(tuple, tuple(_annotation(one) for _, one in fields)) | None
        case Decimal():
            return decimal.Decimal | None
        case _:
            return _SCALARS.get(type_, int) | None


_SCALARS: dict[SqlType, type] = {BOOLEAN: bool, DOUBLE: float, STRING: str, BYTES: bytes}


def _restored(type_: SqlType) -> Callable[[Any], Any]:
    """What makes values of what MessagePack says without types."""
    make = _made(type_)
    return lambda value: None if value is None else make(value)


def _made(type_: SqlType) -> Callable[[Any], Any]:
    match type_:
        case Array(element):
            one = _restored(element)
            return lambda value: list(map(one, value))
        case Map(key, member):
            name, one = _restored(key), _restored(member)
            return lambda value: {name(key): one(each) for key, each in value}
        case Struct(fields):
            makers = [_restored(one) for _, one in fields]
            return lambda value: tuple(make(one) for make, one in zip(makers, value, strict=True))
        case Decimal():
            return decimal.Decimal
        case _:
            return lambda value: value
