"""What statements have declared: sources, types, queries. An immutable value; a statement gives the next one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from difflib import get_close_matches
from types import MappingProxyType

from felice.dataclass import dataclass
from felice.pipelines.sql.rows import FormatDescription
from felice.pipelines.sql.syntax.errors import Position, SqlError
from felice.pipelines.sql.syntax.writer import name_text, quoted
from felice.pipelines.sql.types import SqlType, text_of

STREAM, TABLE = "STREAM", "TABLE"
KEY, VALUE, HEADERS = "KEY", "VALUE", "HEADERS"
TUMBLING, HOPPING, SESSION = "TUMBLING", "HOPPING", "SESSION"


@dataclass(frozen=True, slots=True)
class ColumnInfo:
    """A column of a stream or table. `header` is the key of HEADER('key'); HEADERS has none."""

    name: str
    type: SqlType
    role: str = VALUE
    header: str | None = None


@dataclass(frozen=True, slots=True)
class WindowInfo:
    """The windows of keys. Sessions have no size."""

    kind: str
    size_ms: int | None = None


@dataclass(frozen=True, slots=True)
class EventTime:
    """The column that has a record's time, and the pattern of its texts."""

    column: str
    pattern: str | None = None


@dataclass(frozen=True, slots=True)
class SourceInfo:
    """A stream or a table over a topic."""

    kind: str
    name: str
    columns: tuple[ColumnInfo, ...]
    topic: str
    key_format: FormatDescription
    value_format: FormatDescription
    partitions: int = 1
    replicas: int = 1
    window: WindowInfo | None = None
    event_time: EventTime | None = None
    topic_config: tuple[tuple[str, str], ...] = ()
    """Options with which the topic is created, if it is not there."""
    is_read_only: bool = False
    query: str | None = None
    """The id of the query that made it."""
    made_from: tuple[str, ...] = ()
    """The sources that this query reads. They cannot be dropped, even after the query was terminated."""
    text: str = ""
    """The statement that made it."""

    def of_role(self, role: str) -> tuple[ColumnInfo, ...]:
        """The columns of the key, the value, or the headers, in their order."""
        return tuple(one for one in self.columns if one.role == role)

    @property
    def key(self) -> tuple[tuple[str, SqlType], ...]:
        """Names and types of the key's columns."""
        return tuple((one.name, one.type) for one in self.of_role(KEY))

    @property
    def value(self) -> tuple[tuple[str, SqlType], ...]:
        """Names and types of the value's columns."""
        return tuple((one.name, one.type) for one in self.of_role(VALUE))

    @property
    def is_table(self) -> bool:
        """Whether each record replaces the row of its key."""
        return self.kind == TABLE

    def schema_text(self) -> str:
        """The columns as DESCRIBE shows them: `` `K` INTEGER KEY, `V` STRING ``."""
        return ", ".join(
            f"{quoted(one.name)} {text_of(one.type)}{self._role_text(one)}" for one in self.columns
        )

    def _role_text(self, one: ColumnInfo) -> str:
        if one.role == HEADERS:
            return " HEADERS" if one.header is None else f" HEADER('{one.header}')"
        if one.role == KEY:
            return " PRIMARY KEY" if self.is_table else " KEY"
        return ""


@dataclass(frozen=True, slots=True)
class QueryInfo:
    """A persistent query: what it reads, and the source that it writes."""

    id: str
    reads: tuple[str, ...]
    writes: str
    text: str


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Sources by name, types by name, and persistent queries by id, in the order in which they were made."""

    sources: MappingProxyType[str, SourceInfo] = field(default_factory=lambda: MappingProxyType({}))
    types: Mapping[str, SqlType] = field(default_factory=lambda: MappingProxyType({}))
    queries: MappingProxyType[str, QueryInfo] = field(default_factory=lambda: MappingProxyType({}))
    next_query: int = 0
    """The number of the next query's id."""

    def source(self, name: str, position: Position | None = None) -> SourceInfo:
        """A stream or a table. Raises `SqlError` for a name that is not known."""
        found = self.sources.get(name)
        if found is None:
            close = _closest(name, self.sources)
            hint = f" Did you mean {name_text(close)}?" if close else ""
            raise SqlError(f"{name} does not exist.{hint}", position)
        return found

    def with_source(self, source: SourceInfo) -> Catalogue:
        """With one more source, or another one of the same name."""
        return replace(self, sources=MappingProxyType(self.sources | {source.name: source}))

    def without_source(self, name: str) -> Catalogue:
        """Without a source."""
        left = {known: one for known, one in self.sources.items() if known != name}
        return replace(self, sources=MappingProxyType(left))

    def with_query(self, query: QueryInfo) -> Catalogue:
        """With one more query, or another one of the same id."""
        return replace(
            self, queries=MappingProxyType(self.queries | {query.id: query}), next_query=self.next_query + 1
        )

    def without_query(self, id: str) -> Catalogue:
        """Without a query."""
        left = {known: one for known, one in self.queries.items() if known != id}
        return replace(self, queries=MappingProxyType(left))

    def with_types(self, types: Mapping[str, SqlType]) -> Catalogue:
        """With these types of users."""
        return replace(self, types=MappingProxyType(dict(types)))

    def readers(self, name: str) -> list[str]:
        """The ids of the queries that read a source."""
        return [one.id for one in self.queries.values() if name in one.reads]

    def derived(self, name: str) -> list[str]:
        """The names of the sources that were made from a source."""
        return [one.name for one in self.sources.values() if name in one.made_from]

    def writers(self, name: str) -> list[str]:
        """The ids of the queries that write a source."""
        return [one.id for one in self.queries.values() if one.writes == name]


def near(name: str, known: Iterable[str]) -> str:
    """A hint at the known name that is most like a name: `; did you mean ORDERS?`; empty if none is."""
    found = _closest(name, known)
    return f"; did you mean {name_text(found)}?" if found else ""


def _closest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most like a name, in any case; None if none is."""
    by_capitals = {one.upper(): one for one in known}
    found = get_close_matches(name.upper(), list(by_capitals), 1)
    return by_capitals[found[0]] if found else None
