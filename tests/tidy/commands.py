"""Every command that the package installs, and every command below those."""

from __future__ import annotations

import importlib
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


def programs() -> dict[str, click.Command]:
    """The installed programs: by name, the command that the module behind each declares."""
    scripts = tomllib.loads(PYPROJECT.read_text())["project"]["scripts"]
    return {
        name: _declared(importlib.import_module(target.partition(":")[0]), name)
        for name, target in scripts.items()
    }


def _declared(module: object, name: str) -> click.Command:
    [command] = {
        id(found): found
        for found in vars(module).values()
        if isinstance(found, click.Command) and found.name == name
    }.values()
    return command


def all_commands() -> Iterator[tuple[str, click.Command]]:
    """The words of each command (`felice topics create`), and the command."""
    for name, command in programs().items():
        yield from _below(name, command)


def _below(words: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    yield words, command
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=words)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from _below(f"{words} {name}", found)
