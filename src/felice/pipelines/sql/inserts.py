"""INSERT INTO … VALUES: one record."""

from __future__ import annotations

import decimal
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from felice.pipelines.sql import types
from felice.pipelines.sql.analysis.declarations import PSEUDO
from felice.pipelines.sql.analysis.names import WINDOW_BOUNDS
from felice.pipelines.sql.catalogue import HEADERS, SourceInfo, near
from felice.pipelines.sql.expressions.arithmetic import fitting
from felice.pipelines.sql.expressions.casts import Conversion, cast, nullable
from felice.pipelines.sql.expressions.code import Code, Names
from felice.pipelines.sql.expressions.coercion import MOMENTS, told
from felice.pipelines.sql.expressions.compiler import Compiler
from felice.pipelines.sql.functions.table import FunctionTable
from felice.pipelines.sql.rows import Columns
from felice.pipelines.sql.syntax.errors import SqlError
from felice.pipelines.sql.syntax.tree import AssertValues, Column, Expression, InsertValues
from felice.pipelines.sql.syntax.writer import expression_text, name_text, quoted
from felice.pipelines.sql.types import BIGINT, DOUBLE, STRING, SqlType, text_of


class Inserted(NamedTuple):
    """A record: key and value as rows. The timestamp is None unless the statement has ROWTIME."""

    key: tuple[Any, ...] | None
    value: tuple[Any, ...] | None
    timestamp: int | None
    bounds: Mapping[str, int | None] = MappingProxyType({})
    """The bounds of the key's window that ASSERT VALUES names: WINDOWSTART, WINDOWEND, both or none."""


class _NoColumns:
    def column(self, given: Column) -> Code:
        raise SqlError(
            f"Unsupported column reference in insert value: {expression_text(given)}; VALUES have no columns",
            given.position,
        )


def inserted(
    given: InsertValues | AssertValues,
    source: SourceInfo,
    functions: FunctionTable,
    users: Mapping[str, SqlType],
) -> Inserted:
    """The record of a statement. Raises `SqlError`."""
    name = name_text(source.name)
    if isinstance(given, InsertValues):
        if source.is_read_only:
            raise SqlError(
                f"Cannot insert values into read-only {source.kind.lower()}: {name}", given.position
            )
        if source.window is not None:
            raise SqlError(
                f"Cannot insert values into windowed stream/table! The keys of {name} have windows",
                given.position,
            )
    values = _by_column(given, source, functions, users)
    keys = [values.get(column) for column, _ in source.key]
    if isinstance(given, InsertValues) and source.is_table and any(one is None for one in keys):
        told_keys = ", ".join(column for column, _ in source.key)
        raise SqlError(
            f"Value for primary key column(s) {told_keys} is required for tables: give one for {name}",
            given.position,
        )
    key = None if all(one is None for one in keys) else tuple(keys)
    value = tuple(values.get(column) for column, _ in source.value)
    bounds = {one: values[one] for one in WINDOW_BOUNDS if one in values}
    return Inserted(key, value, values.get("ROWTIME"), bounds)


def _by_column(
    given: InsertValues | AssertValues,
    source: SourceInfo,
    functions: FunctionTable,
    users: Mapping[str, SqlType],
) -> dict[str, Any]:
    columns = {one.name: one for one in source.columns}
    names: Sequence[str] = given.columns or [one.name for one in source.columns if one.role != HEADERS]
    if len(names) != len(given.values):
        listed = ", ".join(quoted(one) for one in names)
        why = (
            "Expected number columns and values to match"
            if given.columns
            else "Expected a value for each column"
        )
        values = ", ".join(map(expression_text, given.values))
        raise SqlError(f"{why}. Expected Columns: [{listed}]. Got [{values}]", given.position)
    found: dict[str, Any] = {}
    for name, expression in zip(names, given.values, strict=True):
        if name in found:
            raise SqlError(f"column {name} is named twice", given.position)
        if name == "ROWTIME":
            found[name] = _value(expression, BIGINT, name, functions, users)
            if (found[name] or 0) < 0:
                raise SqlError(
                    f"Invalid timestamp: {found[name]}. ROWTIME counts the milliseconds since 1970-01-01, and is not "
                    "negative",
                    expression.position,
                )
            continue
        if name in WINDOW_BOUNDS and isinstance(given, AssertValues) and source.window is not None:
            found[name] = _value(expression, BIGINT, name, functions, users)
            continue
        column = columns.get(name)
        if column is None:
            hint = near(name, columns)
            what = "is a system column" if name in PSEUDO else f"does not exist{hint}"
            raise SqlError(f"Column name {quoted(name)} {what}", given.position)
        if column.role == HEADERS:
            raise SqlError(f"Cannot insert into HEADER columns: {name}", given.position)
        found[name] = _value(expression, column.type, name, functions, users)
    return found


def _fail(what: str, error: BaseException) -> None:
    """A part that cannot be computed is an error of the statement, not null as in a query."""
    raise error


def _value(
    given: Expression, wanted: SqlType, column: str, functions: FunctionTable, users: Mapping[str, SqlType]
) -> Any:
    compiler = Compiler(_NoColumns(), functions, users, Names(_fail))
    code = compiler.code(given)
    if code.type is None:
        return None
    names: dict[str, Any] = dict(compiler.names.constants)
    exec("".join(compiler.names.definitions), names)
    try:
        value = eval(code.text, names)
    except Exception as error:
        raise SqlError(f"{expression_text(given)}: {error}", given.position) from None
    if value is None or code.type == wanted:
        return value
    convert = _conversion(code.type, wanted)
    if convert is None:
        raise SqlError(
            f"Expected type {text_of(wanted)} for field {quoted(column)} but got "
            f"{expression_text(given)}({told(code)})",
            given.position,
        )
    try:
        return convert(value)
    except ValueError as error:
        raise SqlError(f"column {name_text(column)}: {error}", given.position) from None


def _conversion(given: SqlType, wanted: SqlType) -> Conversion | None:
    """The function that makes a value of a literal's type one of a column's type; None if there is none. What is true
    of a column is true of the parts of its type.
    """
    match given, wanted:
        case types.Array(own), types.Array(element):
            return _of_elements(_conversion(own, element))
        case types.Map(own_key, own), types.Map(key, value):
            return _of_entries(_conversion(own_key, key), _conversion(own, value))
        case types.Struct(own_fields), types.Struct(fields):
            return _of_struct(own_fields, fields)
    if isinstance(wanted, types.Decimal) and given != DOUBLE and types.is_number(given):
        return _exact(wanted)
    is_wider = types.common(given, wanted) == wanted
    return cast(given, wanted) if is_wider or (given == STRING and wanted in MOMENTS) else None


def _exact(wanted: types.Decimal) -> Conversion:
    fit = fitting(wanted)

    def exact(value: Any) -> Any:
        found = fit(decimal.Decimal(value))
        if found != value:
            raise ValueError(f"{value} has more digits behind the point than {text_of(wanted)}")
        return found

    return exact


def _of_elements(convert: Conversion | None) -> Conversion | None:
    if convert is None:
        return None
    each = nullable(convert)
    return lambda values: list(map(each, values))


def _of_entries(key: Conversion | None, value: Conversion | None) -> Conversion | None:
    if key is None or value is None:
        return None
    of_key, of_value = nullable(key), nullable(value)
    return lambda entries: {of_key(one): of_value(other) for one, other in entries.items()}


def _of_struct(given: Columns, wanted: Columns) -> Conversion | None:
    """Fields by name: those that are missing become null, and there may be no others."""
    types_wanted = dict(wanted)
    converted: dict[str, tuple[int, Conversion]] = {}
    for place, (name, type_) in enumerate(given):
        convert = _conversion(type_, types_wanted[name]) if name in types_wanted else None
        if convert is None:
            return None
        converted[name] = place, nullable(convert)

    def struct(row: tuple[Any, ...]) -> tuple[Any, ...]:
        parts = (converted.get(name) for name, _ in wanted)
        return tuple(None if part is None else part[1](row[part[0]]) for part in parts)

    return struct
