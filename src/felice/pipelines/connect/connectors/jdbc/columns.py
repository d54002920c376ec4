"""Columns as schemas of Connect, and values of columns as values of Connect, both ways.

Keeps true:  a column that may be null has an optional schema. A value that its schema does not allow raises an error:
             nothing is rounded or cut.
"""

from __future__ import annotations

import datetime
import decimal
import json
import uuid
from collections.abc import Callable
from typing import Any
from zoneinfo import ZoneInfo

import sqlalchemy
from sqlalchemy import types
from sqlalchemy.dialects import mysql, postgresql

from felice.dataclass import dataclass
from felice.pipelines.connect.model.errors import ConnectError, DataError
from felice.pipelines.connect.model.schema import (
    BOOLEAN,
    BYTES,
    DATE,
    DECIMAL,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    SCALE,
    STRING,
    TIME,
    TIMESTAMP,
    Schema,
    decimal_of,
    logical,
    simple,
)

UTC = datetime.UTC

_Convert = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class ColumnType:
    """The schema of a column, and how its values become values of the schema."""

    schema: Schema
    convert: _Convert


def column_type(
    kind: types.TypeEngine[Any], dialect: str, zone: ZoneInfo, *, optional: bool, best_fit: bool = False
) -> ColumnType:
    """How a column of SQLAlchemy's type is read. `best_fit`: exact numbers become integers or doubles.

    Raises `ConnectError` for a type without a schema.
    """
    for kinds, make in _READERS:
        if isinstance(kind, kinds):
            found = make(kind, dialect, zone, best_fit)
            return ColumnType(found.schema.made_optional() if optional else found.schema, found.convert)
    raise ConnectError(f"columns of the type {kind} cannot be read")


def _as_is(schema: Schema) -> Callable[..., ColumnType]:
    return lambda kind, dialect, zone, best_fit: ColumnType(schema, lambda value: value)


def _integer(kind: Any, dialect: str, zone: ZoneInfo, best_fit: bool) -> ColumnType:
    if dialect == "sqlite" or isinstance(kind, types.BigInteger):  # SQLite's integers have 64 bits
        name = INT64
    elif isinstance(kind, mysql.TINYINT):
        name = INT16 if kind.unsigned else INT8
    elif isinstance(kind, types.SmallInteger):
        name = INT32 if getattr(kind, "unsigned", False) else INT16
    else:
        name = INT64 if getattr(kind, "unsigned", False) else INT32
    return ColumnType(simple(name), int)


def _float(kind: Any, dialect: str, zone: ZoneInfo, best_fit: bool) -> ColumnType:
    is_small = isinstance(kind, types.REAL) and not isinstance(kind, types.Double) and dialect != "sqlite"
    return ColumnType(simple(FLOAT32 if is_small else FLOAT64), float)


def _numeric(kind: Any, dialect: str, zone: ZoneInfo, best_fit: bool) -> ColumnType:
    scale = kind.scale
    if scale is None:
        # Any number of digits: PostgreSQL's NUMERIC without limits, which Confluent reads with 127 digits, too.
        scale = 127 if kind.precision is None else 0
    if best_fit and kind.precision is not None and kind.precision <= 18:
        return ColumnType(simple(INT64), int) if scale == 0 else ColumnType(simple(FLOAT64), float)
    exact = decimal.Decimal(1).scaleb(-scale)

    def convert(value: Any) -> decimal.Decimal:
        number = value if isinstance(value, decimal.Decimal) else decimal.Decimal(str(value))
        return number if scale == 127 else number.quantize(exact, context=_EXACT)

    return ColumnType(decimal_of(scale), convert)


_EXACT = decimal.Context(prec=1000, traps=[decimal.Inexact, decimal.InvalidOperation])


def _timestamp(kind: Any, dialect: str, zone: ZoneInfo, best_fit: bool) -> ColumnType:
    def convert(value: datetime.datetime) -> datetime.datetime:
        return (value.replace(tzinfo=zone) if value.tzinfo is None else value).astimezone(UTC)

    return ColumnType(logical(TIMESTAMP), convert)


def _time(kind: Any, dialect: str, zone: ZoneInfo, best_fit: bool) -> ColumnType:
    def convert(value: Any) -> datetime.time:
        if isinstance(value, datetime.timedelta):  # MySQL's times are spans
            if not datetime.timedelta(0) <= value < datetime.timedelta(days=1):
                raise DataError(f"a time of day is from 0 h to 24 h, not {value}")
            return (datetime.datetime.min + value).time()
        return value.replace(tzinfo=None) if isinstance(value, datetime.time) else value

    return ColumnType(logical(TIME), convert)


def _text(kind: Any, dialect: str, zone: ZoneInfo, best_fit: bool) -> ColumnType:
    def convert(value: Any) -> str:
        if isinstance(value, str):
            return value
        return str(value) if isinstance(value, uuid.UUID) else json.dumps(value, default=str)

    return ColumnType(simple(STRING), convert)


def _other_text(kind: Any, dialect: str, zone: ZoneInfo, best_fit: bool) -> ColumnType:
    return ColumnType(simple(STRING), str)


_READERS: tuple[tuple[Any, Callable[..., ColumnType]], ...] = (
    (types.Boolean, lambda kind, dialect, zone, best_fit: ColumnType(simple(BOOLEAN), bool)),
    (types.Integer, _integer),
    (types.Float, _float),
    (types.Numeric, _numeric),
    (types.DateTime, _timestamp),
    (types.Date, _as_is(logical(DATE))),
    (types.Time, _time),
    ((types.LargeBinary, types.BINARY, types.VARBINARY), lambda *_: ColumnType(simple(BYTES), bytes)),
    ((types.String, types.Uuid, types.JSON, types.Enum), _text),
    (
        (postgresql.INET, postgresql.CIDR, postgresql.MACADDR, postgresql.INTERVAL, postgresql.MONEY),
        _other_text,
    ),
)


def value_type(value: Any) -> types.TypeEngine[Any] | None:
    """The type of a column of a query by one of its values; None if the value does not tell it."""
    for kind, made in _BY_VALUE:
        if isinstance(value, kind):
            return made(value)
    return None


_BY_VALUE: tuple[tuple[Any, Callable[[Any], types.TypeEngine[Any]]], ...] = (
    (bool, lambda value: types.Boolean()),
    (int, lambda value: types.BigInteger()),
    (float, lambda value: types.Double()),
    (decimal.Decimal, lambda value: types.Numeric()),
    (datetime.datetime, lambda value: types.DateTime()),
    (datetime.date, lambda value: types.Date()),
    ((datetime.time, datetime.timedelta), lambda value: types.Time()),
    ((bytes, memoryview), lambda value: types.LargeBinary()),
    (object, lambda value: types.JSON() if isinstance(value, (dict, list)) else types.Text()),
)

# From Connect to columns


def sql_type(schema: Schema, dialect: str) -> types.TypeEngine[Any]:
    """The type of the column for a schema, when a table is created. Raises `ConnectError`."""
    if schema.name == DECIMAL:
        scale = int(schema.parameter(SCALE) or 0)
        # MySQL has at most 65 digits; other databases take any number of them.
        return types.Numeric(65, scale) if is_mysql(dialect) else types.Numeric()
    made = _TYPES.get(schema.name or "") or _TYPES.get(schema.type)
    if made is None:
        raise ConnectError(f"Unsupported type for column value: {schema.type}")
    return made(dialect)


def is_mysql(dialect: str) -> bool:
    """Whether the database is MySQL or MariaDB."""
    return dialect in ("mysql", "mariadb")


_TYPES: dict[str, Callable[[str], types.TypeEngine[Any]]] = {
    INT8: lambda dialect: mysql.TINYINT() if is_mysql(dialect) else types.SmallInteger(),
    INT16: lambda dialect: types.SmallInteger(),
    INT32: lambda dialect: types.Integer(),
    INT64: lambda dialect: types.BigInteger(),
    FLOAT32: lambda dialect: types.REAL(),
    FLOAT64: lambda dialect: types.Double(),
    BOOLEAN: lambda dialect: types.Boolean(),
    STRING: lambda dialect: types.Text(),
    BYTES: lambda dialect: types.LargeBinary(),
    DATE: lambda dialect: types.Date(),
    TIME: lambda dialect: types.Time(),
    TIMESTAMP: lambda dialect: mysql.DATETIME(fsp=3) if is_mysql(dialect) else types.DateTime(),
}

KEY_TEXT = sqlalchemy.String(255)
"""The type of a text in a primary key of MySQL, which cannot have one of any length."""


def sql_value(schema: Schema | None, value: Any, zone: ZoneInfo) -> Any:
    """The value for the driver. Timestamps are in the database's time zone, without one of their own."""
    if isinstance(value, datetime.datetime):
        return value.astimezone(zone).replace(tzinfo=None)
    if isinstance(value, (dict, list)):
        raise DataError(f"Unsupported type for column value: {type(value).__name__}")
    return value
