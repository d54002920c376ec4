"""What `felice sql plan` and `felice sql apply` share: files of statements beside what a server has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from felice.cli.faults import Fault
from felice.cli.options import json_option, key_values, read_text
from felice.cli.output import show
from felice.cli.sql_shell import ShellOptions, connected

if TYPE_CHECKING:
    from felice.pipelines.sql.shell.changes import Check, Existing, Step
    from felice.pipelines.sql.shell.client import Server


def files_and_server(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the files, and the options of connections to a server."""
    for add in reversed(
        (
            click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path)),
            click.option("--server", envvar="FELICE_SQL_URL", metavar="URL", help="The server."),
            click.option(
                "-d",
                "--define",
                "variables",
                multiple=True,
                metavar="NAME=VALUE",
                help="A variable; may be repeated.",
            ),
            click.option(
                "--config-file",
                type=click.Path(exists=True, dir_okay=False, path_type=Path),
                help="File of properties: ssl.* of connections to the server.",
            ),
            click.option("-u", "--user", help="User to log in as."),
            click.option("-p", "--password", envvar="FELICE_SQL_PASSWORD", help="Password of the user."),
            json_option,
        )
    ):
        command = add(command)
    return command


@contextmanager
def opened(given: Mapping[str, Any], *, checks: bool) -> Iterator[tuple[Server, list[Step]]]:
    """The server, and the steps for the files, whose statements are checked if the server would take them."""
    from felice.pipelines.sql.shell.changes import Existing, steps_of
    from felice.pipelines.sql.shell.foresight import type_in
    from felice.pipelines.sql.syntax.errors import SqlError

    texts = {str(path): read_text(path) for path in _sql_files(given["files"])}
    options = ShellOptions(
        server=given["server"],
        config_file=given["config_file"],
        user=given["user"],
        password=given["password"],
    )
    with connected(options) as server:
        try:
            sources = [
                one
                for statement in ("SHOW STREAMS EXTENDED;", "SHOW TABLES EXTENDED;")
                for one in _asked(server, statement, "sourceDescriptions")
            ]
            existing = Existing(
                {one["name"]: (one["type"], one["statement"]) for one in sources},
                {str(name): type_in(schema) for name, schema in _asked(server, "SHOW TYPES;", "types")},
                {one["id"]: one["queryString"] for one in _asked(server, "SHOW QUERIES;", "queries")},
            )
            check = _check(server, sources, existing) if checks else None
            yield server, steps_of(texts, existing, key_values(given["variables"]), check)
        except SqlError as error:
            raise Fault(str(error)) from None


def _sql_files(given: Sequence[Path]) -> list[Path]:
    found: list[Path] = []
    for path in given:
        found += sorted(path.glob("**/*.sql")) if path.is_dir() else [path]
    if not found:
        raise Fault(f"there is no .sql file in {', '.join(map(str, given))}")
    return list(dict.fromkeys(found))


def _check(server: Server, sources: Sequence[Any], existing: Existing) -> Check:
    from felice.pipelines.sql.functions import built_in
    from felice.pipelines.sql.shell.foresight import Described, Foresight

    topics = _asked(server, "SHOW ALL TOPICS;", "topics")
    functions = _asked(server, "SHOW FUNCTIONS;", "functions")
    properties = _asked(server, "SHOW PROPERTIES;", "properties")
    described = Described(
        tuple(sources),
        existing.types,
        {one["name"]: len(one.get("replicaInfo") or ()) for one in topics},
        frozenset(one["name"] for one in functions),
        {one["name"]: str(one["value"]) for one in properties},
    )
    return Foresight(described, built_in()).check


def _asked(server: Server, statement: str, member: str) -> list[Any]:
    found: list[Any] = []
    for entity in server.run(statement, {}):
        members = entity.get(member) or ()
        found += members.items() if isinstance(members, dict) else members
    return found


def apply_steps(server: Server, steps: Sequence[Step], *, prunes: bool) -> Iterator[Step]:
    """Do the steps, one after the other. Raises `ShellError` for the first that the server refuses."""
    from felice.pipelines.sql.shell.changes import DROP, EXTRA
    from felice.pipelines.sql.shell.client import ShellError

    for step in steps:
        if step.statement and (prunes or step.action != EXTRA):
            try:
                server.run(step.statement, step.settings)
            except ShellError as error:
                where = f"{step.file}, {step.name}" if step.file else step.name
                raise Fault(f"{where}: {error}") from None
            if step.action == EXTRA:
                step = replace(step, action=DROP)
        yield step


def show_steps(steps: Sequence[Step] | Iterator[Step], as_json: bool) -> None:
    """Print the steps, and how many there are of each kind; if one fails, those before it."""
    rows: list[dict[str, str]] = []
    try:
        rows += ({"action": one.action, "name": one.name} for one in steps)
    except Fault:
        if rows:
            _show_rows(rows, as_json)
        raise
    _show_rows(rows, as_json)


def _show_rows(rows: Sequence[Mapping[str, str]], as_json: bool) -> None:
    from felice.pipelines.sql.shell.changes import CREATE, DROP, EXTRA, KEEP, REPLACE

    show(rows, as_json)
    if not as_json:
        counts = Counter(row["action"] for row in rows)
        click.echo(", ".join(f"{counts[one]} {one}" for one in (CREATE, REPLACE, KEEP, DROP, EXTRA)))
