"""Spark's type of a schema, and the values that a format's library and Arrow give each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from felice.dataclass import dataclass
from felice.pipelines.spark.mistakes import QueryError

Convert = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Mapped:
    """A type of a schema as a type of Spark. `read` and `write` convert values that are not None.

    `read` makes of a value of the format's library what pyarrow takes; `write` makes it of what pyarrow gives. None
    means that the values are the same.
    """

    type: DataType
    read: Convert | None = None
    write: Convert | None = None
    nullable: bool = False


def refused(path: str, why: str) -> QueryError:
    """The error for a schema that has no type in Spark. `path` is the place in the schema, empty for the whole."""
    return QueryError(f"the schema{f' at {path}' if path else ''} has no type in Spark: {why}")


def array_of(item: Mapped) -> Mapped:
    """A list."""
    return Mapped(ArrayType(item.type, item.nullable), _each(item.read), _each(item.write))


def map_of(value: Mapped, key: Mapped) -> Mapped:
    """A dict, which is a list of pairs in Arrow."""

    def read(given: Any) -> list[tuple[Any, Any]]:
        return [(_converted(key.read, one), _converted(value.read, other)) for one, other in given.items()]

    def write(given: Any) -> dict[Any, Any]:
        return {_converted(key.write, one): _converted(value.write, other) for one, other in given}

    return Mapped(MapType(key.type, value.type, value.nullable), read, write)


def struct_of(fields: Iterable[tuple[str, Mapped]]) -> Mapped:
    """A dict with these members."""
    members = dict(fields)
    kind = StructType([StructField(name, one.type, one.nullable) for name, one in members.items()])
    return Mapped(
        kind,
        _members({name: one.read for name, one in members.items() if one.read is not None}),
        _members({name: one.write for name, one in members.items() if one.write is not None}),
    )


def _members(converts: dict[str, Convert]) -> Convert | None:
    if not converts:
        return None

    def convert(given: Any) -> dict[str, Any]:
        made = dict(given)
        for name, one in converts.items():
            if (value := made.get(name)) is not None:
                made[name] = one(value)
        return made

    return convert


def _each(convert: Convert | None) -> Convert | None:
    if convert is None:
        return None
    return lambda given: [None if one is None else convert(one) for one in given]


def _converted(convert: Convert | None, value: Any) -> Any:
    return value if convert is None or value is None else convert(value)
