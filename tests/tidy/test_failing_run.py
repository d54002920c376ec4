"""A failing `make test` names the tests that failed in its last lines, of both runs that it makes side by side."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

COMPUTING = """
def test_right(): pass
def test_wrong(): assert False
"""
WAITING = """
import pytest

@pytest.fixture
def broken(): raise OSError("no room")

def test_without_its_fixture(broken): pass
"""


def make_test(tmp_path: Path, computing: str, waiting: str) -> tuple[int, list[str]]:
    """`make test` over a tree of two test files, and what it prints."""
    (tmp_path / "tests" / "unit").mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\ntestpaths = ['tests']")
    (tmp_path / "tests" / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text())
    (tmp_path / "tests" / "unit" / "test_computing.py").write_text(computing)
    (tmp_path / "tests" / "test_waiting.py").write_text(waiting)
    pytest = f"{sys.executable} -m pytest -p no:cacheprovider"
    # `-o`: what the target depends on counts as made.
    command = ["make", "-f", str(ROOT / "Makefile"), "-o", "./.dev", "test", "VENV=.", "COMPUTING=tests/unit"]
    # As from a shell: within `make test`, make would also print the directories that it enters and leaves.
    environment = {
        name: value for name, value in os.environ.items() if name not in ("MAKELEVEL", "MAKEFLAGS", "MFLAGS")
    }
    done = subprocess.run(
        [*command, f"PYTEST={pytest}"], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    return done.returncode, done.stdout.splitlines()


def test_failures_of_both_runs_are_the_last_lines(tmp_path: Path) -> None:
    status, lines = make_test(tmp_path, COMPUTING, WAITING)
    assert status != 0
    assert lines[-3:] == [
        "Failed:",
        "FAILED tests/unit/test_computing.py::test_wrong",
        "ERROR tests/test_waiting.py::test_without_its_fixture",
    ]


def test_a_run_that_dies_is_named(tmp_path: Path) -> None:
    status, lines = make_test(tmp_path, "def test_right(): pass", "import os; os._exit(7)")
    assert status != 0
    assert lines[-2:] == ["Failed:", "the run of the other tests ended before its last test (exit 7)"]


def test_a_run_that_succeeds_says_nothing_more(tmp_path: Path) -> None:
    status, lines = make_test(tmp_path, "def test_right(): pass", "def test_right(): pass")
    assert status == 0
    assert "Failed:" not in lines
