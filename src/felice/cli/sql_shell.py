"""`felice sql` without a subcommand: the shell, at a prompt, of a file, of an option or of standard input."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

import click

from felice.cli.command_group import CommandGroup
from felice.cli.faults import Fault
from felice.cli.options import read_properties, tls_of_clients
from felice.cli.passwords import login_of
from felice.dataclass import dataclass

if TYPE_CHECKING:
    import ssl

    from felice.pipelines.sql.shell.client import Server

FAILED = 255
"""The exit status of ksqlDB's shell when a statement fails."""
_START = "start one with `felice sql-server`, or name another: felice sql http://HOST:8088"
_SERVER = "--server"
# Properties of connections that are not named ssl.
_VERIFICATION = "enable.ssl.certificate.verification"


class ServerGroup(CommandGroup):
    """A group of commands that may have the address of a server in the place of a subcommand."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parses the options, also those behind the address."""
        return super().parse_args(ctx, self.with_server_option(ctx, args))

    def with_server_option(self, ctx: click.Context, args: Sequence[str]) -> list[str]:
        """`-u me http://h:1 -e x` as `-u me --server http://h:1 -e x`."""
        args = list(args)
        left = self.make_parser(ctx).parse_args(list(args))[1]
        if not left or ":" not in left[0]:
            return args
        at = len(args) - len(left)
        before = args[:at]
        if before[-1:] == ["--"]:
            before.pop()
        return [*before, _SERVER, args[at], *self.with_server_option(ctx, args[at + 1 :])]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Finds the subcommand. If the argument is the name of a file, the error says how to run the file."""
        if self.get_command(ctx, args[0]) is None and Path(args[0]).is_file():
            raise click.UsageError(f"to run the statements of a file, write: felice sql -f {args[0]}", ctx)
        return super().resolve_command(ctx, args)


def refuse_options_of_shell(ctx: click.Context) -> None:
    """Refuses options that were given before a subcommand, which does not have them."""
    for parameter in ctx.command.params:
        if ctx.get_parameter_source(str(parameter.name)) is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{parameter.opts[-1]} has no effect with {ctx.invoked_subcommand}", ctx)


@dataclass(frozen=True, slots=True)
class ShellOptions:
    """What the options of `felice sql` say."""

    server: str | None = None
    execute: str | None = None
    file: Path | None = None
    output: str = "TABULAR"
    variables: Mapping[str, str] = field(default_factory=dict)
    row_limit: int | None = None
    timeout_ms: int | None = None
    config_file: Path | None = None
    user: str | None = None
    password: str | None = None


def run_shell(options: ShellOptions) -> None:
    """Runs what the options name, or asks for statements. Ends the process with `FAILED` if a statement fails."""
    is_prompt = options.execute is None and options.file is None and sys.stdin.isatty()
    _check_installed("httpx2", *(["prompt_toolkit"] if is_prompt else []))
    from felice.pipelines.sql.shell.client import ShellError

    properties, tls = _configured(options.config_file)
    user = login_of(options.user, options.password, "FELICE_SQL_PASSWORD")
    try:
        succeeded = _run(options, properties, tls, user, is_prompt=is_prompt)
    except ShellError as error:
        click.echo(f"error: {error}", err=True)
        succeeded = False
    if not succeeded:
        raise SystemExit(FAILED)


def _run(
    options: ShellOptions,
    properties: Mapping[str, str],
    tls: ssl.SSLContext | None,
    user: tuple[str, str] | None,
    *,
    is_prompt: bool,
) -> bool:
    from felice.pipelines.sql.shell import console
    from felice.pipelines.sql.shell.client import Server
    from felice.pipelines.sql.shell.output import Output
    from felice.pipelines.sql.shell.parts import all_parts_of
    from felice.pipelines.sql.shell.session import Leave, Session

    def connect(url: str) -> Server:
        return Server(url, user, tls)

    server = _answering(options.server, connect)
    output = Output(options.output)
    timeout_s = None if options.timeout_ms is None else options.timeout_ms / 1000
    session = Session(
        server, output, properties, options.variables, row_limit=options.row_limit, timeout_s=timeout_s
    )
    session.connect = connect
    try:
        if is_prompt:
            console.converse(session, console.history_file())
            return True
        if options.file is not None:
            return console.run_script(session, options.file)
        if options.execute is not None:
            return console.run_parts(session, all_parts_of(options.execute))
        return console.run_lines(session, sys.stdin)
    except Leave:
        return True
    finally:
        output.end_spool()
        session.server.close()


@contextmanager
def connected(options: ShellOptions) -> Iterator[Server]:
    """The server of the options, which has answered. Its errors end the command in one line."""
    _check_installed("httpx2")
    from felice.pipelines.sql.shell.client import Server, ShellError

    _, tls = _configured(options.config_file)
    user = login_of(options.user, options.password, "FELICE_SQL_PASSWORD")
    try:
        server = _answering(options.server, lambda url: Server(url, user, tls))
        try:
            yield server
        finally:
            server.close()
    except ShellError as error:
        raise Fault(str(error)) from None


def _answering(url: str | None, connect: Callable[[str], Server]) -> Server:
    """The server, which has answered once."""
    from felice.pipelines.sql.shell.client import DEFAULT_URL, NoAnswer, ShellError

    server = connect(url or DEFAULT_URL)
    try:
        server.info()
    except ShellError as error:
        server.close()
        if url is None and isinstance(error, NoAnswer):
            raise NoAnswer(f"{error}; {_START}") from None
        raise
    return server


def _check_installed(*modules: str) -> None:
    for module in modules:
        try:
            importlib.import_module(module)
        except ModuleNotFoundError:
            raise Fault(f"{module} is not installed; try: pip install 'felice[sql]'") from None


def _configured(file: Path | None) -> tuple[dict[str, str], ssl.SSLContext | None]:
    """The properties of the session, and the TLS of its connections, that a file has."""
    properties = read_properties(file) if file is not None else {}
    of_tls = {
        name: value for name, value in properties.items() if name.startswith("ssl.") or name == _VERIFICATION
    }
    if not of_tls:
        return properties, None
    return {name: value for name, value in properties.items() if name not in of_tls}, tls_of_clients(of_tls)
