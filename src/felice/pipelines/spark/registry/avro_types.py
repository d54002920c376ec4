"""Avro's types as Spark's. Where Spark's own `from_avro` has a type, the same one is taken.

Leaves out:  recursive types, which Spark does not have, and unions whose branches cannot be told apart in Python.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from felice.pipelines.spark.registry.mapping import Mapped, array_of, map_of, refused, struct_of

_SIMPLE: dict[str, DataType] = {
    "null": NullType(),
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "bytes": BinaryType(),
    "string": StringType(),
}
_LONGEST_DECIMAL = 38


def _milliseconds(time: datetime.time) -> int:
    return _microseconds(time) // 1000


def _microseconds(time: datetime.time) -> int:
    return ((time.hour * 60 + time.minute) * 60 + time.second) * 1_000_000 + time.microsecond


_LOGICAL: dict[tuple[str, str], Mapped] = {
    ("int", "date"): Mapped(DateType()),
    ("int", "time-millis"): Mapped(IntegerType(), _milliseconds),
    ("long", "time-micros"): Mapped(LongType(), _microseconds),
    ("long", "timestamp-millis"): Mapped(TimestampType()),
    ("long", "timestamp-micros"): Mapped(TimestampType()),
    ("long", "local-timestamp-millis"): Mapped(TimestampNTZType()),
    ("long", "local-timestamp-micros"): Mapped(TimestampNTZType()),
    ("string", "uuid"): Mapped(StringType(), str),
}
_PYTHON: dict[type[DataType], type] = {
    BooleanType: bool,
    IntegerType: int,
    LongType: int,
    FloatType: float,
    DoubleType: float,
    BinaryType: bytes,
    StringType: str,
    DateType: datetime.date,
    TimestampType: datetime.datetime,
    TimestampNTZType: datetime.datetime,
    DecimalType: decimal.Decimal,
}


def avro_mapping(schema: Any) -> Mapped:
    """The type of a schema that fastavro has parsed. Raises `QueryError` for one that has none.

    Records in unions are read as pairs of name and record.
    """
    return _Types().of(schema, "")


class _Types:
    def __init__(self) -> None:
        self._named: dict[str, Any] = {}
        self._open: set[str] = set()

    def of(self, schema: Any, path: str) -> Mapped:
        """The type of a schema at a place in the whole."""
        if isinstance(schema, list):
            return self._union(schema, path)
        if isinstance(schema, str):
            if schema in _SIMPLE:
                return Mapped(_SIMPLE[schema], nullable=schema == "null")
            if schema in self._open:
                raise refused(path, f"{schema} contains itself")
            return self.of(self._named[schema], path)
        kind = schema["type"]
        if kind in ("record", "error"):
            return self._record(schema, path)
        if kind == "array":
            return array_of(self.of(schema["items"], f"{path}[]"))
        if kind == "map":
            return map_of(self.of(schema["values"], f"{path}{{}}"), Mapped(StringType()))
        if kind in ("enum", "fixed"):
            self._named[schema["name"]] = schema
        return self._leaf(schema, kind, path)

    def _leaf(self, schema: dict[str, Any], kind: Any, path: str) -> Mapped:
        logical = schema.get("logicalType")
        if logical == "decimal" and kind in ("bytes", "fixed") and "precision" in schema:
            precision, scale = schema["precision"], schema.get("scale", 0)
            if precision > _LONGEST_DECIMAL:
                raise refused(
                    path, f"a decimal of {precision} digits; Spark's have at most {_LONGEST_DECIMAL}"
                )
            return Mapped(DecimalType(precision, scale))
        if (known := _LOGICAL.get((kind, str(logical)))) is not None:
            return known
        if kind == "enum":
            return Mapped(StringType())
        if kind == "fixed":
            return Mapped(BinaryType())
        return self.of(kind, path)

    def _record(self, schema: dict[str, Any], path: str) -> Mapped:
        name = schema["name"]
        self._named[name] = schema
        self._open.add(name)
        fields = [
            (field["name"], self.of(field["type"], f"{path}.{field['name']}".lstrip(".")))
            for field in schema["fields"]
        ]
        self._open.discard(name)
        return struct_of(fields)

    def _union(self, branches: list[Any], path: str) -> Mapped:
        given = [(self._name(branch), self.of(branch, path)) for branch in branches if branch != "null"]
        nullable = len(given) < len(branches)
        if not given:
            return Mapped(NullType(), nullable=True)
        if len(given) == 1:
            name, one = given[0]
            return replace(
                one, read=_unnamed(one.read) if self._is_record(name) else one.read, nullable=nullable
            )
        kinds = {type(one.type) for _, one in given}
        if all(one.read is None for _, one in given):
            if kinds == {IntegerType, LongType}:
                return Mapped(LongType(), nullable=nullable)
            if kinds == {FloatType, DoubleType}:
                return Mapped(DoubleType(), write=lambda value: ("double", value), nullable=nullable)
        return self._members(given, path, nullable)

    def _members(self, given: list[tuple[str, Mapped]], path: str, nullable: bool) -> Mapped:
        """A struct with a member for each branch, of which one is not null, as Spark's `from_avro` has it."""
        names = [f"member{number}" for number in range(len(given))]
        records = {name: number for number, (name, _) in enumerate(given) if self._is_record(name)}
        kinds: dict[type, int] = {}
        for number, (name, one) in enumerate(given):
            if name in records:
                continue
            kind = _PYTHON.get(type(one.type)) or (dict if name == "map" else list)
            if kind in kinds:
                raise refused(
                    path, f"the branches {given[kinds[kind]][0]} and {name} of a union cannot be told apart"
                )
            kinds[kind] = number

        def read(value: Any) -> dict[str, Any]:
            if isinstance(value, tuple):
                number, value = records[value[0]], value[1]
            else:
                number = kinds[type(value)]
            convert = given[number][1].read
            return {names[number]: value if convert is None else convert(value)}

        def write(value: dict[str, Any]) -> Any:
            for number, member in enumerate(names):
                if (found := value.get(member)) is not None:
                    convert = given[number][1].write
                    return given[number][0], found if convert is None else convert(found)
            return None

        fields = [StructField(member, one.type, True) for member, (_, one) in zip(names, given, strict=True)]
        return Mapped(StructType(fields), read, write, nullable)

    def _name(self, branch: Any) -> str:
        """A branch's name: that of a named type, otherwise the kind."""
        if isinstance(branch, str):
            return branch
        name: str = branch.get("name") or branch["type"]
        return name

    def _is_record(self, name: str) -> bool:
        return self._named.get(name, {}).get("type") in ("record", "error")


def _unnamed(read: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
    """Of a record in a union, which comes as its name and itself."""
    if read is None:
        return lambda pair: pair[1]
    return lambda pair: read(pair[1])
