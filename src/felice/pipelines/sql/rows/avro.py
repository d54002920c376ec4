"""AVRO: rows as records, or one column as its bare value, with schemas of a registry.

Keeps true:  data is read with the schema that wrote it, and its fields go to the columns of their names, without regard
             to case; other fields are ignored, and missing ones are null. A field whose type is not the column's is
             refused, but a STRING takes numbers and booleans, and wider types narrower ones.
How:         fastavro reads and writes without the logical types, whose values are numbers and bytes here, too.
"""

from __future__ import annotations

import decimal
import json
from collections.abc import Callable, Mapping
from typing import Any

from felice.pipelines.errors import FormatError
from felice.pipelines.sql.rows.avro_schema import (
    BRANCHES,
    Names,
    Node,
    decimal_type,
    entry_of,
    field_name,
    parsed,
    schema_of,
)
from felice.pipelines.sql.rows.columns import matching
from felice.pipelines.sql.rows.numbers import double_text, fitting
from felice.pipelines.sql.rows.registry import AVRO, RegisteredText
from felice.pipelines.sql.rows.schema_format import SchemaFormat, expect_type
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
    text_of,
)

Convert = Callable[[Any], Any]

_NUMBERS = ("int", "long", "float", "double")
_READ_FROM: dict[SqlType, tuple[str, ...]] = {
    BOOLEAN: ("boolean",),
    INTEGER: ("int",),
    BIGINT: ("int", "long"),
    DOUBLE: ("float", "double"),
    STRING: ("string", "enum", "boolean", *_NUMBERS),
    BYTES: ("bytes", "fixed"),
    DATE: ("int",),
    TIME: ("int",),
    TIMESTAMP: ("int", "long"),
}
_TEXTS: dict[str, Convert] = {
    "boolean": lambda value: "true" if value else "false",
    "int": str,
    "long": str,
    "float": double_text,
    "double": double_text,
}


class AvroFormat(SchemaFormat):
    """Rows in Avro."""

    name = "AVRO"

    @property
    def _type(self) -> SqlType:
        return self.columns[0][1] if self.is_bare else Struct(self.columns)

    def own_schema(self) -> tuple[str, str]:
        """The type and text of the schema of the columns."""
        return AVRO, schema_of(self.columns, self.full_name, self.is_bare)

    def writer_of(self, schema: RegisteredText) -> Callable[[Any], bytes]:
        """The function that writes values with a schema."""
        from felice.client.schema_registry.avro_format import encoded

        expect_type(schema, AVRO)
        root = parsed(schema.text, schema.references)
        plain = _without_logical_types(root).schema
        convert = _writer(root, self._type, Names(root), "")

        def write(value: Any) -> bytes:
            return encoded(convert(value), plain)

        return write

    def reader_of(self, schema: RegisteredText) -> Callable[[bytes], Any]:
        """The function that reads what was written with a schema."""
        from felice.client.schema_registry.avro_format import decoded

        expect_type(schema, AVRO)
        root = parsed(schema.text, schema.references)
        plain = _without_logical_types(root)
        convert = _reader(root, self._type, Names(root), "")

        def read(data: bytes) -> Any:
            try:
                return convert(decoded(data, plain, None))
            except ValueError:
                raise
            except Exception as error:  # fastavro's, and the client's SerializationError
                raise FormatError(str(error)) from None

        return read


def _without_logical_types(schema: Node) -> Any:
    """The schema for fastavro."""
    from felice.client.schema_registry.avro_format import AvroFormat as Texts

    return Texts().parse(json.dumps(_stripped(schema)), [])


def _stripped(node: Node) -> Node:
    if isinstance(node, list):
        return [_stripped(one) for one in node]
    if not isinstance(node, dict):
        return node
    return {
        name: value if name == "default" else _stripped(value)
        for name, value in node.items()
        if name != "logicalType" and not name.startswith("__")
    }


def _nullable(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def _reader(node: Node, type_: SqlType, names: Names, path: str) -> Convert:
    """The function that makes values of a type of what fastavro reads by a node."""
    try:
        found, _ = names.alone(node)
    except ValueError as error:
        return _refusing(f"{path or 'the value'}: {error}")
    convert = _converted(found, type_, names, path)
    if convert is None:
        return _refusing(
            f"{path or 'the value'}: expected {text_of(type_)}, and its schema says {_told(found)}"
        )
    return _nullable(convert)


def _told(node: Node) -> str:
    return "union" if BRANCHES in node else str(node["type"])


def _refusing(reason: str) -> Convert:
    def refuse(value: Any) -> Any:
        raise FormatError(reason)

    return refuse


def _converted(node: Node, type_: SqlType, names: Names, path: str) -> Convert | None:
    kind = node["type"]
    match type_:
        case Decimal():
            written = decimal_type(node)
            return None if written is None else _decimal_reader(written, type_)
        case Array(element) if kind == "array":
            one = _reader(node["items"], element, names, f"{path}[]")
            return lambda values: list(map(one, values))
        case Map():
            return _map_reader(node, type_, names, path)
        case Struct(fields) if kind in ("record", "error"):
            return _struct_reader(node, fields, names, path)
        case _:
            if kind not in _READ_FROM.get(type_, ()):
                return None
            return _TEXTS.get(kind, _same) if type_ == STRING else _same


def _same(value: Any) -> Any:
    return value


def _decimal_reader(written: Decimal, type_: Decimal) -> Convert:
    exponent, fit = -written.scale, fitting(type_)

    def read(value: bytes) -> decimal.Decimal:
        whole = int.from_bytes(value, signed=True)
        return fit(decimal.Decimal((whole < 0, tuple(map(int, str(abs(whole)))), exponent)))

    return read


def _map_reader(node: Node, type_: Map, names: Names, path: str) -> Convert | None:
    if node["type"] == "map":
        key = _reader({"type": "string"}, type_.key, names, f"{path} (a key)")
        one = _reader(node["values"], type_.value, names, f"{path} (a value)")
        return lambda value: {key(name): one(member) for name, member in value.items()}
    entry = entry_of(node, names) if node["type"] == "array" else None
    if entry is None:
        return None
    key, one = (
        _reader(part, part_type, names, f"{path} ({told})")
        for part, part_type, told in zip(entry, (type_.key, type_.value), ("a key", "a value"), strict=True)
    )
    return lambda value: {key(pair["key"]): one(pair["value"]) for pair in value}


def _struct_reader(node: Node, fields: tuple[tuple[str, SqlType], ...], names: Names, path: str) -> Convert:
    given = {field["name"]: field for field in node["fields"]}
    places: list[tuple[str, Convert]] = []
    for name, type_ in fields:
        field = matching(given, field_name(name))
        if field is None:
            places.append(("", lambda value: None))
        else:
            places.append((field["name"], _reader(field["type"], type_, names, f"{path}.{name}".lstrip("."))))
    return lambda value: tuple([convert(value.get(name)) for name, convert in places])


def _writer(node: Node, type_: SqlType, names: Names, path: str) -> Convert:
    """The function that makes what fastavro writes by a node. Raises ValueError if it does not hold the type."""
    found, is_nullable = names.alone(node)
    convert = _unconverted(found, type_, names, path)
    if convert is None:
        raise ValueError(f"{path or 'the value'} is {text_of(type_)}, and the schema says {_told(found)}")
    if is_nullable or not path:
        return _nullable(convert)

    def write(value: Any) -> Any:
        if value is None:
            raise FormatError(f"{path} is null, which the schema does not allow")
        return convert(value)

    return write


def _unconverted(node: Node, type_: SqlType, names: Names, path: str) -> Convert | None:
    kind = node["type"]
    match type_:
        case Decimal():
            to = decimal_type(node)
            return None if to is None else _decimal_writer(to, node.get("size"))
        case Array(element) if kind == "array":
            one = _writer(node["items"], element, names, f"{path}[]")
            return lambda values: list(map(one, values))
        case Map():
            return _map_writer(node, type_, names, path)
        case Struct(fields) if kind in ("record", "error"):
            return _struct_writer(node, fields, names, path)
        case _:
            return _same if kind in _WRITTEN_AS.get(type_, ()) else None


_WRITTEN_AS: dict[SqlType, tuple[str, ...]] = _READ_FROM | {
    INTEGER: ("int", "long"),
    BIGINT: ("long",),
    DOUBLE: ("double", "float"),
    STRING: ("string", "enum"),
    TIMESTAMP: ("long",),
}


def _decimal_writer(to: Decimal, size_bytes: int | None) -> Convert:
    """`size_bytes` is that of a fixed type, or None."""
    fit = fitting(to)

    def write(value: decimal.Decimal) -> bytes:
        sign, digits, _ = fit(value).as_tuple()
        whole = int("".join(map(str, digits))) * (-1 if sign else 1)
        # As BigInteger.toByteArray: the fewest bytes that hold number and sign.
        size = size_bytes or (whole if whole >= 0 else ~whole).bit_length() // 8 + 1
        return whole.to_bytes(size, signed=True)

    return write


def _map_writer(node: Node, type_: Map, names: Names, path: str) -> Convert | None:
    if node["type"] == "map":
        if type_.key != STRING:
            return None
        one = _writer(node["values"], type_.value, names, f"{path} (a value)")
        return lambda value: {name: one(member) for name, member in value.items()}
    entry = entry_of(node, names) if node["type"] == "array" else None
    if entry is None:
        return None
    key = _key_writer(entry[0], type_.key, names, f"{path} (a key)")
    one = _writer(entry[1], type_.value, names, f"{path} (a value)")
    return lambda value: [{"key": key(name), "value": one(member)} for name, member in value.items()]


def _key_writer(node: Node, type_: SqlType, names: Names, path: str) -> Convert:
    """Keys of maps that are numbers or booleans are texts in SQL."""
    of_text = _KEYS_OF_TEXTS.get(names.alone(node)[0]["type"]) if type_ == STRING else None
    if of_text is None:
        return _writer(node, type_, names, path)
    key_type, read = of_text
    write = _writer(node, key_type, names, path)
    return lambda key: write(None if key is None else read(key))


_KEYS_OF_TEXTS: dict[str, tuple[SqlType, Convert]] = {
    "boolean": (BOOLEAN, lambda text: text == "true"),
    "int": (INTEGER, int),
    "long": (BIGINT, int),
}


def _struct_writer(node: Node, fields: tuple[tuple[str, SqlType], ...], names: Names, path: str) -> Convert:
    given = {field["name"]: field for field in node["fields"]}
    places: list[tuple[str, Convert]] = []
    for name, type_ in fields:
        field, place = matching(given, field_name(name)), f"{path}.{name}".lstrip(".")
        if field is None:
            what = "union has no type" if BRANCHES in node else "schema has no field"
            raise ValueError(f"the {what} for {place}")
        places.append((field["name"], _writer(field["type"], type_, names, place)))
    if BRANCHES in node:
        return _union_writer(node[BRANCHES], places, path)
    for name in given.keys() - {name for name, _ in places}:
        if "default" not in given[name] and not names.is_nullable(given[name]["type"]):
            raise ValueError(
                f"Missing default value for required Avro field: [{name}]. This field appears in Avro schema in "
                "Schema Registry"
            )
    return lambda row: {name: write(value) for (name, write), value in zip(places, row, strict=True)}


def _union_writer(branches: Mapping[str, str], places: list[tuple[str, Convert]], path: str) -> Convert:
    """The function that writes the first value that is not null. `branches` has the records of the union's types."""

    def write_one(row: Any) -> Any:
        for (name, write), value in zip(places, row, strict=True):
            if value is not None:
                return branches[name], {name: write(value)}
        raise FormatError(f"{path or 'the value'} is a union, and no field has a value")

    return write_one
