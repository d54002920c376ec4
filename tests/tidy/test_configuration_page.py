"""docs/configuration.md is made from the declarations of options, and its commands are commands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click

from felice.config import BROKER_OPTIONS, TOPIC_OPTIONS
from felice.config.reference import page
from tidy.commands import programs
from tidy.test_commands import parse

DOCUMENT = Path(__file__).parents[2] / "docs" / "configuration.md"


def test_the_page_of_options_is_up_to_date() -> None:
    assert DOCUMENT.read_text() == page(), "run `make docs`"


def test_every_option_has_a_row_with_a_meaning() -> None:
    rows = {
        row[0]: row for row in re.findall(r"^\| `([^`]+)` \| (.*) \|$", DOCUMENT.read_text(), re.MULTILINE)
    }
    for name in BROKER_OPTIONS.keys() | TOPIC_OPTIONS.keys():
        cells = rows[name][1].split(" | ")
        assert any(cell.endswith(".") and len(cell) > 10 for cell in cells), rows[name]


def test_the_commands_on_the_page_are_accepted() -> None:
    commands = re.findall(r"^    ((?:felice|kafka-configs) .*)$", DOCUMENT.read_text(), re.MULTILINE)
    assert len(commands) >= 5
    for command in commands:
        program, *arguments = shlex.split(command)
        parse(programs()[program], arguments, click.Context(programs()[program], info_name=program))


def test_options_of_tls_change_with_a_listeners_prefix_only() -> None:
    """The page says what a broker does: it refuses such a change without the prefix."""
    told = {
        line.split("`")[1]: line.split(" | ")[4]
        for line in page().splitlines()
        if "at once" in line and "` |" in line
    }
    assert "with a listener's prefix only" in told["ssl.keystore.location"]
    assert "prefix" not in told["max.connections"]
