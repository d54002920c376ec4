"""The bench itself: its runs resume, its reports compare turns, its simulated clusters count, its names exist."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest

from felice.streams import TestDriver
from waiting import wait_until

ROOT = Path(__file__).parents[3]
JAVA = ROOT / "tests" / "conformance" / "programs" / "java-applications"


@pytest.fixture(autouse=True)
def bench_is_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))


class FakeSystems:
    """Two systems; each notes its turns. `missing` cannot be had, `broken` fails in its second turn."""

    def __init__(self) -> None:
        self.turns: list[str] = []
        self.missing: str | None = None
        self.broken: str | None = None

    def workload(self) -> Any:
        from bench.full import Workload

        systems = {name: lambda name=name: self._running(name) for name in ("one", "two")}
        return Workload(systems, lambda options: self._measure, is_warmed_up=False)

    @contextmanager
    def _running(self, name: str) -> Any:
        from bench.programs import Unavailable

        if name == self.missing:
            raise Unavailable(f"{name} is not here")
        yield name

    def _measure(self, name: str) -> dict[str, float]:
        self.turns.append(name)
        if name == self.broken and self.turns.count(name) == 2:
            raise RuntimeError("broken")
        return {"messages/s": 100.0 * len(self.turns)}


@pytest.fixture
def systems(monkeypatch: pytest.MonkeyPatch) -> FakeSystems:
    from bench import full

    fake = FakeSystems()
    monkeypatch.setattr(full, "WORKLOADS", {"fake": fake.workload()})
    return fake


def _run(directory: Path, turns: int, scale: float = 1.0) -> Any:
    from bench.full import Options, Run

    return Run(directory, Options(scale, 1.0), turns)


def test_turns_alternate(systems: FakeSystems, tmp_path: Path) -> None:
    _run(tmp_path, 3).measure("fake")
    assert systems.turns == ["one", "two", "two", "one", "one", "two"]


def test_an_interrupted_run_goes_on_where_it_stopped(systems: FakeSystems, tmp_path: Path) -> None:
    systems.broken = "two"
    with pytest.raises(RuntimeError, match="broken"):
        _run(tmp_path, 2).measure("fake")
    assert systems.turns == ["one", "two", "two"]
    _run(tmp_path, 2).measure("fake")
    assert systems.turns[3:] == ["two", "one"]
    _run(tmp_path, 2).measure("fake")
    assert len(systems.turns) == 5


def test_turns_of_another_size_are_measured_again(systems: FakeSystems, tmp_path: Path) -> None:
    _run(tmp_path, 1).measure("fake")
    _run(tmp_path, 1, scale=0.5).measure("fake")
    assert systems.turns == ["one", "two", "one", "two"]


def test_a_system_that_cannot_be_had_is_named_and_asked_again(systems: FakeSystems, tmp_path: Path) -> None:
    from bench import report

    systems.missing = "two"
    run = _run(tmp_path, 1)
    run.measure("fake")
    report.write(tmp_path, run.rows)
    assert "Not measured: two: two is not here" in (tmp_path / "table.md").read_text()
    systems.missing = None
    run = _run(tmp_path, 1)
    run.measure("fake")
    assert systems.turns == ["one", "two"]


def test_a_report_has_medians_ranges_and_ratios(systems: FakeSystems, tmp_path: Path) -> None:
    from bench import report

    run = _run(tmp_path, 3)
    run.measure("fake")
    report.write(tmp_path, run.rows)
    # The turns of `one` gave 100, 400 and 500, those of `two` 200, 300 and 600.
    table = (tmp_path / "table.md").read_text()
    assert "| fake | messages/s | one | 400 | 100 to 500 | 3 |  |" in table
    assert "| fake | messages/s | two | 300 | 200 to 600 | 3 | 1.33 (0.50 to 1.33) |" in table
    assert (tmp_path / "fake.svg").read_text().startswith("<svg")
    assert "make bench-full ONLY=fake TURNS=3" in (tmp_path / "result.json").read_text()


def test_a_ratio_to_nothing_is_no_ratio() -> None:
    from bench import report

    assert report.ratio([1.0], [0.0]) is None


def test_a_simulated_cluster_goes_through_all_phases_and_counts() -> None:
    from bench.scale import ScaleRun, Size

    phases = {phase.phase: phase for phase in ScaleRun(Size(3, 40, 20)).run()}
    created, lost = phases["create all partitions"], phases["loss of a broker"]
    # Two topics, each with a topic-id node and its parent, and 40 partitions with their states.
    assert created.nodes_written >= 2 * 40 + 2
    assert created.events == 3 * created.nodes_written
    assert created.event_bytes > 32 * created.events
    # Its leaders and its places in ISRs change, in few transactions; two brokers are left to hear of it.
    assert 40 <= lost.nodes_written <= 44
    assert lost.transactions <= 4
    # The session of 18 s, which the broker had last confirmed up to a tenth of a second before.
    assert lost.virtual_s > 17.85
    assert phases["10 idle seconds"].transactions == 0


@pytest.mark.parametrize("kind", ["words", "count", "undo", "hopping", "join", "sessions"])
def test_a_stream_application_answers_marked_records_in_both_systems(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FELICE_BENCH_STREAM", f"{kind} in table out")
    driver = TestDriver(run_path(str(ROOT / "bench" / "stream_application.py"))["app"])
    if kind == "join":
        driver.send("table", "mark-1", "row", 0)
    driver.send("in", "mark-1", "mark-1", 0)
    written = driver.read("out")
    assert any("mark-1" in f"{record.key} {record.value}" for record in written)
    assert f'case "{kind}"' in (JAVA / "StreamsLoad.java").read_text()


def test_memory_of_a_process_is_sampled_until_the_context_ends() -> None:
    from bench.systems import sampled_mib

    before = threading.active_count()
    with sampled_mib(os.getpid()) as samples:
        wait_until(lambda: len(samples) > 1)
    assert min(samples) > 1
    assert threading.active_count() == before


def test_the_processor_time_of_ended_children_counts() -> None:
    from bench.systems import tree_total_cpu_seconds

    before = tree_total_cpu_seconds(os.getpid())
    subprocess.run([sys.executable, "-c", "sum(range(2_000_000))"], check=True)
    # The child alone needs more than this; what this process used meanwhile is far less.
    assert tree_total_cpu_seconds(os.getpid()) - before >= 0.02


def test_documentation_names_workloads_that_exist() -> None:
    from bench import __main__ as small
    from bench import full

    known = {*small.ALL, *full.WORKLOADS}
    found = 0
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        text = page.read_text()
        lists = re.findall(r"-m bench(?:\.full)? ((?:[a-z0-9-]+ ?)+)", text)
        lists += re.findall(r"make bench-full ONLY=\"?((?:[a-z0-9-]+ ?)+)", text)
        for names in lists:
            for name in names.split():
                if name.startswith("--") or name.isdecimal():
                    break
                assert name in known or name == "cluster-", f"{page.name} names {name}, which is no workload"
                found += 1
    assert found > 10


@pytest.mark.parametrize("kind", ["count", "join"])
def test_the_steps_of_sql_are_measured_beside_those_of_python(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyspark")
    from bench import sql_steps

    monkeypatch.setattr(sql_steps, "_KEYS", 100)
    monkeypatch.setattr(sql_steps, "_BATCH", 50)
    monkeypatch.setenv("FELICE_BENCH_STREAM", "")
    found = sql_steps.measure(kind, 200, None)
    assert found.keys() == {"sql", "python"} and min(found.values()) > 0
