"""What running files of statements would change on a server, statement by statement. Pure.

A file says what there should be. So a statement that the server has already, as it is written, is left alone; another
one for the same stream or table replaces it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import field, replace

from felice.dataclass import dataclass
from felice.pipelines.sql.syntax.errors import SqlError
from felice.pipelines.sql.syntax.scripts import statements_of
from felice.pipelines.sql.syntax.tree import (
    CreateAsSelect,
    CreateSource,
    CreateType,
    Define,
    InsertSelect,
    SetProperty,
    Statement,
)
from felice.pipelines.sql.syntax.writer import name_text

CREATE, REPLACE, KEEP, DROP, EXTRA = "create", "replace", "keep", "drop", "not in the files"


@dataclass(frozen=True, slots=True)
class Existing:
    """What a server has: the statements of streams and tables by name, the names of types, and the statements of
    queries.
    """

    sources: Mapping[str, tuple[str, str]]
    """By name: STREAM or TABLE, and the statement."""
    types: frozenset[str]
    queries: frozenset[str]


@dataclass(frozen=True, slots=True)
class Step:
    """What is done for one statement, or with one stream or table that no file has."""

    action: str
    name: str
    statement: str
    """What is sent to the server; empty if nothing is."""
    settings: Mapping[str, str] = field(default_factory=dict)
    file: str = ""
    """The file that has the statement."""


def steps_of(files: Mapping[str, str], existing: Existing, variables: Mapping[str, str]) -> list[Step]:
    """The steps for the texts of files by name, in their order; then those for what no file has, which are only done
    if the user asks for it: the last one made goes first. Raises `SqlError`, which names the file.
    """
    steps = list[Step]()
    names = dict[str, str]()
    for file, text in files.items():
        try:
            for step in _of_text(text, existing, dict(variables)):
                if step.name in names:
                    raise SqlError(f"{step.name} is made by two statements, the first in {names[step.name]}")
                names[step.name] = file
                steps.append(replace(step, file=file))
        except SqlError as error:
            raise SqlError(f"{file}, {error}") from None
    for name, (kind, _) in reversed(list(existing.sources.items())):
        if name_text(name) not in names:
            steps.append(Step(EXTRA, name_text(name), f"DROP {kind} {name_text(name)};"))
    return steps


def _of_text(text: str, existing: Existing, variables: dict[str, str]) -> Iterator[Step]:
    settings: dict[str, str] = {}
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
            case CreateSource() | CreateAsSelect():
                yield _source_step(given, written.text, existing, settings)
            case CreateType():
                action = KEEP if given.name in existing.types else CREATE
                yield Step(
                    action, f"type {name_text(given.name)}", "" if action == KEEP else f"{written.text};"
                )
            case InsertSelect():
                known = given in map(_parsed, existing.queries)
                select = re.split(r"\bSELECT\b", written.text, maxsplit=1, flags=re.IGNORECASE)[-1]
                name = f"insert into {name_text(given.name)}: {' '.join(select.split())[:40]}"
                yield Step(
                    KEEP if known else CREATE, name, "" if known else f"{written.text};", dict(settings)
                )
            case _:
                raise SqlError(
                    "a file to apply may have CREATE, INSERT INTO … SELECT, SET and DEFINE; run other statements with "
                    "felice sql -f FILE",
                    given.position,
                )


def _source_step(
    given: CreateSource | CreateAsSelect, text: str, existing: Existing, settings: Mapping[str, str]
) -> Step:
    name = name_text(given.name)
    known = existing.sources.get(given.name)
    if known is None:
        return Step(CREATE, name, f"{text};", dict(settings))
    if _bare(_parsed(known[1])) == _bare(given):
        return Step(KEEP, name, "")
    if not given.is_replacing:
        first, rest = text.split(None, 1)
        text = f"{first} OR REPLACE {rest}"
    return Step(REPLACE, name, f"{text};", dict(settings))


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
