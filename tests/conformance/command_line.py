"""Runs commands in the test's process with the arguments and output streams of a shell."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import click
import pytest

from felice.cli import main

Run = Callable[..., str]
# For a command in a process of its own, on a machine under heavy load.
COMMAND_TIMEOUT_S = 120.0


def run_command(
    command: click.Command, words: Sequence[str], code: int, capsys: pytest.CaptureFixture[str]
) -> str:
    """Returns what the command prints: standard output if it succeeds, standard error if `code` is not 0."""
    capsys.readouterr()
    found = main.run(command, words, usage_code=1)
    captured = capsys.readouterr()
    assert found == code, captured.out + captured.err
    return captured.out if code == 0 else captured.err
