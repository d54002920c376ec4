"""CREATE STREAM and CREATE TABLE over a topic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from felice.pipelines.sql.analysis.properties import DEFAULT_SETTINGS, FORMAT_OF, WithClause, with_wrapping
from felice.pipelines.sql.catalogue import HEADERS, KEY, STREAM, TABLE, VALUE, ColumnInfo, SourceInfo
from felice.pipelines.sql.rows import FormatDescription, check, features_of
from felice.pipelines.sql.syntax.errors import Position, SqlError
from felice.pipelines.sql.syntax.tree import ColumnDefinition, CreateSource
from felice.pipelines.sql.syntax.writer import quoted
from felice.pipelines.sql.types import (
    BIGINT,
    BYTES,
    INTEGER,
    STRING,
    TIMESTAMP,
    Array,
    SqlType,
    Struct,
    first_repeated,
    resolved,
    text_of,
)

ALL_HEADERS = Array(Struct((("KEY", STRING), ("VALUE", BYTES))))
"""The type of a column HEADERS."""
PSEUDO: Mapping[str, SqlType] = {
    "ROWTIME": BIGINT,
    "ROWPARTITION": INTEGER,
    "ROWOFFSET": BIGINT,
    "WINDOWSTART": BIGINT,
    "WINDOWEND": BIGINT,
}
"""Columns that each record has, or each record of a windowed source, with their types."""

Columns = tuple[tuple[str, SqlType], ...]


class Surroundings(Protocol):
    """What an analysis asks brokers and registries for."""

    def partitions(self, topic: str, wanted: int | None) -> int | None:
        """How many partitions a topic has, or will have if it is made with the wanted number; None if there is no such
        topic, and no number is wanted.
        """

    def schema(self, topic: str, is_key: bool, given: FormatDescription) -> Columns | None:
        """The columns of the registered schema of a topic's keys or values: the schema with the id of the format, or
        else the newest; None if there is none. Raises ValueError for one that has no columns.
        """


def source_of(
    given: CreateSource, users: Mapping[str, SqlType], settings: Mapping[str, str], around: Surroundings
) -> SourceInfo:
    """The stream or table of a statement. Raises `SqlError`."""
    clause = WithClause.of(given.properties)
    topic = clause.get("KAFKA_TOPIC")
    if topic is None:
        raise SqlError(
            'Missing required property "KAFKA_TOPIC" which has no default value. Name the topic in WITH',
            given.position,
        )
    formats = {
        part: clause.format(part, _format_name(given, part, clause, settings), given.name)
        for part in ("KEY", "VALUE")
    }
    columns = _columns(given, users, topic, formats, around)
    partitions = around.partitions(topic, clause.get("PARTITIONS"))
    if partitions is None:
        raise SqlError(
            f"there is no topic {topic}: name the number of PARTITIONS in WITH, and it is made",
            given.position,
        )
    values = tuple((one.name, one.type) for one in columns if one.role == VALUE)
    found = SourceInfo(
        given.kind,
        given.name,
        columns,
        topic,
        formats["KEY"],
        with_wrapping(formats["VALUE"], values, settings),
        partitions,
        clause.get("REPLICAS", 1),
        clause.window(),
        clause.event_time(),
        clause.topic_config(),
        given.is_read_only,
    )
    _check(given, clause, found)
    return found


def _format_name(given: CreateSource, part: str, clause: WithClause, settings: Mapping[str, str]) -> str:
    name = clause.format_name(part) or (DEFAULT_SETTINGS | dict(settings)).get(FORMAT_OF[part], "").upper()
    if not name:
        raise SqlError(
            f"Statement is missing the '{part}_FORMAT' property from the WITH clause. Either provide one or set a "
            f"default via the '{FORMAT_OF[part]}' config.",
            given.position,
        )
    check_known(name, given.position)
    return name


def check_known(name: str, position: Position) -> None:
    """Raise `SqlError` for a format that does not exist."""
    try:
        features_of(FormatDescription(name))
    except ValueError as error:
        raise SqlError(str(error), position) from None


def _columns(
    given: CreateSource,
    users: Mapping[str, SqlType],
    topic: str,
    formats: Mapping[str, FormatDescription],
    around: Surroundings,
) -> tuple[ColumnInfo, ...]:
    found = [_column(given, one, users) for one in given.columns or ()]
    roles = {one.role for one in found}
    if _is_inferred(given, "KEY", formats["KEY"], KEY in roles):
        found = [*_inferred(given, topic, formats["KEY"], around, is_key=True), *found]
    if _is_inferred(given, "VALUE", formats["VALUE"], VALUE in roles):
        found += _inferred(given, topic, formats["VALUE"], around, is_key=False)
    if not found:
        raise SqlError(
            f"The statement does not define any columns. The format {formats['VALUE'].name} does not support "
            f"schema inference, so the statement must declare those of {given.kind.lower()} {given.name}",
            given.position,
        )
    return tuple(found)


def _is_inferred(given: CreateSource, part: str, format_: FormatDescription, is_declared: bool) -> bool:
    """Whether the columns of the "KEY" or "VALUE" are those of a schema in the registry."""
    infers = features_of(format_).infers
    if format_.schema_id is None:
        return infers and not is_declared
    check_infers(format_, part, given.position)
    if is_declared:
        raise SqlError(
            f"Table elements and {part}_SCHEMA_ID cannot both exist for create statement.", given.position
        )
    return True


def check_infers(format_: FormatDescription, part: str, position: Position) -> None:
    """Raise `SqlError` for the id of a schema beside a format that has no schemas."""
    if not features_of(format_).infers:
        raise SqlError(
            f"{part}_FORMAT should support schema inference when {part}_SCHEMA_ID is provided. Current format is "
            f"{format_.name}.",
            position,
        )


def _inferred(
    given: CreateSource, topic: str, format_: FormatDescription, around: Surroundings, *, is_key: bool
) -> list[ColumnInfo]:
    try:
        found = around.schema(topic, is_key, format_)
    except ValueError as error:
        raise SqlError(f"the schema of topic {topic} cannot be used: {error}", given.position) from None
    if found is None:
        part = "keys" if is_key else "values"
        raise SqlError(
            f"Schema for message {part} on topic '{topic}' does not exist in the Schema Registry. "
            f"Subject: {topic}-{'key' if is_key else 'value'}. Declare the columns, or register the schema",
            given.position,
        )
    role = KEY if is_key else VALUE
    return [ColumnInfo(name, type_, role) for name, type_ in found]


def _column(given: CreateSource, column: ColumnDefinition, users: Mapping[str, SqlType]) -> ColumnInfo:
    type_ = resolved(column.type, users)
    if column.name in PSEUDO:
        raise SqlError(
            f"'{column.name}' is a reserved column name. You cannot use it as a name for a column.",
            column.position,
        )
    if column.role in ("HEADERS", "HEADER"):
        wanted = ALL_HEADERS if column.role == "HEADERS" else BYTES
        if type_ != wanted:
            raise SqlError(
                f"Invalid type for {_role_text(column)} column: expected {text_of(wanted)}, got {text_of(type_)}",
                column.position,
            )
        return ColumnInfo(column.name, type_, HEADERS, column.header)
    if column.role == "PRIMARY KEY" and given.kind == STREAM:
        raise SqlError(
            f"Column {quoted(column.name)} is a 'PRIMARY KEY' column: please use 'KEY' for streams. "
            "Tables have PRIMARY KEYs, which are unique and NON NULL. Streams have KEYs, which have no uniqueness or "
            "NON NULL constraints.",
            column.position,
        )
    if column.role == "KEY" and given.kind == TABLE:
        raise SqlError(
            f"Column {quoted(column.name)} is a 'KEY' column: please use 'PRIMARY KEY' for tables. "
            "Tables have PRIMARY KEYs, which are unique and NON NULL. Streams have KEYs, which have no uniqueness or "
            "NON NULL constraints.",
            column.position,
        )
    return ColumnInfo(column.name, type_, VALUE if column.role is None else KEY)


def _role_text(column: ColumnDefinition) -> str:
    return "HEADERS" if column.header is None else f"HEADER('{column.header}')"


def _check(given: CreateSource, clause: WithClause, found: SourceInfo) -> None:
    if twice := first_repeated(one.name for one in found.columns):
        raise SqlError(f"Duplicate column names: {twice}", given.position)
    keys = found.of_role(KEY)
    if given.kind == TABLE and not keys:
        raise SqlError(
            "Tables require a PRIMARY KEY. Please define the PRIMARY KEY. Use a partial schema to define the primary "
            f"key and still load the value columns from the Schema Registry, for example: CREATE TABLE {given.name} "
            "(MY_PRIMARY_KEY INT PRIMARY KEY) WITH (...);",
            given.position,
        )
    headers = found.of_role(HEADERS)
    if len(headers) > 1 and (any(one.header is None for one in headers)):
        raise SqlError("Schema already contains a HEADERS column.", given.position)
    if twice := first_repeated(one.header for one in headers if one.header is not None):
        raise SqlError(f"Schema already contains a HEADER('{twice}') column.", given.position)
    if found.window is not None and not keys:
        raise SqlError(f"Windowed sources require a key column. Declare one in {given.name}", given.position)
    check_formats(found, given)
    check_event_time(found, clause)
    check_retention(found, clause)


def check_formats(found: SourceInfo, given: object) -> None:
    """Raise `SqlError` for columns that the formats of keys and values cannot hold."""
    position = getattr(given, "position", None)
    for part, format_, columns in (
        ("key", found.key_format, found.key),
        ("value", found.value_format, found.value),
    ):
        if part == "key" and not columns:
            continue
        try:
            check(format_, columns, is_key=part == "key")
        except ValueError as error:
            raise SqlError(f"{part.capitalize()} format does not support schema. {error}", position) from None


def check_event_time(found: SourceInfo, clause: WithClause) -> None:
    """Raise `SqlError` for a TIMESTAMP that is no column with times."""
    event_time = found.event_time
    if event_time is None:
        return
    column = next(
        (one for one in found.columns if one.name == event_time.column and one.role != HEADERS), None
    )
    if column is None:
        raise clause.error(
            "TIMESTAMP",
            f"The TIMESTAMP column set in the WITH clause does not exist in the schema: '{event_time.column}'",
        )
    if event_time.pattern is not None:
        if column.type != STRING:
            raise clause.error(
                "TIMESTAMP_FORMAT",
                "'TIMESTAMP_FORMAT' set in the WITH clause can only be used when the timestamp column is of type "
                f"STRING. {column.name} is {text_of(column.type)}",
            )
    elif column.type == STRING:
        raise clause.error(
            "TIMESTAMP",
            "A String timestamp field has been specified without also specifying the timestamp_format. Name the format "
            f"of {column.name} as TIMESTAMP_FORMAT",
        )
    elif column.type not in (BIGINT, TIMESTAMP):
        raise clause.error(
            "TIMESTAMP",
            f"Timestamp column, {quoted(column.name)}, should be LONG(INT64), TIMESTAMP, or a String "
            f"with a timestamp_format specified. It is {text_of(column.type)}",
        )


def check_retention(found: SourceInfo, clause: WithClause) -> None:
    """Raise `SqlError` for a limit on the age of a table's rows: its topic keeps the last one of each key."""
    is_compacted = found.is_table and found.window is None and clause.get("CLEANUP_POLICY") is None
    if is_compacted and clause.get("RETENTION_MS") is not None:
        raise clause.error(
            "RETENTION_MS",
            "Invalid config variable in the WITH clause: RETENTION_MS. Non-windowed tables do not support retention.",
        )
