"""A failing `make test` names the tests that failed in its last lines, of all the runs that it makes side by side."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# As from a shell: within `make test`, make would also print the directories that it enters and leaves.
ENVIRONMENT = {
    name: value for name, value in os.environ.items() if name not in ("MAKELEVEL", "MAKEFLAGS", "MFLAGS")
}

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
    return make(tmp_path, "test")


def make(tmp_path: Path, target: str) -> tuple[int, list[str]]:
    """What `make` returns and prints."""
    runner = f"{sys.executable} -m pytest -p no:cacheprovider"
    # `-o`: what the target depends on counts as made.
    # One part at a time: each is run, also after one that failed.
    folders = ["PARTS=computing pipelines others", "computing=tests/unit", "pipelines=tests/streams"]
    folders += ["PARTS_AT_ONCE=1"]
    command = ["make", "-f", str(ROOT / "Makefile"), "-o", "./.dev", target, "VENV=.", *folders]
    done = subprocess.run(
        [*command, f"PYTEST={runner}"], cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True
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
FAILS_ONCE = """
from pathlib import Path

def test():
    mark = Path("mark")
    found = mark.exists()
    mark.touch()
    assert found
"""
# pytest runs no test of a part of which it cannot import one file.
BROKEN = "import nothing_of_this_name"
# As if Python crashed after pytest has written the file.
CRASHED = """
import atexit, os
atexit.register(os._exit, 139)
def test_right(): pass
"""


@pytest.mark.parametrize(
    ("part", "text", "status"),
    [("computing", "import os; os._exit(7)", 7), ("pipelines", CRASHED, 139), ("others", BROKEN, 2)],
)
def test_a_run_that_dies_is_named_and_not_repaired_by_retest(
    tmp_path: Path, part: str, text: str, status: int
) -> None:
    tests = dict.fromkeys(["computing", "pipelines", "others"], RIGHT) | {part: text}
    failed, lines = make_test(tmp_path, **tests)
    assert failed != 0
    assert lines[-1] == f"the run of the part {part} ended before its last test (exit {status})"
    refused, _ = make(tmp_path, "retest")
    assert refused != 0


def test_retest_runs_what_failed_again(tmp_path: Path) -> None:
    assert make_test(tmp_path, FAILS_ONCE, RIGHT, RIGHT)[0] != 0
    status, lines = make(tmp_path, "retest")
    assert (status, lines[-2:]) == (
        0,
        ["Failed first, passed alone:", "  tests/unit/test_computing.py::test"],
    )


def test_each_test_is_in_one_part() -> None:
    show = "show:;@$(foreach one,$(PARTS),echo '$(one) $($(one))';)"
    command = ["make", "--no-print-directory", f"--eval={show}", "show"]
    done = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, check=True)
    parts = {name: paths for name, *paths in map(str.split, done.stdout.splitlines())}
    left_out = [word.removeprefix("--ignore=") for word in parts.pop("others")]
    assert sorted(left_out) == sorted(path for paths in parts.values() for path in paths)
    assert not [(one, other) for one in left_out for other in left_out if one.startswith(other + "/")]


def test_a_run_that_succeeds_says_nothing_more(tmp_path: Path) -> None:
    status, lines = make_test(tmp_path, RIGHT, RIGHT, RIGHT)
    assert status == 0
    assert "Failed:" not in lines
