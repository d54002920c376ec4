"""Kafka's own tools by their names, options and output: a second face of the same functions.

Each module is one tool. Where an option of the original is missing here, the
tool says `No such option`, and docs/compatibility.md lists it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from felice import __version__
from felice.cli.command_group import CommandGroup
from felice.cli.main import run_process

Declaration = Callable[..., Any]

bootstrap_server_option = click.option(
    "--bootstrap-server", required=True, metavar="HOST:PORT,…", help="Brokers to connect to first."
)


def kafka_tool(name: str) -> Callable[[Declaration], click.Command]:
    """Declares a tool, with the option that every one of Kafka's tools has: --version."""
    return lambda declared: click.command(name)(_version_option(name)(declared))


def kafka_tool_group(name: str) -> Callable[[Declaration], CommandGroup]:
    """Declares a tool that has subcommands."""
    return lambda declared: click.group(name, CommandGroup)(_version_option(name)(declared))


def _version_option(name: str) -> Callable[[Declaration], Declaration]:
    return click.version_option(__version__, prog_name=name, message="%(prog)s (Felice) %(version)s")


def run_tool(command: click.Command) -> None:
    """Kafka's tools exit with code 1 on wrong usage too."""
    run_process(command, usage_code=1)
