"""Checks statements before they are sent to a server: analyses each with the results of the earlier statements.

Leaves out:  statements that read a stream or table which is not known here, because its columns are in a registry, or
             its statement calls a function that only the server has. The server checks these when they are sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from typing import Any

from felice.dataclass import dataclass
from felice.pipelines.sql.analysis.declarations import Columns
from felice.pipelines.sql.analysis.properties import FORMAT_OF
from felice.pipelines.sql.analysis.rewriting import parts_of
from felice.pipelines.sql.catalogue import HEADERS, KEY, VALUE, Catalogue, ColumnInfo
from felice.pipelines.sql.functions.table import FunctionTable
from felice.pipelines.sql.rows import FormatDescription
from felice.pipelines.sql.settings import is_known
from felice.pipelines.sql.shell.changes import names_read
from felice.pipelines.sql.statements import Analyst, change_of
from felice.pipelines.sql.syntax.errors import SqlError
from felice.pipelines.sql.syntax.scripts import statements_of
from felice.pipelines.sql.syntax.tree import (
    Call,
    CreateAsSelect,
    CreateSource,
    CreateType,
    InsertSelect,
    Statement,
)
from felice.pipelines.sql.types import Array, Decimal, Map, SqlType, Struct, named

Entity = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Described:
    """What a server reports about itself."""

    sources: tuple[Entity, ...] = ()
    """Its descriptions of streams and tables."""
    types: Mapping[str, SqlType] = field(default_factory=dict)
    topics: Mapping[str, int] = field(default_factory=dict)
    """The numbers of partitions."""
    functions: frozenset[str] = frozenset()
    settings: Mapping[str, str] = field(default_factory=dict)


class _Unknown(Exception):
    """Something that only the server can know."""


class _Around:
    """`Surroundings` from a server's reports. `columns` has the columns of topics with a schema."""

    def __init__(self, described: Described) -> None:
        self._topics = dict(described.topics)
        self.columns: dict[tuple[str, bool], Columns] = {}

    def partitions(self, topic: str, wanted: int | None) -> int | None:
        """The number of partitions of the topic, or the number with which it will be created."""
        found = self._topics.get(topic, wanted)
        if found is not None:
            self._topics[topic] = found
        return found

    def schema(self, topic: str, is_key: bool, given: FormatDescription) -> Columns | None:
        """The columns, as far as a stream or table over the topic shows them."""
        if given.schema_id is None and (topic, is_key) in self.columns:
            return self.columns[topic, is_key]
        raise _Unknown


class Foresight:
    """Checks statements, one after the other."""

    def __init__(self, described: Described, functions: FunctionTable) -> None:
        self._settings = {name: one for name, one in described.settings.items() if is_known(name)}
        self._functions = functions
        self._others = described.functions - frozenset(functions.names())
        """The functions that only the server has."""
        self._around = _Around(described)
        self._catalogue = Catalogue().with_types(described.types)
        self._unknown = set[str]()
        self._know(described.sources)

    def check(self, given: Statement, settings: Mapping[str, str]) -> None:
        """Raise `SqlError` if the server would refuse a statement."""
        self._apply(given, settings, is_replay=False)

    def _know(self, sources: Iterable[Entity]) -> None:
        """Add the sources of a server by their statements: each source after the sources that it reads."""
        left = {one["name"]: one for one in sources}
        self._unknown |= left.keys()
        for one in left.values():
            self._around.columns |= _columns_of_topic(one)
        while left:
            made = [name for name, one in left.items() if self._is_known(one)]
            if not made:
                return
            for name in made:
                del left[name]

    def _is_known(self, described: Entity) -> bool:
        name = described["name"]
        formats = {FORMAT_OF[part]: described.get(f"{part.lower()}Format") or "" for part in ("KEY", "VALUE")}
        try:
            (written,) = statements_of(str(described.get("statement", "")), {})
            self._apply(written.statement, formats, is_replay=True)
        except (SqlError, ValueError):
            return False
        if name in self._unknown:
            return False
        source = self._catalogue.sources[name]
        # ALTER may have added columns since, to this source or to the sources that it reads.
        shown = {
            name: ColumnInfo(name, type_, role)
            for name, type_, role in _columns(described)
            if role in (KEY, VALUE)
        }
        if shown:
            others = [one for one in source.columns if one.role == HEADERS and one.name not in shown]
            self._catalogue = self._catalogue.with_source(replace(source, columns=(*shown.values(), *others)))
        return True

    def _apply(self, given: Statement, settings: Mapping[str, str], *, is_replay: bool) -> None:
        names: tuple[str, ...] = ()
        if isinstance(given, CreateAsSelect | InsertSelect):
            names = names_read(given.query)
        if isinstance(given, InsertSelect):
            names = (*names, given.name)
        if self._unknown.intersection(names):
            self._forget(given)
            return
        analyst = Analyst(self._functions, {**self._settings, **settings}, self._around, is_replay=is_replay)
        catalogue = self._catalogue
        if isinstance(given, CreateType):  # A type that is replaced is dropped first.
            catalogue = catalogue.with_types(
                {name: one for name, one in catalogue.types.items() if name != given.name}
            )
        try:
            change = change_of(given, catalogue, analyst)
        except _Unknown:
            self._forget(given)
            return
        except SqlError:
            if is_replay or not self._calls_others(given):
                raise
            self._forget(given)
            return
        assert change is not None, "files have only statements that change something"
        self._catalogue = change.catalogue
        if isinstance(given, CreateSource | CreateAsSelect):
            self._unknown.discard(given.name)

    def _calls_others(self, given: Statement) -> bool:
        """Whether a statement calls a function that only the server has."""
        return any(isinstance(one, Call) and one.function in self._others for one in parts_of(given))

    def _forget(self, given: Statement) -> None:
        """Note that the result of a statement is not known."""
        if isinstance(given, CreateSource | CreateAsSelect):
            self._unknown.add(given.name)


def type_in(schema: object) -> SqlType:
    """The type of a schema of ksqlDB's REST API. Raises ValueError."""
    if not isinstance(schema, dict):
        raise ValueError("a schema must be an object")
    match schema.get("type"):
        case "ARRAY":
            return Array(type_in(schema.get("memberSchema")))
        case "MAP":
            key = schema.get("keySchema") or {"type": "STRING"}
            return Map(type_in(key), type_in(schema.get("memberSchema")))
        case "STRUCT":
            fields = schema.get("fields") or ()
            return Struct(tuple((str(one["name"]), type_in(one["schema"])) for one in fields))
        case "DECIMAL":
            parameters = schema.get("parameters") or {}
            return Decimal(int(parameters["precision"]), int(parameters["scale"]))
        case name:
            return named(str(name))


def _columns(described: Entity) -> list[tuple[str, SqlType, str]]:
    """The names, types and roles of the columns of a stream or table; empty if a column cannot be read."""
    try:
        return [
            (str(one["name"]), type_in(one["schema"]), str(one.get("type") or VALUE))
            for one in described.get("fields") or ()
        ]
    except (ValueError, KeyError, TypeError):
        return []


def _columns_of_topic(described: Entity) -> dict[tuple[str, bool], Columns]:
    found = _columns(described)
    return {
        (str(described.get("topic")), is_key): tuple(
            (name, type_) for name, type_, own in found if own == (KEY if is_key else VALUE)
        )
        for is_key in (True, False)
        if found
    }
