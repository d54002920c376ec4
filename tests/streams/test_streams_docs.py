"""The examples of docs/streams.md run as they stand."""

import re
from pathlib import Path

import pytest

DOCUMENT = Path(__file__).parents[2] / "docs" / "streams.md"
EXAMPLES = dict(
    re.findall(r"<!-- example: ([\w ]+) -->\n```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
)


def test_every_example_is_found() -> None:
    assert len(EXAMPLES) == DOCUMENT.read_text().count("```python")


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs(name: str) -> None:
    exec(compile(EXAMPLES[name], f"{DOCUMENT.name}: {name}", "exec"), {})
