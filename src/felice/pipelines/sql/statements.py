"""Statements that change the catalogue: what each makes of it, and the query that it starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import replace
from typing import Any

from felice.dataclass import dataclass
from felice.pipelines.sql.analysis.declarations import PSEUDO, Surroundings, check_formats, source_of
from felice.pipelines.sql.analysis.plan import QueryPlan
from felice.pipelines.sql.analysis.properties import START, STARTS
from felice.pipelines.sql.analysis.queries import Target, plan_of
from felice.pipelines.sql.analysis.sinks import changed_columns, check_insert, sink_of, with_decimals
from felice.pipelines.sql.catalogue import Catalogue, ColumnInfo, QueryInfo, SourceInfo
from felice.pipelines.sql.functions.table import FunctionTable
from felice.pipelines.sql.settings import short_name
from felice.pipelines.sql.syntax.errors import SqlError
from felice.pipelines.sql.syntax.tree import (
    AlterSource,
    ControlQuery,
    CreateAsSelect,
    CreateSource,
    CreateType,
    Drop,
    InsertSelect,
    SetProperty,
    Statement,
)
from felice.pipelines.sql.syntax.writer import name_text, quoted
from felice.pipelines.sql.types import fields_text, resolved, text_of


@dataclass(frozen=True, slots=True)
class Analyst:
    """What statements are analysed with."""

    functions: FunctionTable
    settings: Mapping[str, str]
    around: Surroundings
    numbers_queries: bool = True
    """Whether ids of queries end with a number, as ksqlDB's; without it they stay when statements are put between."""
    is_replay: bool = False
    """Whether a server accepted the statement before, perhaps with an older version. If so, checks that only prevent
    mistakes are skipped.
    """


@dataclass(frozen=True, slots=True)
class PersistentQuery:
    """A query that runs until it is terminated."""

    id: str
    plan: QueryPlan
    sink: SourceInfo


@dataclass(frozen=True, slots=True)
class Change:
    """What a statement does. `started` is its query, `stopped` are the ids of queries that end."""

    catalogue: Catalogue
    message: str
    started: PersistentQuery | None = None
    stopped: tuple[str, ...] = ()
    deleted_topic: str | None = None


def set_property(given: SetProperty, settings: MutableMapping[str, str], defaults: Mapping[str, str]) -> None:
    """Apply SET or UNSET. Raises `SqlError`."""
    name = short_name(given.name)
    if given.value is None:
        settings.pop(name, None)
        settings.update({one: value for one, value in defaults.items() if one == name})
        return
    if name == START and given.value not in STARTS:
        raise SqlError(
            f"Invalid value {given.value} for property {START}: String must be one of: {', '.join(STARTS)}",
            given.position,
        )
    settings[name] = given.value


def change_of(given: Statement, catalogue: Catalogue, analyst: Analyst, text: str = "") -> Change | None:
    """What a statement changes; None for a statement of another kind. Raises `SqlError`."""
    make = _CHANGES.get(type(given))
    return None if make is None else make(given, catalogue, analyst, text)


def _create_source(given: CreateSource, catalogue: Catalogue, analyst: Analyst, text: str) -> Change:
    known = catalogue.sources.get(given.name)
    if known is not None and given.if_not_exists:
        return Change(catalogue, _exists(known))
    if given.is_replacing and (given.is_read_only or (known is not None and known.is_read_only)):
        kind = given.kind.lower()
        raise SqlError(
            f"Cannot add {kind} '{given.name}': CREATE OR REPLACE is not supported on source {kind}s.",
            given.position,
        )
    found = source_of(given, catalogue.types, analyst.settings, analyst.around)
    _check_replacement(given, known, found)
    found = replace(found, text=text)
    return Change(catalogue.with_source(found), f"{given.kind.capitalize()} created: {name_text(given.name)}")


def _create_as_select(given: CreateAsSelect, catalogue: Catalogue, analyst: Analyst, text: str) -> Change:
    known = catalogue.sources.get(given.name)
    if known is not None and given.if_not_exists:
        return Change(catalogue, _exists(known))
    if known is not None and not given.is_replacing:
        raise _already(given, known)
    target = Target(given.name, given.kind, given.position)
    plan = plan_of(given.query, catalogue, analyst.functions, analyst.settings, target=target)
    sink = sink_of(given, plan, analyst.settings, analyst.around)
    _check_replacement(given, known, sink)
    kept = known.query if known is not None else None
    id = kept or f"C{given.kind[0]}AS_{given.name}{_number(catalogue, analyst)}"
    sink = replace(sink, query=id, made_from=_names(plan), text=text)
    found = catalogue.with_source(sink).with_query(QueryInfo(id, _names(plan), given.name, text))
    stopped = (id,) if kept else ()
    return Change(found, f"Created query with ID {id}", PersistentQuery(id, plan, sink), stopped)


def _names(plan: QueryPlan) -> tuple[str, ...]:
    return tuple(side.source.name for side in plan.sides)


def _insert_select(given: InsertSelect, catalogue: Catalogue, analyst: Analyst, text: str) -> Change:
    target = catalogue.source(given.name, given.position)
    plan = plan_of(given.query, catalogue, analyst.functions, analyst.settings, target=Target(given.name))
    plan = with_decimals(plan, target)
    check_insert(given, plan, target)
    for name, literal in given.properties:
        if name.upper() != "QUERY_ID":
            raise SqlError(f"Invalid config variable(s) in the WITH clause: {name.upper()}", literal.position)
    id = given.query_id or _insert_id(given, catalogue, analyst)
    if id in catalogue.queries:
        raise SqlError(f"there is a query {id} already", given.position)
    found = catalogue.with_query(QueryInfo(id, _names(plan), given.name, text))
    return Change(found, f"Created query with ID {id}", PersistentQuery(id, plan, target))


def _number(catalogue: Catalogue, analyst: Analyst) -> str:
    return f"_{catalogue.next_query}" if analyst.numbers_queries else ""


def _insert_id(given: InsertSelect, catalogue: Catalogue, analyst: Analyst) -> str:
    if analyst.numbers_queries:
        return f"INSERTQUERY_{catalogue.next_query}"
    return f"INSERTQUERY_{given.name}_{len(catalogue.writers(given.name))}"


def _exists(known: SourceInfo) -> str:
    return f"{known.kind.capitalize()} {name_text(known.name)} exists already: nothing was changed"


def _already(given: CreateSource | CreateAsSelect, known: SourceInfo) -> SqlError:
    return SqlError(
        f"Cannot add {given.kind.lower()} '{given.name}': A {known.kind.lower()} with the same name already exists",
        given.position,
    )


def _check_replacement(
    given: CreateSource | CreateAsSelect, known: SourceInfo | None, found: SourceInfo
) -> None:
    """Raise `SqlError` if a source of this name is there and cannot be replaced by the new one."""
    if known is None:
        return
    if not given.is_replacing:
        raise _already(given, known)
    name = name_text(given.name)
    why = None
    if known.kind != found.kind:
        why = f"{name} is a {known.kind}, and cannot become a {found.kind}"
    elif known.is_read_only:
        why = f"{name} is a SOURCE {known.kind}, and those are not replaced"
    elif known.topic != found.topic:
        why = f"the topic of {name} cannot change from {known.topic} to {found.topic}"
    elif known.key != found.key:
        keys = f"from {fields_text(known.key)} to {fields_text(found.key)}"
        why = f"the key of {name} cannot change {keys}. (Key columns must be identical.)"
    elif (known.key_format, known.value_format) != (found.key_format, found.value_format):
        why = f"the formats of {name} cannot change"
    elif (known.query is None) != isinstance(given, CreateSource):
        how = "is not made by a query" if known.query is None else f"is made by the query {known.query}"
        why = f"{name} {how}, and that cannot change"
    elif known.event_time != found.event_time:
        why = f"the TIMESTAMP of {name} cannot change"
    elif known.window != found.window:
        why = f"the windows of {name} cannot change"
    elif changed := changed_columns(known.value, found.value):
        why = f"(The following columns are changed, missing or reordered: [{fields_text(changed)}])"
    if why is not None:
        raise SqlError(f"Cannot replace {known.kind.lower()} {name}: {why}", given.position)


def _create_type(given: CreateType, catalogue: Catalogue, analyst: Analyst, text: str) -> Change:
    if given.name in catalogue.types:
        if given.if_not_exists:
            return Change(catalogue, f"Type {given.name} exists already: nothing was changed")
        raise SqlError(
            f"Cannot register custom type '{given.name}' since it is already registered with type: "
            f"{text_of(catalogue.types[given.name])}; drop it first",
            given.position,
        )
    made = resolved(given.type, catalogue.types)
    found = catalogue.with_types({**catalogue.types, given.name: made})
    return Change(found, f"Registered custom type {name_text(given.name)}: {text_of(made)}")


def _drop(given: Drop, catalogue: Catalogue, analyst: Analyst, text: str) -> Change | None:
    if given.kind == "CONNECTOR":
        return None
    if given.kind == "TYPE":
        return _drop_type(given, catalogue)
    name = name_text(given.name)
    if given.if_exists and given.name not in catalogue.sources:
        return Change(catalogue, f"{given.kind.capitalize()} {name} does not exist: nothing was dropped")
    known = _known(given, catalogue, given.kind.capitalize())
    if known.kind != given.kind:
        raise SqlError(
            f"Incompatible data source type is {known.kind}, but statement was DROP {given.kind}: use DROP "
            f"{known.kind}",
            given.position,
        )
    if given.deletes_topic and known.is_read_only:
        raise SqlError(f"Cannot delete topic for read-only source: {name}", given.position)
    derived = [one for one in catalogue.derived(given.name) if one != given.name]
    if derived and not analyst.is_replay:
        raise SqlError(
            f"Cannot drop {name}. The following streams and/or tables read from this source: [{', '.join(derived)}]. "
            f"You need to drop them before dropping {name}.",
            given.position,
        )
    readers = catalogue.readers(given.name)
    writers = [one for one in catalogue.writers(given.name) if one != known.query]
    if readers or writers:
        raise SqlError(
            f"Cannot drop {name}. The following queries read from this source: [{', '.join(readers)}]. The following "
            f"queries write into this source: [{', '.join(writers)}]. You need to terminate them before dropping "
            f"{name}.",
            given.position,
        )
    found = catalogue.without_source(given.name)
    stopped = (known.query,) if known.query is not None and known.query in catalogue.queries else ()
    for one in stopped:
        found = found.without_query(one)
    deleted = known.topic if given.deletes_topic else None
    return Change(found, f"Source {name} (topic: {known.topic}) was dropped.", None, stopped, deleted)


def _known(given: Drop | AlterSource, catalogue: Catalogue, what: str) -> SourceInfo:
    """The source of a statement. Raises `SqlError` for a name that is not known, and says what was looked for."""
    try:
        return catalogue.source(given.name, given.position)
    except SqlError as error:
        raise SqlError(f"{what} {error.reason}", given.position) from None


def _drop_type(given: Drop, catalogue: Catalogue) -> Change:
    if given.name not in catalogue.types:
        if given.if_exists:
            return Change(catalogue, f"Type {given.name} does not exist: nothing was dropped")
        raise SqlError(f"Type {given.name} does not exist.", given.position)
    left = {name: one for name, one in catalogue.types.items() if name != given.name}
    return Change(catalogue.with_types(left), f"Dropped type {given.name}")


def _alter(given: AlterSource, catalogue: Catalogue, analyst: Analyst, text: str) -> Change:
    known = _known(given, catalogue, "Source")
    name = name_text(given.name)
    if known.kind != given.kind:
        raise SqlError(
            f"Incompatible data source type is {known.kind}, but statement was ALTER {given.kind}: use ALTER "
            f"{known.kind}",
            given.position,
        )
    if known.query is not None:
        raise SqlError(
            f"ALTER command is not supported for CREATE ... AS statements: a query made {name}; use CREATE OR REPLACE",
            given.position,
        )
    if known.is_read_only:
        raise SqlError(f"Cannot alter {known.kind.lower()} {name}: it is read-only", given.position)
    taken = {one.name for one in known.columns}
    added: list[ColumnInfo] = []
    for column, type_ in given.columns:
        if column in PSEUDO:
            raise SqlError(
                f"'{column}' is a reserved column name. You cannot use it as a name for a column.",
                given.position,
            )
        if column in taken:
            raise SqlError(
                f"Cannot add column {quoted(column)} to schema. A column with the same name already exists.",
                given.position,
            )
        taken.add(column)
        added.append(ColumnInfo(column, resolved(type_, catalogue.types)))
    value_format = known.value_format
    if value_format.is_wrapped:
        # Several values are always written with their names.
        value_format = replace(value_format, is_wrapped=None)
    found = replace(known, columns=(*known.columns, *added), value_format=value_format)
    check_formats(found, given)
    return Change(catalogue.with_source(found), f"{known.kind.capitalize()} altered: {name}")


def _control(given: ControlQuery, catalogue: Catalogue, analyst: Analyst, text: str) -> Change | None:
    ids = list(catalogue.queries) if given.query is None else [given.query]
    for id in ids:
        if id not in catalogue.queries:
            known = ", ".join(catalogue.queries) or "none"
            raise SqlError(f"there is no query {id}; there is {known}", given.position)
    if given.action != "TERMINATE":
        return None
    found = catalogue
    for id in ids:
        found = found.without_query(id)
    return Change(found, f"Terminated {', '.join(ids) or 'no query'}", None, tuple(ids))


_CHANGES: dict[type, Callable[[Any, Catalogue, Analyst, str], Change | None]] = {
    CreateSource: _create_source,
    CreateAsSelect: _create_as_select,
    InsertSelect: _insert_select,
    CreateType: _create_type,
    Drop: _drop,
    AlterSource: _alter,
    ControlQuery: _control,
}
