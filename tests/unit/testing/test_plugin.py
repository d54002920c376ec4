"""The pytest plugin: its fixtures, and its cost for tests that use none of them."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[3] / "src"
IS_INSTALLED = any(point.name == "felice" for point in entry_points(group="pytest11"))


def run(folder: Path, test: str, ini: str = "") -> subprocess.CompletedProcess[str]:
    """The test suite of an application, in a process of its own."""
    (folder / "pytest.ini").write_text(f"[pytest]\naddopts = --strict-markers -p no:cacheprovider\n{ini}")
    (folder / "test_theirs.py").write_text(test)
    plugin = [] if IS_INSTALLED else ["-p", "felice.testing.plugin"]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugin],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


def assert_passes(outcome: subprocess.CompletedProcess[str], passed: int) -> None:
    assert f"{passed} passed" in outcome.stdout, outcome.stdout + outcome.stderr
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr


def test_every_test_gets_a_fresh_broker_with_the_topics_of_the_configuration(tmp_path: Path) -> None:
    ini = "felice_topics =\n  orders:3\n  payments\nfelice_properties = num.partitions=2\n"
    test = """
import pytest

@pytest.mark.parametrize("turn", [1, 2])
def test_fresh(felice_broker, turn):
    assert felice_broker.records("orders") == []
    felice_broker.produce("orders", "v", partition=2)
    felice_broker.produce("payments", "v", partition=0)
    felice_broker.produce("made.by.itself", "v", partition=1)

@pytest.mark.felice(topics={"audit": 4}, properties={"num.partitions": "5"})
def test_marked(felice_broker):
    felice_broker.produce("audit", "v", partition=3)
    felice_broker.produce("orders", "v", partition=2)
    felice_broker.produce("made.by.itself", "v", partition=4)
"""
    assert_passes(run(tmp_path, test, ini), 3)


def test_the_session_broker_is_the_same_for_all_tests(tmp_path: Path) -> None:
    test = """
def test_first(felice_broker_session):
    felice_broker_session.produce("orders", "v")

def test_second(felice_broker_session, felice_broker):
    assert len(felice_broker_session.records("orders")) == 1
    assert felice_broker.port != felice_broker_session.port
"""
    assert_passes(run(tmp_path, test), 2)


@pytest.mark.parametrize("ini", ["felice_topics = orders:many\n", "felice_properties = num.partitions\n"])
def test_a_setting_that_cannot_be_read_is_named(tmp_path: Path, ini: str) -> None:
    outcome = run(tmp_path, "def test_it(felice_broker): pass\n", ini)
    assert ini.split()[2] in outcome.stdout + outcome.stderr
    assert outcome.returncode != 0


REFUSED_MARKS = [
    (
        "topic={'a': 1}",
        "felice: the mark has no argument topic (did you mean topics?); it takes topics and properties",
    ),
    ("{'a': 1}", "felice: the mark takes topics and properties by name, not {'a': 1}"),
    (
        "topics='orders'",
        "felice: topics must be names, or names with numbers of partitions, not 'orders'",
    ),
    ("topics={'a': 0}", "felice: topic a needs a number of partitions of 1 or more, not 0"),
    ("topics=['a b']", "felice: INVALID_TOPIC_EXCEPTION"),
    (
        "properties={'num.partitons': '2'}",
        "felice: unknown configuration: num.partitons (did you mean num.partitions?)",
    ),
    (
        "properties={'num.partitions': 2}",
        "felice: the value of num.partitions must be text as in a file, not 2",
    ),
    (
        "properties={'num.partitions': 'two'}",
        "felice: Invalid value two for configuration num.partitions",
    ),
]


def test_a_malformed_mark_fails_with_one_line(tmp_path: Path) -> None:
    tests = (
        f"@pytest.mark.felice({mark})\ndef test_{number}(felice_broker): pass\n"
        for number, (mark, _) in enumerate(REFUSED_MARKS)
    )
    outcome = run(tmp_path, "import pytest\n\n" + "\n".join(tests))
    for _, said in REFUSED_MARKS:
        assert f"\n{said}" in outcome.stdout, outcome.stdout
    assert "src/felice" not in outcome.stdout, "no traceback buries the message"
    assert f"{len(REFUSED_MARKS)} errors" in outcome.stdout


def test_a_suite_that_uses_no_fixture_loads_no_broker(tmp_path: Path) -> None:
    test = """
import sys

def test_it():
    loaded = {name for name in sys.modules if name.startswith("felice")}
    assert loaded == {"felice", "felice.late_names", "felice.testing", "felice.testing.plugin"}
"""
    assert_passes(run(tmp_path, test), 1)
