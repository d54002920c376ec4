"""Kafka's own tools, with their names, options and output, on the functions of `felice.cli`.

Each module is one tool. An option of the original that is missing here is answered with
`No such option`; docs/compatibility.md lists these options.
"""

from __future__ import annotations

from collections.abc import Callable

import click

from felice import __version__
from felice.cli.command_group import CommandGroup
from felice.cli.main import run_process

Declaration = Callable[..., None]

bootstrap_server_option = click.option(
    "--bootstrap-server", required=True, metavar="HOST:PORT,…", help="Brokers to connect to first."
)


def kafka_tool(
    name: str, kind: type[click.Command] = click.Command
) -> Callable[[Declaration], click.Command]:
    """Declares a tool with the option --version, which all of Kafka's tools have."""
    return lambda declared: click.command(name, cls=kind)(_version_option(name)(declared))


def kafka_tool_group(name: str) -> Callable[[Declaration], CommandGroup]:
    """Declares a tool that has subcommands."""
    return lambda declared: click.group(name, CommandGroup)(_version_option(name)(declared))


def _version_option(name: str) -> Callable[[Declaration], Declaration]:
    return click.version_option(__version__, prog_name=name, message="%(prog)s (Felice) %(version)s")


def run_tool(command: click.Command) -> None:
    """Runs a tool as the whole process. As with Kafka's tools, wrong usage exits with code 1."""
    run_process(command, usage_code=1)
