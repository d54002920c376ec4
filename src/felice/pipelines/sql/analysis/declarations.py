"""CREATE STREAM and CREATE TABLE over a topic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from felice.pipelines.sql.analysis.properties import DEFAULT_SETTINGS, FORMAT_OF, WithClause
from felice.pipelines.sql.catalogue import HEADERS, KEY, STREAM, TABLE, VALUE, ColumnInfo, SourceInfo
from felice.pipelines.sql.rows import FormatDescription, check, features_of
from felice.pipelines.sql.syntax.errors import Position, SqlError
from felice.pipelines.sql.syntax.tree import ColumnDefinition, CreateSource
from felice.pipelines.sql.types import (
    BIGINT,
    BYTES,
    INTEGER,
    STRING,
    TIMESTAMP,
    Array,
    SqlType,
    Struct,
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
        raise SqlError("WITH lacks the property KAFKA_TOPIC", given.position)
    formats = {
        part: clause.format(part, _format_name(given, part, clause, settings)) for part in ("KEY", "VALUE")
    }
    columns = _columns(given, users, topic, formats, around)
    partitions = around.partitions(topic, clause.get("PARTITIONS"))
    if partitions is None:
        raise SqlError(
            f"there is no topic {topic}: name the number of PARTITIONS in WITH, and it is made",
            given.position,
        )
    found = SourceInfo(
        given.kind,
        given.name,
        columns,
        topic,
        formats["KEY"],
        formats["VALUE"],
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
            f"the property {part}_FORMAT is missing: name it in WITH, or set {FORMAT_OF[part]}",
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
    declared = tuple(_column(given, one, users) for one in given.columns or ())
    roles = {one.role for one in declared}
    found = list(declared)
    has_id = formats["KEY"].schema_id is not None
    if KEY not in roles and _is_inferred(formats["KEY"]) and (given.columns is None or has_id):
        found = [*_inferred(given, topic, formats["KEY"], around, is_key=True), *found]
    if VALUE not in roles:
        if not _is_inferred(formats["VALUE"]):
            raise SqlError(
                f"{given.kind} {given.name} has no columns: the format {formats['VALUE'].name} does not support "
                "schema inference, so the statement must declare them",
                given.position,
            )
        found += _inferred(given, topic, formats["VALUE"], around, is_key=False)
    return tuple(found)


def _is_inferred(given: FormatDescription) -> bool:
    return features_of(given).infers


def _inferred(
    given: CreateSource, topic: str, format_: FormatDescription, around: Surroundings, *, is_key: bool
) -> list[ColumnInfo]:
    try:
        found = around.schema(topic, is_key, format_)
    except ValueError as error:
        raise SqlError(f"the schema of topic {topic} cannot be used: {error}", given.position) from None
    if found is None:
        if is_key:
            return []
        raise SqlError(
            f"there is no schema for the values of topic {topic} in the registry: declare the columns, or register "
            f"the schema as {topic}-value",
            given.position,
        )
    role = KEY if is_key else VALUE
    return [ColumnInfo(name, type_, role) for name, type_ in found]


def _column(given: CreateSource, column: ColumnDefinition, users: Mapping[str, SqlType]) -> ColumnInfo:
    type_ = resolved(column.type, users)
    if column.name in PSEUDO:
        raise SqlError(
            f"'{column.name}' is a reserved column name. You cannot use it as a name for a column",
            column.position,
        )
    if column.role in ("HEADERS", "HEADER"):
        wanted = ALL_HEADERS if column.role == "HEADERS" else BYTES
        told = column.role if column.header is None else f"HEADER('{column.header}')"
        if type_ != wanted:
            raise SqlError(
                f"Invalid type for {told} column: expected {text_of(wanted)}, got {text_of(type_)}",
                column.position,
            )
        return ColumnInfo(column.name, type_, HEADERS, column.header)
    if column.role == "PRIMARY KEY" and given.kind == STREAM:
        raise SqlError(
            f"column {column.name} is a PRIMARY KEY, which streams do not have: use KEY", column.position
        )
    if column.role == "KEY" and given.kind == TABLE:
        raise SqlError(
            f"column {column.name} is a KEY, which tables do not have: use PRIMARY KEY", column.position
        )
    return ColumnInfo(column.name, type_, VALUE if column.role is None else KEY)


def _check(given: CreateSource, clause: WithClause, found: SourceInfo) -> None:
    names = [one.name for one in found.columns]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise SqlError(f"{given.kind} {given.name} has two columns {twice}", given.position)
    keys = found.of_role(KEY)
    if given.kind == TABLE and not keys:
        raise SqlError(
            f"Tables require a PRIMARY KEY: declare a column of {given.name} as `name type PRIMARY KEY`",
            given.position,
        )
    if not found.of_role(VALUE):
        raise SqlError(f"{given.kind} {given.name} has no columns of values", given.position)
    headers = found.of_role(HEADERS)
    if len(headers) > 1 and (any(one.header is None for one in headers)):
        raise SqlError(
            "Schema already contains a HEADERS column: it has all headers, and no other column has some",
            given.position,
        )
    keyed = [one.header for one in headers]
    if twice := next((one for one in keyed if keyed.count(one) > 1), None):
        raise SqlError(f"Schema already contains a HEADER('{twice}') column", given.position)
    if found.window is not None and not keys:
        raise SqlError(
            f"Windowed sources require a key column, and {given.kind} {given.name} has none", given.position
        )
    if keys and found.key_format.name == "NONE":
        raise SqlError("the key format NONE holds no key columns", given.position)
    check_formats(found, given)
    check_event_time(found, clause)


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
            raise SqlError(f"the {part} of {found.name}: {error}", position) from None


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
            "The TIMESTAMP column set in the WITH clause does not exist in the schema: "
            f"'{event_time.column}'",
        )
    if event_time.pattern is not None:
        if column.type != STRING:
            raise clause.error(
                "TIMESTAMP_FORMAT",
                "'TIMESTAMP_FORMAT' set in the WITH clause can only be used when the timestamp column is of type "
                f"STRING, and {column.name} is {text_of(column.type)}",
            )
    elif column.type == STRING:
        raise clause.error(
            "TIMESTAMP",
            "A String timestamp field has been specified without also specifying the timestamp_format",
        )
    elif column.type not in (BIGINT, TIMESTAMP):
        raise clause.error(
            "TIMESTAMP",
            f"Timestamp column, `{column.name}`, should be LONG(INT64), TIMESTAMP, or a String with a timestamp_format "
            f"specified, and is {text_of(column.type)}",
        )
