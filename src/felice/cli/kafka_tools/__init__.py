"""Kafka's own tools by their names, options and output: a second face of the same functions.

Each module is one tool. Where an option of the original is missing here, the
tool says `No such option`, and docs/compatibility.md lists it.
"""

from __future__ import annotations

import click

from felice.cli.main import run_process


def run_tool(command: click.Command) -> None:
    """Kafka's tools end with exit code 1 on wrong usage, too."""
    run_process(command, usage_code=1)
