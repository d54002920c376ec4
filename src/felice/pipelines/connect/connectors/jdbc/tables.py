"""Tables of a database: which there are, and what their columns are."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy
from sqlalchemy import MetaData, Table
from sqlalchemy.engine import Connection

from felice.dataclass import dataclass
from felice.pipelines.connect.connectors.jdbc.columns import is_mysql
from felice.pipelines.connect.model.errors import ConnectError
from felice.pipelines.java.regex import compiled

_OWN_SCHEMAS = frozenset(("information_schema", "pg_catalog", "mysql", "performance_schema", "sys"))


@dataclass(frozen=True, slots=True)
class TableName:
    """A table: its database, schema and name, as far as the kind of database has them."""

    catalog: str
    schema: str
    name: str

    @property
    def full(self) -> str:
        """With dots, as in offsets and lists of tables."""
        return ".".join(part for part in (self.catalog, self.schema, self.name) if part)

    @staticmethod
    def parse(text: str) -> TableName:
        """From the text of a task's configuration. Names may hold dots, so it is divided by another sign."""
        catalog, schema, name = text.split(_SEPARATOR)
        return TableName(catalog, schema, name)

    @property
    def text(self) -> str:
        """For a task's configuration."""
        return _SEPARATOR.join((self.catalog, self.schema, self.name))


_SEPARATOR = "\t"


def tables_of(connection: Connection, options: Mapping[str, Any]) -> list[TableName]:
    """The tables that a source's options choose, in order. Raises `SQLAlchemyError`."""
    inspector = sqlalchemy.inspect(connection)
    dialect = connection.dialect.name
    catalog = connection.engine.url.database or "" if dialect != "sqlite" else ""
    views = "VIEW" in {one.upper() for one in options["table.types"]}
    plain = "TABLE" in {one.upper() for one in options["table.types"]}
    found = []
    for schema in _schemas(inspector, dialect, options["schema.pattern"]):
        names = [
            *(inspector.get_table_names(schema) if plain else ()),
            *(inspector.get_view_names(schema) if views else ()),
        ]
        is_catalog = is_mysql(dialect)
        found += [
            TableName(schema or catalog if is_catalog else catalog, "" if is_catalog else schema or "", name)
            for name in names
        ]
    return [one for one in sorted(found, key=lambda one: one.full) if _is_chosen(one, options)]


def _schemas(inspector: Any, dialect: str, pattern: str | None) -> list[str | None]:
    if dialect == "sqlite":
        return [None]
    names = [name for name in inspector.get_schema_names() if name not in _OWN_SCHEMAS]
    if pattern:
        # As in SQL: % is any text, and _ one character.
        regex = re.escape(pattern).replace("%", ".*").replace("_", ".")
        return [name for name in names if re.fullmatch(regex, name)]
    # Without a pattern MySQL's driver reads the database of the URL, and PostgreSQL's every schema.
    return [inspector.default_schema_name] if is_mysql(dialect) else names


def _is_chosen(table: TableName, options: Mapping[str, Any]) -> bool:
    def is_in(names: Sequence[str]) -> bool:
        return any(one in (table.name, table.full, table.full.partition(".")[2]) for one in names)

    def matches(patterns: Sequence[str]) -> bool:
        return any(compiled(one).fullmatch(text) for one in patterns for text in (table.name, table.full))

    if options["table.whitelist"]:
        return is_in(options["table.whitelist"])
    if options["table.include.list"] and not matches(options["table.include.list"]):
        return False
    return not is_in(options["table.blacklist"]) and not matches(options["table.exclude.list"])


def reflected(connection: Connection, schema: str | None, name: str) -> Table | None:
    """A table with its columns; None if there is none."""
    try:
        return Table(name, MetaData(), schema=schema, autoload_with=connection, resolve_fks=False)
    except sqlalchemy.exc.NoSuchTableError:
        return None


def existing(connection: Connection, table: TableName) -> Table:
    """The table with its columns. Raises `ConnectError` if there is none."""
    schema = table.catalog if is_mysql(connection.dialect.name) else table.schema
    found = reflected(connection, schema or None, table.name)
    if found is None:
        raise ConnectError(f"the table {table.full} does not exist")
    return found


def incrementing_column(table: Table, name: str) -> str:
    """The column that grows with each row: the named one, or else the one that the database numbers itself."""
    if name:
        if name not in table.columns:
            raise ConnectError(f"Incrementing column: {name} does not exist in the table {table.name}")
        return name
    numbered = table.autoincrement_column
    if numbered is None:
        raise ConnectError(
            f"the table {table.name} has no column that the database numbers itself; set incrementing.column.name"
        )
    return numbered.name
