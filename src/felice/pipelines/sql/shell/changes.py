"""What running files of statements would change on a server, statement by statement. Pure.

The files say which streams, tables, types and queries a server should have. A statement that the server already has is
kept. A different statement for the same stream, table or type replaces the server's statement. A query of INSERT INTO
has no name in the files: a statement replaces it if both have the same QUERY_ID, or the same target and sources.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace

from felice.dataclass import dataclass
from felice.pipelines.sql.syntax.errors import SqlError
from felice.pipelines.sql.syntax.scripts import Written, statements_of
from felice.pipelines.sql.syntax.tree import (
    CreateAsSelect,
    CreateSource,
    CreateType,
    Define,
    InsertSelect,
    Query,
    SetProperty,
    Statement,
    placed,
)
from felice.pipelines.sql.syntax.writer import name_text
from felice.pipelines.sql.types import SqlType, resolved

CREATE, REPLACE, KEEP, DROP, EXTRA = "create", "replace", "keep", "drop", "not in the files"
Check = Callable[[Statement, Mapping[str, str]], None]
"""Raises `SqlError` if the server would refuse a statement with these settings."""


@dataclass(frozen=True, slots=True)
class Existing:
    """What a server has: streams and tables, types, and queries."""

    sources: Mapping[str, tuple[str, str]]
    """By name: STREAM or TABLE, and the statement."""
    types: Mapping[str, SqlType]
    queries: Mapping[str, str]
    """The statements by the ids of the queries."""


@dataclass(frozen=True, slots=True)
class Step:
    """The action for one statement, or for a stream, table or query of the server that no file has."""

    action: str
    name: str
    statement: str
    """The text that is sent to the server; empty if nothing is sent."""
    settings: Mapping[str, str] = field(default_factory=dict)
    file: str = ""
    """The file that has the statement."""


@dataclass(frozen=True, slots=True)
class _Given:
    """A statement of a file, with the settings that apply to the statement."""

    file: str
    written: Written
    settings: Mapping[str, str]


def steps_of(
    files: Mapping[str, str], existing: Existing, variables: Mapping[str, str], check: Check | None = None
) -> list[Step]:
    """The steps for the statements of files, in the files' order, and then the steps to drop what no file has: queries
    first, and then sources, the newest first. The steps to drop are only done if the user asks for them.
    `check` checks each statement that is sent. Raises `SqlError`, which names the file.
    """
    statements = [one for file, text in files.items() for one in _statements(file, text, dict(variables))]
    steps = _Steps(existing, [one.written.statement for one in statements], check)
    found = list[Step]()
    names = dict[str, str]()
    for one in statements:
        try:
            step = steps.step(one.written, one.settings)
            is_insert = isinstance(one.written.statement, InsertSelect)
            name = " ".join(one.written.text.split()) if is_insert else step.name
            if name in names:
                raise SqlError(f"{step.name} is made by two statements, the first in {names[name]}")
        except SqlError as error:
            raise SqlError(f"{one.file}, {error}") from None
        names[name] = one.file
        found.append(replace(step, file=one.file))
    for id, given in steps.inserts.items():
        query = name_text(id)
        found.append(Step(EXTRA, f"query {query} into {name_text(given.name)}", f"TERMINATE {query};"))
    for name, (kind, _) in reversed(list(existing.sources.items())):
        if name_text(name) not in names:
            found.append(Step(EXTRA, name_text(name), f"DROP {kind} {name_text(name)};"))
    return found


def _statements(file: str, text: str, variables: dict[str, str]) -> Iterator[_Given]:
    settings: dict[str, str] = {}
    try:
        for written in statements_of(text, variables):
            given = written.statement
            match given:
                case SetProperty(is_of_system=False):
                    if given.value is None:
                        settings.pop(given.name, None)
                    else:
                        settings[given.name] = given.value
                case Define():
                    continue
                case CreateSource() | CreateAsSelect() | CreateType() | InsertSelect():
                    yield _Given(file, written, dict(settings))
                case _:
                    raise SqlError(
                        "a file to apply may have CREATE, INSERT INTO … SELECT, SET and DEFINE; run other statements "
                        "with felice sql -f FILE",
                        given.position,
                    )
    except SqlError as error:
        raise SqlError(f"{file}, {error}") from None


class _Steps:
    """Makes the steps of statements, one after the other."""

    def __init__(self, existing: Existing, statements: list[Statement], check: Check | None) -> None:
        self._existing, self._check = existing, check
        self._types = dict(existing.types)
        known = {id: _parsed(text) for id, text in existing.queries.items()}
        inserts = {id: one for id, one in known.items() if isinstance(one, InsertSelect)}
        self._kept = [one for one in inserts.values() if one in statements]
        self.inserts = {id: one for id, one in inserts.items() if one not in statements}
        """The queries of INSERT INTO that are not in the files, and that no statement has replaced yet, by id."""

    def step(self, written: Written, settings: Mapping[str, str]) -> Step:
        """The step of the next statement. Raises `SqlError`."""
        given = written.statement
        if isinstance(given, CreateType):
            return self._type_step(given, written.text, settings)
        if isinstance(given, InsertSelect):
            return self._insert_step(given, written.text, settings)
        assert isinstance(given, CreateSource | CreateAsSelect), "files have no others"
        return self._source_step(given, written.text, settings)

    def _checked(self, given: Statement, settings: Mapping[str, str]) -> None:
        if self._check is not None:
            self._check(given, settings)

    def _type_step(self, given: CreateType, text: str, settings: Mapping[str, str]) -> Step:
        name, known = f"type {name_text(given.name)}", self._types.get(given.name)
        made = self._types[given.name] = resolved(given.type, self._types)
        if known == made:
            return Step(KEEP, name, "")
        self._checked(given, settings)
        if known is None:
            return Step(CREATE, name, f"{text};")
        return Step(REPLACE, name, f"DROP TYPE {name_text(given.name)}; {text};")

    def _insert_step(self, given: InsertSelect, text: str, settings: Mapping[str, str]) -> Step:
        select = re.split(r"\bSELECT\b", text, maxsplit=1, flags=re.IGNORECASE)[-1]
        name = f"insert into {name_text(given.name)}: {' '.join(select.split())[:40]}"
        if given in self._kept:
            return Step(KEEP, name, "")
        self._checked(given, settings)
        older = self._older(given)
        if older is None:
            return Step(CREATE, name, f"{text};", settings)
        del self.inserts[older]
        return Step(REPLACE, name, f"TERMINATE {name_text(older)}; {text};", settings)

    def _older(self, given: InsertSelect) -> str | None:
        """The id of the query that a statement replaces."""
        if given.query_id is not None:
            return given.query_id if given.query_id in self.inserts else None
        alike = (
            id
            for id, one in self.inserts.items()
            if one.name == given.name
            and one.query_id is None
            and names_read(one.query) == names_read(given.query)
        )
        return next(alike, None)

    def _source_step(
        self, given: CreateSource | CreateAsSelect, text: str, settings: Mapping[str, str]
    ) -> Step:
        name = name_text(given.name)
        known = self._existing.sources.get(given.name)
        if known is None:
            self._checked(given, settings)
            return Step(CREATE, name, f"{text};", settings)
        if _bare(_parsed(known[1])) == _bare(given):
            return Step(KEEP, name, "")
        if not given.is_replacing:
            first, rest = text.split(None, 1)
            text = f"{first} OR REPLACE {rest}"
            given = placed(replace(given, is_replacing=True), given.position)
        self._checked(given, settings)
        return Step(REPLACE, name, f"{text};", settings)


def names_read(query: Query) -> tuple[str, ...]:
    """The names of the streams and tables that a query reads."""
    return (query.source.name, *(one.source.name for one in query.joins))


def _parsed(text: str) -> Statement | None:
    """The statement of a text of the server; None if this program does not understand it."""
    try:
        (written,) = statements_of(text, {})
    except (SqlError, ValueError):
        return None
    return written.statement


def _bare(given: Statement | None) -> Statement | None:
    """The statement without OR REPLACE and IF NOT EXISTS, which say how it is made and not what it is."""
    if isinstance(given, CreateSource | CreateAsSelect):
        return replace(given, is_replacing=False, if_not_exists=False)
    return given
