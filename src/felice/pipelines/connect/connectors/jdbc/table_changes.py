"""Creates tables, and adds the columns that they lack."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import sqlalchemy
from sqlalchemy import Column, MetaData, Table
from sqlalchemy.engine import Connection, Dialect
from sqlalchemy.schema import CreateColumn

from felice.dataclass import dataclass
from felice.pipelines.connect.connectors.jdbc.columns import KEY_TEXT, is_mysql, sql_type
from felice.pipelines.connect.connectors.jdbc.tables import reflected
from felice.pipelines.connect.model.errors import ConnectError
from felice.pipelines.connect.model.schema import STRING, Schema

_log = logging.getLogger("felice.connect.jdbc")


@dataclass(frozen=True, slots=True)
class Wanted:
    """A column that a record needs."""

    name: str
    schema: Schema
    is_key: bool = False


def created(connection: Connection, name: str, columns: Sequence[Wanted], *, creates: bool) -> Table:
    """The table as it is, or a new one. Raises `ConnectError` if there is none and it may not be created."""
    found = reflected(connection, *_divided(name))
    if found is not None:
        return found
    if not creates:
        raise ConnectError(f"Table {name} is missing and auto-creation is disabled (auto.create=false)")
    schema, table_name = _divided(name)
    table = Table(
        table_name, MetaData(), *(_column(one, connection.dialect) for one in columns), schema=schema
    )
    _log.info("the table %s is created", name)
    table.create(connection, checkfirst=True)
    return table


def added_columns(
    connection: Connection, table: Table, name: str, missing: Sequence[Wanted], *, evolves: bool
) -> Table:
    """The table with the columns that it lacked. Raises `ConnectError`."""
    listed = ", ".join(one.name for one in missing)
    if not evolves:
        raise ConnectError(
            f"Table {name} is missing fields ({listed}) and auto-evolution is disabled (auto.evolve=false)"
        )
    for one in missing:
        if not one.schema.optional and not one.schema.has_default:
            raise ConnectError(
                f"Cannot ALTER table {name} to add missing field {one.name}, as the field is not optional and does not "
                "have a default value"
            )
    quoted = connection.dialect.identifier_preparer.format_table(table)
    for one in missing:
        described = CreateColumn(_column(one, connection.dialect)).compile(dialect=connection.dialect)
        _log.info("the table %s gets the column %s", name, one.name)
        connection.execute(
            sqlalchemy.text(f"ALTER TABLE {quoted} ADD COLUMN {described}".replace(":", "\\:"))
        )
    changed = reflected(connection, *_divided(name))
    assert changed is not None, f"the table {name} is gone"
    return changed


def _divided(name: str) -> tuple[str | None, str]:
    """The schema and the name of a table."""
    schema, dot, table = name.rpartition(".")
    return (schema, table) if dot else (None, name)


def _column(one: Wanted, dialect: Dialect) -> Column[object]:
    kind = sql_type(one.schema, dialect.name)
    if one.is_key and one.schema.type == STRING and is_mysql(dialect.name):
        kind = KEY_TEXT
    is_needed = one.is_key or not (one.schema.optional or one.schema.has_default)
    default = None
    if one.schema.has_default and one.schema.default is not None:
        default = sqlalchemy.literal(one.schema.default, kind)
    return Column(
        one.name,
        kind,
        primary_key=one.is_key,
        nullable=not is_needed,
        autoincrement=False,
        server_default=None if default is None else sqlalchemy.text(_literal(default, dialect)),
    )


def _literal(value: sqlalchemy.BindParameter[object], dialect: Dialect) -> str:
    """The text of a value in SQL."""
    text = str(value.compile(dialect=dialect, compile_kwargs={"literal_binds": True}))
    return text.replace(":", "\\:")
