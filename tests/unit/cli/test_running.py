"""Several applications in one process, with queries that only pretend to run."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import Row

from felice.cli import running as running_module
from felice.cli.faults import Fault
from felice.cli.running import Applications, Steps
from felice.pipelines.streams.on_spark.directory import Checkpoint, Description
from felice.pipelines.streams.on_spark.lock import RunLock, is_running
from felice.pipelines.streams.on_spark.places import PlaceError
from felice.pipelines.streams.on_spark.progress import METRICS
from felice.pipelines.streams.on_spark.running import Claim
from felice.streams import App


def progress(batch: int, rows: int = 5, skipped: int = 0) -> dict[str, Any]:
    return {
        "batchId": batch,
        "numInputRows": rows,
        "durationMs": {"triggerExecution": 10},
        "sources": [],
        "observedMetrics": {METRICS: Row(read=rows, skipped=skipped)},
    }


class Query:
    """Ends when it is stopped, or with an error."""

    def __init__(self, *, has_finished: bool = True) -> None:
        self.isActive = True
        self.lastProgress = {"batchId": 3}
        self.recentProgress = [progress(3)] if has_finished else []
        self.status = {"isTriggerActive": False}
        self.error: Exception | None = None

    def exception(self) -> Exception | None:
        return self.error

    def stop(self) -> None:
        self.isActive = False

    def fail(self, text: str) -> None:
        self.error, self.isActive = Exception(text), False


class Process:
    """Applications, and what happens while they run: one event each time that they wait."""

    def __init__(self, directory: Path, *names: str, restarts: int = 0, finish: bool = True) -> None:
        self.finish = finish
        self.directory = directory
        self.defined = [App(name) for name in names]
        self.queries: dict[str, list[Query]] = {}
        self.refused: set[str] = set()
        self.events: list[Callable[[], object]] = []
        self.is_interrupted = False
        self.applications = Applications(
            Steps(lambda: self.defined, self.claim, self.start, self.wait, lambda: self.is_interrupted),
            are_many=len(names) > 1,
            restarts=restarts,
        )

    def checkpoint(self, name: str) -> Checkpoint:
        return Checkpoint(self.directory / name)

    def claim(self, app: App) -> Claim:
        checkpoint = self.checkpoint(app.name)
        return Claim(app, checkpoint, RunLock(checkpoint, app.name).take())

    def start(self, claim: Claim) -> Query:
        name = claim.app.name
        if name in self.refused:
            raise Fault(f"{name} writes no topic")
        claim.checkpoint.describe(Description(name, "", 1, {}))
        self.queries.setdefault(name, []).append(Query(has_finished=self.finish))
        return self.queries[name][-1]

    def wait(self) -> None:
        self.events.pop(0)()

    def interrupt(self) -> None:
        self.is_interrupted = True

    def run(self, *events: Callable[[], object]) -> None:
        self.events = list(events)
        for claim in self.applications.claim(self.defined):
            self.applications.start(claim)
        self.applications.follow()
        assert not self.events

    def answer(self, name: str) -> dict[str, Any]:
        assert not self.checkpoint(name).reload_path.exists()
        return self.checkpoint(name).take_answer()


def test_one_that_fails_leaves_the_others_running_and_fails_the_process_in_the_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    process = Process(tmp_path, "a", "b")

    def while_a_is_gone() -> None:
        assert not is_running(process.checkpoint("a")) and is_running(process.checkpoint("b"))
        assert "KeyError: 'x'" in process.checkpoint("a").progress()["failure"]
        assert "error: a has failed; still running: b\nKeyError: 'x'" in capsys.readouterr().err
        process.checkpoint("b").stop_path.touch()

    with pytest.raises(Fault, match="^a has failed: KeyError: 'x'$"):
        process.run(lambda: process.queries["a"][0].fail("KeyError: 'x'"), while_a_is_gone)
    assert not is_running(process.checkpoint("b"))
    told = capsys.readouterr().err
    assert "b: stopping after this batch" in told and not process.checkpoint("b").stop_path.exists()


def test_progress_names_the_application_only_if_there_are_several(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for names, prefix in ((("a", "b"), "a: batch 3: 5 rows"), (("c",), "batch 3: 5 rows")):
        process = Process(tmp_path, *names)
        process.run(lambda process=process: [one.stop() for (one,) in process.queries.values()])
        assert any(line.startswith(prefix) for line in capsys.readouterr().err.splitlines())


def test_an_application_that_cannot_start_leaves_the_others(tmp_path: Path) -> None:
    process = Process(tmp_path, "a", "b", "c")
    process.refused.add("a")
    with RunLock(process.checkpoint("c"), "c"), pytest.raises(Fault) as raised:
        process.run(lambda: process.queries["b"][0].stop())
    assert sorted(line.partition(":")[0] for line in str(raised.value).splitlines()) == [
        "a has failed",
        "c has failed",
    ]
    assert not is_running(process.checkpoint("a"))


def test_the_error_of_an_only_application_is_raised_as_it_is(tmp_path: Path) -> None:
    process = Process(tmp_path, "a")
    process.refused.add("a")
    with pytest.raises(Fault, match="^a writes no topic$"):
        process.run()


def test_applications_are_added_removed_and_started_again(tmp_path: Path) -> None:
    process = Process(tmp_path, "a", "b")

    def change_the_file() -> None:
        process.queries["a"][0].fail("KeyError: 'x'")
        process.defined = [App("a"), App("c"), App("d")]
        process.refused.add("d")

    def check() -> None:
        assert process.answer("b") == {
            "started": ["a", "c"],
            "stopping": ["b"],
            "failed": {"d": "d writes no topic"},
        }
        assert [is_running(process.checkpoint(name)) for name in "abcd"] == [True, False, True, False]
        process.defined, process.refused = [*process.defined, App("b")], set()
        process.checkpoint("c").reload_path.touch()

    def end() -> None:
        assert process.answer("c") == {"started": ["d", "b"], "stopping": [], "failed": {}}
        for queries in process.queries.values():
            queries[-1].stop()

    process.run(change_the_file, lambda: process.checkpoint("b").reload_path.touch(), check, end)
    assert {name: len(queries) for name, queries in process.queries.items()} == {
        "a": 2,
        "b": 2,
        "c": 1,
        "d": 1,
    }


def test_a_file_that_cannot_be_read_again_stops_nothing(tmp_path: Path) -> None:
    process = Process(tmp_path, "a")

    def broken() -> list[App]:
        raise SyntaxError("invalid syntax")

    def ask() -> None:
        process.applications._steps = replace(process.applications._steps, read=broken)
        process.checkpoint("a").reload_path.touch()

    def check() -> None:
        assert process.answer("a")["failed"] == {"the file": "SyntaxError: invalid syntax"}
        process.queries["a"][0].stop()

    process.run(ask, check)


def test_an_interrupt_stops_all_after_their_batches_and_a_second_one_at_once(tmp_path: Path) -> None:
    process = Process(tmp_path, "a", "b")
    process.run(process.interrupt)
    assert not any(query.isActive for (query,) in process.queries.values())

    def interrupt_again() -> None:
        raise KeyboardInterrupt

    process = Process(tmp_path, "c")
    for claim in process.applications.claim(process.defined):
        process.applications.start(claim)
    query = process.queries["c"][0]
    query.status = {"isTriggerActive": True}
    process.interrupt()
    process.applications._follow_once()
    assert query.isActive
    query.stop = interrupt_again  # type: ignore[method-assign]
    query.lastProgress = {"batchId": 4}
    with pytest.raises(KeyboardInterrupt):
        process.applications.follow()
    assert not is_running(process.checkpoint("c"))


def test_an_interrupt_stops_all_while_one_is_stopping(tmp_path: Path) -> None:
    process = Process(tmp_path, "a", "b")
    for claim in process.applications.claim(process.defined):
        process.applications.start(claim)
    (a,), (b,) = process.queries["a"], process.queries["b"]
    a.status = {"isTriggerActive": True}
    process.checkpoint("a").stop_path.touch()
    process.applications._follow_once()
    process.interrupt()
    process.applications._follow_once()
    assert a.isActive and not b.isActive
    a.stop()
    process.applications.follow()


def test_the_end_of_java_is_the_failure_of_all(tmp_path: Path) -> None:
    process = Process(tmp_path, "a", "b")

    def end() -> None:
        raise ConnectionResetError

    with pytest.raises(Fault, match="a has failed: Spark's Java has ended"):
        process.run(end)
    assert "Java has ended" in process.checkpoint("b").progress()["failure"]


def test_the_lock_of_an_ended_application_names_no_java(tmp_path: Path) -> None:
    process = Process(tmp_path, "a", "b")

    def look() -> None:
        assert json.loads((process.checkpoint("a").directory / "lock").read_text())["java"] is None
        process.queries["b"][0].stop()

    def stop_a() -> None:
        process.applications._running["a"]._claim.lock.note_java(1)
        process.queries["a"][0].stop()

    process.run(stop_a, look)


def test_skipped_records_are_counted_since_the_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    process = Process(tmp_path, "a")

    def look() -> None:
        assert process.checkpoint("a").progress()["skipped"] == 2
        process.queries["a"][0].recentProgress += [progress(4, 0), progress(4, 3, 1), progress(5, 1, 0)]
        process.queries["a"][0].stop()

    def skip() -> None:
        process.queries["a"][0].recentProgress = [progress(3, 5, 2)]

    query_made = process.start

    def start(claim: Claim) -> Query:
        query = query_made(claim)
        skip()
        return query

    process.applications._steps = replace(process.applications._steps, start=start)
    process.run(look)
    told = [line for line in capsys.readouterr().err.splitlines() if line.startswith("batch")]
    assert [line.rpartition(", ")[2] for line in told] == [
        "2 skipped so far",
        "3 skipped so far",
        "3 skipped so far",
    ]
    assert process.checkpoint("a").progress()["skipped"] == 3


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running_module, "LONGEST_PAUSE_S", 0.01)


@pytest.mark.usefixtures("short_pauses")
def test_a_failed_application_starts_again_until_it_has_failed_too_often(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    process = Process(tmp_path, "a", restarts=2, finish=False)
    fails = [
        lambda number=number: process.queries["a"][number].fail(f"KeyError: '{number}'")
        for number in range(3)
    ]
    with pytest.raises(Fault, match="^KeyError: '2'$"):
        process.run(*fails)
    assert len(process.queries["a"]) == 3 and not is_running(process.checkpoint("a"))
    told = capsys.readouterr().err
    assert (
        "failed, starts again in 0.01 s (attempt 1 of 2): KeyError: '0'" in told and "attempt 2 of 2" in told
    )


@pytest.mark.usefixtures("short_pauses")
def test_a_finished_batch_ends_the_row_of_failures(tmp_path: Path) -> None:
    process = Process(tmp_path, "a", restarts=1)
    fails = [lambda number=number: process.queries["a"][number].fail("KeyError: 'x'") for number in range(4)]
    process.run(*fails, lambda: process.queries["a"][4].stop())
    assert len(process.queries["a"]) == 5


def test_an_application_that_waits_for_its_start_ends_with_its_reason_after_an_interrupt(
    tmp_path: Path,
) -> None:
    process = Process(tmp_path, "a", "b", restarts=5)

    def fail_and_interrupt() -> None:
        process.queries["a"][0].fail("KeyError: 'x'")
        process.interrupt()

    with pytest.raises(Fault, match="a has failed: KeyError: 'x'"):
        process.run(fail_and_interrupt)
    assert len(process.queries["a"]) == 1


def test_the_pauses_grow_to_a_minute_and_end_with_an_interrupt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now, slept = 0.0, 0

    class Time:
        @staticmethod
        def monotonic() -> float:
            return now

        @staticmethod
        def sleep(seconds: float) -> None:
            nonlocal now, slept
            assert len(process.queries["a"]) == 1 + int(told().count("starts again")) - 1, (
                "not before its time"
            )
            now, slept = now + 0.5, slept + 1
            if slept == 300:
                process.interrupt()

    def told() -> str:
        nonlocal seen
        seen += capsys.readouterr().err
        return seen

    seen = ""
    monkeypatch.setattr(running_module, "time", Time)
    process = Process(tmp_path, "a", restarts=20, finish=False)
    fails = [lambda number=number: process.queries["a"][number].fail("KeyError: 'x'") for number in range(8)]
    with pytest.raises(Fault, match="KeyError: 'x'"):
        process.run(*fails)
    pauses = [
        line.partition("again in ")[2].partition(" s")[0]
        for line in told().splitlines()
        if "again in" in line
    ]
    assert pauses == ["1", "2", "4", "8", "16", "32", "60", "60"]


@pytest.mark.usefixtures("short_pauses")
def test_an_application_that_fails_while_it_stops_is_not_started_again(tmp_path: Path) -> None:
    process = Process(tmp_path, "a", restarts=5)

    def stop_and_fail() -> None:
        process.checkpoint("a").stop_path.touch()
        process.applications._running["a"].step()
        process.queries["a"][0].fail("KeyError: 'x'")

    with pytest.raises(Fault, match="KeyError: 'x'"):
        process.run(stop_and_fail)
    assert len(process.queries["a"]) == 1


def test_an_application_that_the_file_no_longer_defines_is_not_started_again(tmp_path: Path) -> None:
    process = Process(tmp_path, "a", "b", restarts=5)

    def fail_and_reload() -> None:
        process.queries["a"][0].fail("KeyError: 'x'")
        process.defined = process.defined[1:]

    def reload_and_stop() -> None:
        process.applications.reload()
        process.queries["b"][0].stop()

    process.run(fail_and_reload, reload_and_stop)
    assert len(process.queries["a"]) == 1


def test_locks_are_taken_at_the_same_time(tmp_path: Path) -> None:
    process = Process(tmp_path, "a", "b")
    both = threading.Barrier(2)
    take = process.claim

    def claim(app: App) -> Claim:
        both.wait(60)  # As if each waited for a machine that may still run the application.
        return take(app)

    process.applications._steps = replace(process.applications._steps, claim=claim)
    process.run(process.interrupt)
    assert sorted(process.queries) == ["a", "b"]


@pytest.mark.usefixtures("short_pauses")
def test_an_outage_of_the_place_is_a_failure_like_others(tmp_path: Path) -> None:
    process = Process(tmp_path, "a", restarts=2, finish=False)
    take, outages = process.claim, iter([PlaceError("s3://b cannot be read or written: refused")])

    def claim(app: App) -> Claim:
        if process.queries and (outage := next(outages, None)) is not None:
            raise outage
        return take(app)

    process.applications._steps = replace(process.applications._steps, claim=claim)
    process.run(lambda: process.queries["a"][0].fail("KeyError: 'x'"), lambda: process.queries["a"][1].stop())
    assert len(process.queries["a"]) == 2
