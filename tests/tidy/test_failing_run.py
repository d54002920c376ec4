"""A failing `make test` names the tests that failed in its last lines, of all the runs that it makes side by side."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

COMPUTING = """
def test_right(): pass
def test_wrong(): assert False
"""
PIPELINES = """
def test_wrong_too(): assert False
"""
OTHERS = """
import pytest

@pytest.fixture
def broken(): raise OSError("no room")

def test_without_its_fixture(broken): pass
"""


def make_test(tmp_path: Path, computing: str, pipelines: str, others: str) -> tuple[int, list[str]]:
    """`make test` over a tree of three test files, and what it prints."""
    for folder in ("unit", "streams"):
        (tmp_path / "tests" / folder).mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\ntestpaths = ['tests']")
    (tmp_path / "tests" / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text())
    (tmp_path / "tests" / "unit" / "test_computing.py").write_text(computing)
    (tmp_path / "tests" / "streams" / "test_pipeline.py").write_text(pipelines)
    (tmp_path / "tests" / "test_others.py").write_text(others)
    runner = f"{sys.executable} -m pytest -p no:cacheprovider"
    # `-o`: what the target depends on counts as made.
    folders = ["PARTS=computing pipelines others", "computing=tests/unit", "pipelines=tests/streams"]
    command = ["make", "-f", str(ROOT / "Makefile"), "-o", "./.dev", "test", "VENV=.", *folders]
    # As from a shell: within `make test`, make would also print the directories that it enters and leaves.
    environment = {
        name: value for name, value in os.environ.items() if name not in ("MAKELEVEL", "MAKEFLAGS", "MFLAGS")
    }
    done = subprocess.run(
        [*command, f"PYTEST={runner}"], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    return done.returncode, done.stdout.splitlines()


def test_failures_of_all_runs_are_the_last_lines(tmp_path: Path) -> None:
    status, lines = make_test(tmp_path, COMPUTING, PIPELINES, OTHERS)
    assert status != 0
    assert lines[-4:] == [
        "Failed:",
        "FAILED tests/unit/test_computing.py::test_wrong",
        "FAILED tests/streams/test_pipeline.py::test_wrong_too",
        "ERROR tests/test_others.py::test_without_its_fixture",
    ]


RIGHT = "def test_right(): pass"


@pytest.mark.parametrize("part", ["computing", "pipelines", "others"])
def test_a_run_that_dies_is_named(tmp_path: Path, part: str) -> None:
    tests = dict.fromkeys(["computing", "pipelines", "others"], RIGHT) | {part: "import os; os._exit(7)"}
    status, lines = make_test(tmp_path, **tests)
    assert status != 0
    assert lines[-2:] == ["Failed:", f"the run of the part {part} ended before its last test (exit 7)"]


def test_a_run_that_succeeds_says_nothing_more(tmp_path: Path) -> None:
    status, lines = make_test(tmp_path, RIGHT, RIGHT, RIGHT)
    assert status == 0
    assert "Failed:" not in lines
