"""Runs the examples of docs/testing.md unchanged."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import felice

pytestmark = pytest.mark.felice_only

DOCUMENT = Path(__file__).parents[2] / "docs" / "testing.md"
EXAMPLES = re.findall(r"<!-- example: (\w+) -->\n```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)


def run(*arguments: str, folder: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(felice.__file__).parents[1])}
    outcome = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr


def test_there_are_examples_for_pytest_confluent_kafka_and_aiokafka() -> None:
    assert [kind for kind, _ in EXAMPLES] == ["pytest", *["python"] * 4]
    assert "import aiokafka" in EXAMPLES[2][1]


@pytest.mark.parametrize("kind, code", EXAMPLES, ids=["pytest", "confluent", "aiokafka", "cluster", "disk"])
def test_an_example_runs(kind: str, code: str, tmp_path: Path) -> None:
    (tmp_path / "test_example.py").write_text(code)
    if kind == "python":
        run("-W", "error::ResourceWarning", "test_example.py", folder=tmp_path)
        return
    is_installed = any(point.name == "felice" for point in entry_points(group="pytest11"))
    plugin = [] if is_installed else ["-p", "felice.testing.plugin"]
    run("-m", "pytest", "-q", *plugin, folder=tmp_path)
