"""JSON of rows by msgspec: decoders for the types of the columns, and an encoder. It is as strict as msgspec.

Keeps true:  a decoder gives the same values as the lenient way, or refuses the record. It refuses what only the lenient
             way reads: texts for numbers, numbers for texts, names in another case.
How:         a STRUCT is decoded into an object with slots, which becomes a tuple. A decoder distinguishes an absent
             field from null, because the record may have the field with its name in another case.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from felice.pipelines.java.texts import DAY_MS
from felice.pipelines.sql.rows.numbers import double_text, fitting
from felice.pipelines.sql.rows.plain import key_text
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
    Array,
    Decimal,
    Map,
    SqlType,
    Struct,
)

Convert = Callable[[Any], Any]


def _whole(bits: int) -> Any:
    return Annotated[int, Meta(ge=-(1 << bits - 1), le=(1 << bits - 1) - 1)]


_SCALARS: dict[SqlType, Any] = {
    BOOLEAN: bool,
    INTEGER: _whole(32),
    BIGINT: _whole(64),
    DOUBLE: float,
    STRING: str,
    BYTES: bytes,
    DATE: _whole(32),
    TIME: Annotated[int, Meta(ge=0, le=DAY_MS)],
    TIMESTAMP: _whole(64),
}
as_tuple = msgspec.structs.astuple
encode = msgspec.json.Encoder(decimal_format="number").encode


class Absent(ValueError):
    """A field is absent, or its name is in another case."""


def decoder(type_: SqlType) -> Callable[[bytes], Any]:
    """The decoder of values of a type. It raises ValueError for what only the lenient way understands."""
    decode, convert = msgspec.json.Decoder(_annotation(type_)).decode, _or_null(_read(type_))
    return decode if convert is None else lambda data: convert(decode(data))


def field_decoder(
    type_: Struct, others: Sequence[str] = (), *, is_strict: bool = False
) -> tuple[Callable[[bytes], Any], Convert | None]:
    """The decoder of the fields of an object, and the function that converts the tuple of fields to the tuple of
    values; None if the two tuples are equal. A decoder that `is_strict` refuses objects with further fields. Only the
    outer object may have the names of `others`, which come after its fields.

    The decoder makes an instance of a class, and `as_tuple` makes the tuple of fields from this instance. A field that
    is absent is `UNSET` in the tuple; the function must not get `UNSET`.
    """
    return msgspec.json.Decoder(_fields(type_, is_strict, others)).decode, _converted(type_)


def _annotation(type_: SqlType, is_strict: bool = False) -> Any:
    match type_:
        case Array(element):
            return list[_annotation(element, is_strict)] | None  # type: ignore[misc]
        case Map(_, member):
            return dict[str, _annotation(member, is_strict)] | None  # type: ignore[misc]
        case Struct():
            return _fields(type_, is_strict) | None
        case Decimal():
            return decimal.Decimal | None
        case _:
            return _SCALARS[type_] | None


def _fields(type_: Struct, is_strict: bool, others: Sequence[str] = ()) -> Any:
    kinds = [(name, _annotation(one, is_strict) | UnsetType) for name, one in type_.fields]
    kinds += [(name, msgspec.Raw) for name in others]
    names = {f"f{number}": name for number, (name, _) in enumerate(kinds)}
    slots = [(slot, kind, UNSET) for slot, (_, kind) in zip(names, kinds, strict=True)]
    return msgspec.defstruct("Fields", slots, rename=names, gc=False, forbid_unknown_fields=is_strict)


def _read(type_: SqlType) -> Convert | None:
    """What makes values of what is decoded; None if they are the same. Neither is null."""
    match type_:
        case Decimal():
            return fitting(type_)
        case Array(element):
            return _each(_or_null(_read(element)))
        case Map(key, member):
            one = _or_null(_read(member))
            if key != STRING:
                return _refuse
            return None if one is None else lambda value: {name: one(each) for name, each in value.items()}
        case Struct():
            return _struct(type_)
        case _:
            return None


def _refuse(value: Any) -> Any:
    raise ValueError("keys of this type are read from texts")


def _each(convert: Convert | None) -> Convert | None:
    return None if convert is None else lambda values: list(map(convert, values))


def _or_null(convert: Convert | None) -> Convert | None:
    return None if convert is None else lambda value: None if value is None else convert(value)


def _struct(type_: Struct) -> Convert:
    convert = _converted(type_)

    def make(value: Any) -> Any:
        row = as_tuple(value)
        if UNSET in row:
            raise Absent
        return row if convert is None else convert(row)

    return make


def _converted(type_: Struct) -> Convert | None:
    converts = [(place, _or_null(_read(one))) for place, (_, one) in enumerate(type_.fields)]
    places = [(place, convert) for place, convert in converts if convert is not None]

    return (lambda row: tuple(_at(row, places))) if places else None


def shaped(type_: SqlType) -> Convert | None:
    """What makes a value that `encode` takes, for a value that is not null; None if it takes the value itself."""
    match type_:
        case Array(element):
            return _each(_or_null(shaped(element)))
        case Map(key, member):
            one, name = _or_null(shaped(member)) or _same, key_text(key)
            return lambda value: {name(key): one(each) for key, each in value.items()}
        case Struct(fields):
            return _object([(name, shaped(one)) for name, one in fields])
        case _:
            return _named if type_ == DOUBLE else None


def _named(value: float) -> float | str:
    """The name of a double that JSON has no number for, as Java writes it: NaN or Infinity, in quotes."""
    return value if value - value == 0 else double_text(value)


def plain_class(fields: tuple[tuple[str, SqlType], ...]) -> type[msgspec.Struct] | None:
    """The class of which `encode` writes objects with these fields; None if a value must be changed before."""
    return None if any(shaped(one) for _, one in fields) else _class_of([name for name, _ in fields])


def object_writer(fields: tuple[tuple[str, SqlType], ...]) -> Callable[[tuple[Any, ...]], bytes]:
    """The function that writes rows as objects. It raises ValueError for half of a pair of surrogates."""
    make = _object([(name, None if one == DOUBLE else shaped(one)) for name, one in fields])
    doubles = [place for place, (_, one) in enumerate(fields) if one == DOUBLE]
    if not doubles:
        return lambda row: encode(make(row))
    careful = _object([(name, shaped(one)) for name, one in fields])

    def write(row: tuple[Any, ...]) -> bytes:
        # To look at each double is faster than to name those that need it in each row.
        for place in doubles:
            value = row[place]
            if value is not None and value - value != 0:
                return encode(careful(row))
        return encode(make(row))

    return write


def _object(fields: Sequence[tuple[str, Convert | None]]) -> Convert:
    """What makes of a tuple what is written as an object: msgspec writes its classes faster than dicts."""
    kind = _class_of([name for name, _ in fields])
    shapes = [(place, _or_null(shape)) for place, (_, shape) in enumerate(fields)]
    places = [(place, shape) for place, shape in shapes if shape is not None]
    return (lambda row: kind(*_at(row, places))) if places else (lambda row: kind(*row))


def _class_of(names: Sequence[str]) -> type[msgspec.Struct]:
    slots = {f"f{number}": name for number, name in enumerate(names)}
    return msgspec.defstruct("Fields", [(slot, Any) for slot in slots], rename=slots, gc=False)


def _at(row: tuple[Any, ...], places: list[tuple[int, Convert]]) -> list[Any]:
    made = list(row)
    for place, convert in places:
        made[place] = convert(made[place])
    return made


def _same(value: Any) -> Any:
    return value
