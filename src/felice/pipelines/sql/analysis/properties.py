"""The WITH clause of CREATE STREAM and CREATE TABLE."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from felice.dataclass import dataclass
from felice.pipelines.java.date_formats import date_format
from felice.pipelines.sql.catalogue import HOPPING, SESSION, TUMBLING, EventTime, WindowInfo, near
from felice.pipelines.sql.rows import Columns, FormatDescription, features_of, key_schema_name
from felice.pipelines.sql.syntax.cursor import Cursor
from felice.pipelines.sql.syntax.errors import SqlError
from felice.pipelines.sql.syntax.tokens import Kind
from felice.pipelines.sql.syntax.tree import Literal, Properties

T = TypeVar("T")
_TEXTS = (
    "KAFKA_TOPIC",
    "FORMAT",
    "KEY_FORMAT",
    "VALUE_FORMAT",
    "KEY_DELIMITER",
    "VALUE_DELIMITER",
    "TIMESTAMP",
    "TIMESTAMP_FORMAT",
    "WINDOW_TYPE",
    "WINDOW_SIZE",
    "KEY_SCHEMA_FULL_NAME",
    "VALUE_SCHEMA_FULL_NAME",
    "VALUE_AVRO_SCHEMA_FULL_NAME",
    "KEY_PROTOBUF_NULLABLE_REPRESENTATION",
    "VALUE_PROTOBUF_NULLABLE_REPRESENTATION",
    "CLEANUP_POLICY",
)
_NUMBERS = ("PARTITIONS", "REPLICAS", "RETENTION_MS", "KEY_SCHEMA_ID", "VALUE_SCHEMA_ID")
_FLAGS = ("WRAP_SINGLE_VALUE",)
_KNOWN = (*_TEXTS, *_NUMBERS, *_FLAGS)
_OF_SOURCES_ONLY = ("WINDOW_TYPE", "WINDOW_SIZE")
FORMAT_OF = {"KEY": "ksql.persistence.default.format.key", "VALUE": "ksql.persistence.default.format.value"}
"""The settings that name the formats where a statement does not."""
WRAPPING = "ksql.persistence.wrap.single.values"
"""The setting that says whether a single column of values is written with its name, where a statement does not."""
TOPIC_PREFIX = "ksql.output.topic.name.prefix"
"""The setting with the prefix for the topic's name, used if a statement does not name its topic."""
OF_CATALOGUE = (*FORMAT_OF.values(), WRAPPING, TOPIC_PREFIX)
"""The settings that decide what a stream or table is."""
DEFAULT_SETTINGS = {FORMAT_OF["KEY"]: "KAFKA"}
START = "auto.offset.reset"
"""The setting that says where queries begin to read."""
STARTS = ("earliest", "latest")


def with_wrapping(
    given: FormatDescription, columns: Columns, settings: Mapping[str, str]
) -> FormatDescription:
    """The format of values, wrapped as the settings say if the statement does not."""
    wanted = settings.get(WRAPPING)
    if wanted is None or given.is_wrapped is not None or len(columns) != 1:
        return given
    return replace(given, is_wrapped=wanted.lower() == "true") if features_of(given).has_choice else given


@dataclass(frozen=True, slots=True)
class WithClause:
    """The properties of a statement, checked one by one."""

    given: Mapping[str, Any]
    literals: Mapping[str, Literal]

    @classmethod
    def of(cls, properties: Properties, *, of_query: bool = False) -> WithClause:
        """The clause. Raises `SqlError` for a property that is not known or has a wrong value."""
        given: dict[str, Any] = {}
        for written, literal in properties:
            name = written.upper()
            allowed = [one for one in _KNOWN if not of_query or one not in _OF_SOURCES_ONLY]
            if name not in allowed:
                raise SqlError(
                    f"Invalid config variable(s) in the WITH clause: {name}{near(name, allowed)}",
                    literal.position,
                )
            if name in given:
                raise SqlError(f"WITH has the property {name} twice", literal.position)
            given[name] = _checked(name, literal)
        literals = {name.upper(): literal for name, literal in properties}
        found = cls(given, literals)
        for name in ("KEY_FORMAT", "VALUE_FORMAT"):
            if "FORMAT" in given and name in given:
                raise found.error(
                    "FORMAT",
                    f"Cannot supply both '{name}' and 'FORMAT' properties, as 'FORMAT' sets both key and value "
                    "formats. Either use just 'FORMAT', or use 'KEY_FORMAT' and 'VALUE_FORMAT'.",
                )
        return found

    def error(self, name: str, reason: str) -> SqlError:
        """An error at a property."""
        return SqlError(reason, self.literals[name].position)

    def format_name(self, part: str) -> str | None:
        """The format of the "KEY" or the "VALUE"; None if the clause does not name it."""
        found = self.given.get(f"{part}_FORMAT", self.given.get("FORMAT"))
        return None if found is None else str(found).upper()

    def format(
        self, part: str, name: str, owner: str, like: FormatDescription | None = None
    ) -> FormatDescription:
        """The description of the "KEY" or the "VALUE" of `owner` in a format. What the clause leaves out is as in
        `like`.
        """
        same = like if like is not None and like.name == name else None
        delimiter = self.given.get(f"{part}_DELIMITER", same.delimiter if same else None)
        wrapped = self.given.get("WRAP_SINGLE_VALUE") if part == "VALUE" else None
        legacy = self.given.get("VALUE_AVRO_SCHEMA_FULL_NAME") if part == "VALUE" else None
        full_name = self.given.get(f"{part}_SCHEMA_FULL_NAME", legacy)
        if full_name is None and same is not None and name == "PROTOBUF":
            full_name = same.full_name
        if full_name is None and part == "KEY" and name == "AVRO":
            full_name = key_schema_name(owner)
        nullable = self.given.get(f"{part}_PROTOBUF_NULLABLE_REPRESENTATION")
        return FormatDescription(
            name,
            delimiter=delimiter,
            is_wrapped=wrapped,
            full_name=full_name,
            schema_id=self.given.get(f"{part}_SCHEMA_ID"),
            nullable=str(nullable).upper() if nullable else (same.nullable if same else None),
        )

    def window(self) -> WindowInfo | None:
        """The windows of a windowed topic; None for others."""
        kind, size = self.given.get("WINDOW_TYPE"), self.given.get("WINDOW_SIZE")
        if kind is None:
            if size is not None:
                raise self.error("WINDOW_SIZE", "WINDOW_SIZE needs WINDOW_TYPE, such as 'TUMBLING'")
            return None
        kind = kind.upper()
        if kind not in (TUMBLING, HOPPING, SESSION):
            raise self.error(
                "WINDOW_TYPE",
                f"Error in WITH clause property 'WINDOW_TYPE': Unknown window type: '{kind}'. Invalid value for "
                "property WINDOW_TYPE: String must be one of: SESSION, HOPPING, TUMBLING",
            )
        if kind == SESSION:
            if size is not None:
                raise self.error("WINDOW_SIZE", "'WINDOW_SIZE' should not be set for SESSION windows.")
            return WindowInfo(kind)
        if size is None:
            raise self.error(
                "WINDOW_TYPE",
                f"{kind} windows require 'WINDOW_SIZE' to be provided in the WITH clause. "
                "For example: 'WINDOW_SIZE'='10 SECONDS'",
            )
        return WindowInfo(kind, self._duration_ms("WINDOW_SIZE", size))

    def _duration_ms(self, name: str, text: str) -> int:
        found = _whole(text, Cursor.duration)
        if found is not None and found.ms > 0:
            return found.ms
        raise self.error(
            name,
            f"Error in WITH clause property '{name}': Invalid duration: '{text}'. Example valid value: '10 SECONDS'",
        )

    def event_time(self) -> EventTime | None:
        """The column that has the time; None if it is that of the record."""
        column, pattern = self.given.get("TIMESTAMP"), self.given.get("TIMESTAMP_FORMAT")
        if column is None:
            if pattern is not None:
                raise self.error("TIMESTAMP_FORMAT", "TIMESTAMP_FORMAT needs TIMESTAMP")
            return None
        if pattern is not None:
            try:
                date_format(pattern)
            except ValueError as error:
                raise self.error(
                    "TIMESTAMP_FORMAT",
                    f"Invalid datetime format for config: TIMESTAMP_FORMAT, reason: {error}",
                ) from None
        name = _whole(column, Cursor.name)
        if name is None:
            raise self.error("TIMESTAMP", f"TIMESTAMP must be the name of a column, and is {column!r}")
        return EventTime(name, pattern)

    def topic_config(self) -> tuple[tuple[str, str], ...]:
        """The options of a topic that is created, as brokers call them."""
        options = (("RETENTION_MS", "retention.ms"), ("CLEANUP_POLICY", "cleanup.policy"))
        return tuple(
            (option, str(self.given[name]).lower()) for name, option in options if name in self.given
        )

    def get(self, name: str, default: Any = None) -> Any:
        """A property's value."""
        return self.given.get(name, default)


def _whole(text: str, parse: Callable[[Cursor], T]) -> T | None:
    """What a text is as a whole; None if it is something else."""
    try:
        cursor = Cursor(text)
        found = parse(cursor)
    except SqlError:
        return None
    return found if cursor.next.kind is Kind.END else None


def _checked(name: str, literal: Literal) -> Any:
    value = literal.value
    if name in _NUMBERS:
        number = int(value) if isinstance(value, str) and value.strip().lstrip("-").isdigit() else value
        if type(number) is not int:
            raise SqlError(f"{name} must be a whole number, and is {value!r}", literal.position)
        if name in ("PARTITIONS", "REPLICAS") and number < 1:
            raise SqlError(f"{name} must be at least 1, and is {number}", literal.position)
        return number
    if name in _FLAGS:
        if isinstance(value, str) and value.lower() in ("true", "false"):
            return value.lower() == "true"
        if type(value) is not bool:
            raise SqlError(f"{name} must be true or false, and is {value!r}", literal.position)
        return value
    if not isinstance(value, str):
        raise SqlError(f"{name} must be a text in single quotes, and is {value!r}", literal.position)
    if name == "KAFKA_TOPIC" and not value:
        raise SqlError("KAFKA_TOPIC must be the name of a topic, and is empty", literal.position)
    return value
