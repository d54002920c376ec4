"""What docs/client.md says of configuration keys is what the client takes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from felice.client.keys import Key
from felice.client.options import KEYS

DOCUMENT = Path(__file__).parents[2] / "docs" / "client.md"
ROW = re.compile(r"^\| `([^`]+)` \| ([^|]*) \| ([pca]+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
ROWS = {row[0]: row for row in ROW.findall(DOCUMENT.read_text().replace("| |", "|  |"))}


def test_the_table_names_every_key_and_no_other() -> None:
    assert list(ROWS) == [key.name for key in sorted(KEYS, key=lambda key: list(ROWS).index(key.name))]


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.name)
def test_the_table_says_what_a_key_is(key: Key) -> None:
    _, also, clients, default, what = ROWS[key.name]
    assert tuple(re.findall(r"`([^`]+)`", also)) == key.aliases
    assert clients == key.clients
    assert _value(key, default.strip()) == key.default
    assert what.strip()


def _value(key: Key, said: str) -> Any:
    """A default as the table has it, through the key's own parser."""
    if said in ("required", "none"):
        return key.default if key.default in (None, "") else said
    return key.parse(said.strip("`"))
