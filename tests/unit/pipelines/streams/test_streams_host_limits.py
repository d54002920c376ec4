"""What ends an App of a host that does not return, and what is counted of the records that Apps leave out."""

from __future__ import annotations

import json
import re
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")

from felice.client.blocking import BlockingConfig
from felice.client.error import KafkaError, KafkaException
from felice.pipelines.spark.commit import Decision
from felice.pipelines.streams.on_spark.directory import Checkpoint, write_durably
from felice.pipelines.streams.on_spark.host import host as host_module
from felice.pipelines.streams.on_spark.host.failing import Failed, HostedAppsFailed, failed_in, named
from felice.pipelines.streams.on_spark.host.host import Host, attempts_of_tasks
from felice.pipelines.streams.on_spark.host.left_out import LeftOut, counts_of
from felice.pipelines.streams.on_spark.host.outages import Outages
from felice.pipelines.streams.on_spark.host.plans import HostPlan, PlanFiles
from felice.pipelines.streams.on_spark.host.positions import Positions
from felice.pipelines.streams.on_spark.progress import METRICS
from felice.streams import App, TestDriver

LIMIT_S = 0.05


def sleeps() -> None:
    time.sleep(60)


def computes() -> None:
    while True:
        pass


def searches() -> None:
    re.match(r"(a+)+$", "a" * 60 + "b")


def catches_everything() -> None:
    for _ in range(2):
        try:
            sleeps()
        except BaseException:
            continue


@pytest.mark.parametrize("function", [sleeps, computes, searches])
def test_a_function_that_does_not_return_is_the_apps_failure(function: Any) -> None:
    with pytest.raises(HostedAppsFailed) as raised, named("one@1", LIMIT_S):
        function()
    failed = failed_in(f"org.apache.spark.SparkException: HostedAppsFailed: {raised.value}")
    assert failed is not None and failed.incarnations == ("one@1",) and failed.is_overdue
    assert re.match(r"no result within 0.05 s.*; it was in .*, line \d+", failed.error)


def test_code_of_the_app_cannot_catch_it() -> None:
    """SQL catches what an expression raises, and its column is null."""
    with pytest.raises(HostedAppsFailed, match="no result"), named("one@1", LIMIT_S):
        try:
            sleeps()
        except Exception:
            pytest.fail("the App has caught it")


def test_code_that_catches_everything_is_interrupted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("felice.pipelines.streams.on_spark.host.failing._AGAIN_S", LIMIT_S)
    began = time.monotonic()
    with pytest.raises(HostedAppsFailed, match="no result"), named("one@1", LIMIT_S):
        catches_everything()
    assert time.monotonic() - began < 30


def test_the_record_is_named_and_not_skipped() -> None:
    """What is skipped in one run of a batch must be skipped in each, and time does not repeat itself."""
    app = App("waits", value="string")
    app.stream("words", on_error="skip").map_values(lambda key, value: sleeps() or value).to("out")
    driver = TestDriver(app)
    with pytest.raises(HostedAppsFailed, match="no result within"), named("one@1", LIMIT_S):
        driver.send("words", "a", "b")
    stops = App("waits", value="string")
    stops.stream("words").map_values(lambda key, value: sleeps() or value).to("out")
    driver = TestDriver(stops)
    with (
        pytest.raises(HostedAppsFailed, match="key 'a'.*no result within") as raised,
        named("one@1", LIMIT_S),
    ):
        driver.send("words", "a", "b")
    failed = failed_in(f"HostedAppsFailed: {raised.value}")
    assert failed is not None and failed.is_overdue


def test_the_limit_ends_with_its_block() -> None:
    with named("one@1", LIMIT_S):
        pass
    time.sleep(2 * LIMIT_S)


def test_another_thread_has_no_limit() -> None:
    done = []

    def run() -> None:
        with named("one@1", LIMIT_S):
            time.sleep(2 * LIMIT_S)
            done.append(True)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert done == [True]


def test_other_errors_are_not_overdue() -> None:
    with pytest.raises(HostedAppsFailed) as raised, named("one@1", 60):
        raise ValueError("thirteen")
    text = f"HostedAppsFailed: {raised.value}"
    assert failed_in(text) == Failed(("one@1",), "ValueError: thirteen", False)


def report(batch: int, *rows: tuple[str, str, int], rows_in: int = 1) -> dict[str, Any]:
    counted = [{"topic": name, "origin": reason, "count": count} for name, reason, count in rows]
    metrics = {METRICS: {"left_out": counted}} if rows_in else {}
    return {"batchId": batch, "numInputRows": rows_in, "observedMetrics": metrics}


def test_left_out_records_are_counted_by_app_and_reason() -> None:
    (pack,) = counts_of("one@1", 2, {("counts", "late"): 3, ("sums", "late"): 4})
    found = {(row["topic"], row["origin"]): row["count"] for row in pack.to_pylist()}
    assert found == {("one@1", "skipped"): 2, ("one@1", "late"): 7}
    assert list(counts_of("one@1", 0, {})) == []


def test_each_batch_is_counted_once_also_one_that_was_not_asked_for() -> None:
    counts = LeftOut()
    reports = [report(0, ("one@1", "late", 1))]

    def add() -> None:
        counts.add(reports[-1], lambda: reports)

    add()
    add()
    reports.append(report(1, rows_in=0))  # Nothing to do: the next batch has this number, too.
    add()
    reports += [
        report(1, ("one@1", "late", 2), ("two@1", "skipped", 5)),
        report(2),
        report(3, ("one@1", "null", 1)),
    ]
    add()
    assert counts.of("one@1") == {"late": 3, "null": 1}
    assert counts.of("two@1") == {"skipped": 5}
    assert counts.of("three@1") == {}


def test_a_batch_whose_results_are_decided_is_not_one_to_leave_an_app_out_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that was killed after the decision has not noted that the batch is done."""
    host = Host("broker:1", tmp_path)
    (tmp_path / "metadata").write_text('{"id": "query"}')
    known: list[Decision | None] = [None, Decision(6, ()), Decision(7, ()), Decision(8, ())]
    monkeypatch.setattr(host_module, "last_decision", lambda ask, query: known.pop(0))
    assert [host._is_undecided(7) for _ in range(4)] == [True, True, False, False]

    def fail(ask: object, query: str) -> Decision:
        raise KafkaException(KafkaError(KafkaError._ALL_BROKERS_DOWN))

    monkeypatch.setattr(host_module, "last_decision", fail)
    assert not host._is_undecided(7), "brokers that do not answer say nothing"


def test_a_plan_runs_when_spark_has_planned_a_batch_with_it(tmp_path: Path) -> None:
    """A batch that is done may be followed by one that was made with its plan, and is not in the log yet."""
    host = Host("broker:1", tmp_path)
    files = PlanFiles(Checkpoint(tmp_path).directory)

    def note(log: str, batch: int, plan: int) -> None:
        lines = ("v1", "{}", json.dumps(Positions(batch, plan).document()))
        write_durably(tmp_path / log / str(batch), "\n".join(lines))

    assert host.runs_newest_plan(), "there is none"
    files.write(HostPlan(1))
    assert not host.runs_newest_plan()
    note("offsets", 0, 1)
    assert host.runs_newest_plan()
    files.write(HostPlan(2))
    assert not host.runs_newest_plan(), "the batch is under way"
    note("commits", 0, 1)
    assert not host.runs_newest_plan(), "the next batch may be made with plan 1"
    note("offsets", 1, 2)
    assert host.runs_newest_plan()
    note("commits", 1, 2)
    assert host.runs_newest_plan()


def test_brokers_are_asked_now_and_then_whether_they_answer() -> None:
    now, asked, down = [100.0], [], [False]

    def ask(client: object) -> None:
        asked.append(now[0])
        if down[0]:
            raise KafkaException(KafkaError(KafkaError._ALL_BROKERS_DOWN, "broker:1: refused"))

    outages = Outages(BlockingConfig("broker:1"), ask, lambda: now[0])
    for _ in range(3):
        outages.look()
        assert outages.reason is None
    down[0] = True
    outages.look()
    assert outages.reason is None, "not asked yet"
    now[0] += 3
    outages.look()
    assert outages.reason is not None and outages.reason.startswith("no broker answers: ")
    down[0] = False
    now[0] += 3
    outages.look()
    assert outages.reason is None
    assert asked == [100.0, 103.0, 106.0]
    outages.close()


@pytest.mark.parametrize(
    ("master", "config", "attempts"),
    [
        ("local", {}, 1),
        ("local[2]", {"spark.task.maxFailures": "9"}, 1),
        ("local[*, 3]", {}, 3),
        ("spark://h:7077", {}, 4),
        ("spark://h:7077", {"spark.task.maxFailures": "2"}, 2),
    ],
)
def test_the_attempts_of_a_task_share_its_time(master: str, config: dict[str, str], attempts: int) -> None:
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(master=master, getConf=lambda: config))
    assert attempts_of_tasks(spark) == attempts
