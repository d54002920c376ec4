"""Commands run within the test's process, as a shell would run them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import click
import pytest

from felice.cli import main

Run = Callable[..., str]


def run_command(
    command: click.Command, words: Sequence[str], code: int, capsys: pytest.CaptureFixture[str]
) -> str:
    """What it prints when it succeeds, and what it says on standard error when it is to fail."""
    capsys.readouterr()
    found = main.run(command, words, usage_code=1)
    captured = capsys.readouterr()
    assert found == code, captured.out + captured.err
    return captured.out if code == 0 else captured.err
