"""Commands for SQL: the shell, tests of statements, the list of functions."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from felice.cli.faults import Fault
from felice.cli.options import json_option, key_values
from felice.cli.output import show
from felice.cli.sql_changes import apply_steps, files_and_server, opened, show_steps
from felice.cli.sql_program import functions_of
from felice.cli.sql_shell import ServerGroup, ShellOptions, refuse_options_of_shell, run_shell

if TYPE_CHECKING:
    from felice.pipelines.sql.functions.table import FunctionTable

LONGEST_S = 30
"""How many seconds a test may take."""


@click.group(cls=ServerGroup, invoke_without_command=True, subcommand_metavar="[SERVER | COMMAND [ARGS]...]")
@click.option("--server", envvar="FELICE_SQL_URL", hidden=True, help="The server; the same as SERVER.")
@click.option("-e", "--execute", metavar="STATEMENTS", help="Run these statements, and end.")
@click.option("-f", "--file", type=click.Path(path_type=Path), help="Run the statements of a file, and end.")
@click.option(
    "--output",
    type=click.Choice(("TABULAR", "JSON"), case_sensitive=False),
    default="TABULAR",
    show_default=True,
    help="Format of results.",
)
@click.option(
    "-d", "--define", "variables", multiple=True, metavar="NAME=VALUE", help="A variable; may be repeated."
)
@click.option(
    "--query-row-limit", type=click.IntRange(1), metavar="ROWS", help="End each query after so many rows."
)
@click.option(
    "--query-timeout", type=click.IntRange(1), metavar="MS", help="End each query after so many milliseconds."
)
@click.option(
    "--config-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File of properties: ssl.* of connections to the server; others are set in the session.",
)
@click.option("-u", "--user", help="User to log in as.")
@click.option(
    "-p", "--password", envvar="FELICE_SQL_PASSWORD", help="Password of the user.  [default: ask for it]"
)
@click.pass_context
def sql(
    ctx: click.Context,
    server: str | None,
    execute: str | None,
    file: Path | None,
    output: str,
    variables: tuple[str, ...],
    query_row_limit: int | None,
    query_timeout: int | None,
    config_file: Path | None,
    user: str | None,
    password: str | None,
) -> None:
    """Work with a server for SQL in ksqlDB's dialect: at a prompt, or with statements of a file.

    \b
    felice sql                                          a prompt; the server is http://localhost:8088
    felice sql http://sql1.example.com:8088 -u ann
    felice sql -e "SHOW STREAMS;" --output JSON
    felice sql -f statements.sql -d topic=payments
    felice sql test -s statements.sql -i input.json -o output.json
    felice sql functions UCASE
    felice sql apply statements/

    `felice run FILE.sql` runs statements without a server. The exit status is 255 if a statement fails.
    """
    if ctx.invoked_subcommand is not None:
        refuse_options_of_shell(ctx)
        return
    if execute is not None and file is not None:
        raise click.UsageError("--execute and --file exclude each other")
    run_shell(
        ShellOptions(
            server=server,
            execute=execute,
            file=file,
            output=output,
            variables=key_values(variables),
            row_limit=query_row_limit,
            timeout_ms=query_timeout,
            config_file=config_file,
            user=user,
            password=password,
        )
    )


@sql.command("test")
@click.option("-s", "--sql-file", type=click.Path(path_type=Path), help="The file of statements to test.")
@click.option(
    "-i",
    "--input-file",
    type=click.Path(path_type=Path),
    help='The records of the topics, as JSON: {"inputs": [record, …]}.',
)
@click.option(
    "-o",
    "--output-file",
    type=click.Path(path_type=Path),
    help='The expected records, as JSON: {"outputs": [record, …]}. Not needed if statements ASSERT VALUES.',
)
@click.option(
    "--cases",
    metavar="FILE",
    help='A file with many tests: each line is a test, as JSON. "-" is standard input.',
)
@click.option(
    "-p",
    "--property",
    "properties",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set a property before the first statement, as SET does. May be given several times.",
)
@click.option(
    "-e",
    "--extension-dir",
    type=click.Path(path_type=Path),
    help="Load functions from the Python files of this directory.",
)
def test_command(
    sql_file: Path | None,
    input_file: Path | None,
    output_file: Path | None,
    cases: str | None,
    properties: tuple[str, ...],
    extension_dir: Path | None,
) -> None:
    """Run statements in this process, without a broker, and compare what their queries write with what you expect.

    With files, it prints "Test passed!" or why the test failed. With --cases, it prints a line of JSON for each test.
    The exit status is 0 if all tests passed, 1 if one failed, and 2 if a file cannot be read. docs/sql.md describes the
    files.

    \b
    felice sql test -s statements.sql -i input.json -o output.json
    felice sql test --cases cases.jsonl
    """
    if cases is not None:
        if sql_file or input_file or output_file:
            raise click.UsageError("--cases excludes --sql-file, --input-file and --output-file")
        if properties:
            raise click.UsageError("--cases excludes --property: each test has its own properties")
        sys.exit(_run_cases(cases, functions_of(extension_dir)))
    if sql_file is None:
        raise click.UsageError("give --sql-file and --output-file, or --cases")
    sys.exit(
        _run_files(sql_file, input_file, output_file, key_values(properties), functions_of(extension_dir))
    )


@sql.command("functions")
@click.argument("name", required=False)
@json_option
def functions_command(name: str | None, as_json: bool) -> None:
    """List the functions of SQL, or describe one with examples.

    \b
    felice sql functions
    felice sql functions UCASE
    """
    from felice.pipelines.sql.catalogue import near

    functions = functions_of()
    found = list(functions) if name is None else functions.named(name.upper())
    if name is not None and not found:
        raise Fault(f"there is no function {name.upper()}{near(name.upper(), functions.names())}")
    rows = [
        {"function": one.signature.text, "kind": one.kind.lower(), "description": one.description}
        for one in found
    ]
    show(rows, as_json)
    if name is not None and not as_json:
        for example, result in dict(pair for one in found for pair in one.examples).items():
            click.echo(f"{example} = {result}")


@sql.command("plan")
@files_and_server
def plan(as_json: bool, **given: Any) -> None:
    """Show what `felice sql apply` would do with files of statements. Nothing is changed.

    A statement that the server would refuse is an error.

    \b
    felice sql plan statements/
    felice sql plan streams.sql tables.sql --server http://sql1.example.com:8088
    """
    with opened(given, checks=True) as (_, steps):
        show_steps(steps, as_json)


@sql.command("apply")
@files_and_server
@click.option(
    "--prune",
    is_flag=True,
    help="Also drop streams and tables, and end queries of INSERT INTO, that no file has.",
)
def apply(as_json: bool, prune: bool, **given: Any) -> None:
    """Make a server have what files of statements say: create what is missing, and replace what is written otherwise.

    \b
    felice sql apply statements/ -d topic=payments
    felice sql apply statements/ --prune

    It stops at the first statement that the server refuses; those before it stay. Topics are never deleted.
    """
    with opened(given, checks=False) as (server, steps):
        show_steps(apply_steps(server, steps, prunes=prune), as_json)


def _run_files(
    statements: Path,
    inputs: Path | None,
    outputs: Path | None,
    properties: dict[str, str],
    functions: FunctionTable,
) -> int:
    from felice.pipelines.sql.offline.files import FileError, outcome_of_files

    try:
        with _limited() as limit:
            reason = outcome_of_files(statements, inputs, outputs, properties, functions)
            limit.check()
    except FileError as error:
        click.echo(f"felice: {error}", err=True)
        return 2
    except _TooLong as error:
        reason = str(error)
    if reason is None:
        click.echo("Test passed!")
        return 0
    click.echo(f"Test failed: {reason}", err=True)
    return 1


def _run_cases(file: str, functions: FunctionTable) -> int:
    all_passed = True
    try:
        with click.open_file(file, encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                passed, result = _outcome(line, number, functions)
                all_passed = all_passed and passed
                click.echo(result)
                sys.stdout.flush()
    except (OSError, UnicodeDecodeError) as error:
        click.echo(f"felice: {file} cannot be read: {error}", err=True)
        return 2
    return 0 if all_passed else 1


def _outcome(line: str, number: int, functions: FunctionTable) -> tuple[bool, str]:
    """Whether the test of a line passed, and its result as JSON."""
    from felice.pipelines.sql.offline.cases import failed, parsed, result_of
    from felice.pipelines.sql.rows.plain import json_text

    case: dict[str, Any] = {}
    try:
        with _limited() as limit:
            case = parsed(line)
            found = result_of(case, functions)
            limit.check()
            return found["passed"], json_text(found)
    except ValueError as error:
        why = f"line {number} is no test: {error}"
    except _TooLong as error:
        why = str(error)
    return False, json_text(failed(case.get("name"), why))


class _TooLong(BaseException):
    """A test took too long. It is no `Exception`, so that no handler for errors of statements catches it."""


class _Limit:
    """Whether the time of a test is over."""

    def __init__(self) -> None:
        self._is_over = False

    def check(self) -> None:
        """Raise `_TooLong` if it is: the error may have been taken for one of a record, or got lost."""
        if self._is_over:
            raise _TooLong(f"the test did not end within {LONGEST_S} seconds")

    def end(self, number: int, frame: FrameType | None) -> None:
        """Say that it is, where the test runs: the handler of a signal."""
        self._is_over = True
        self.check()


@contextmanager
def _limited() -> Iterator[_Limit]:
    """Raises `_TooLong` in this block if it takes longer than `LONGEST_S`."""
    limit = _Limit()
    before, show_lost = signal.signal(signal.SIGALRM, limit.end), sys.unraisablehook
    # Again each second: an error that is raised within a call from C may get lost, and is not shown then.
    sys.unraisablehook = lambda lost: None if isinstance(lost.exc_value, _TooLong) else show_lost(lost)
    signal.setitimer(signal.ITIMER_REAL, LONGEST_S, 1)
    try:
        yield limit
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        sys.unraisablehook = show_lost
