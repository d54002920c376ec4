"""The tasks of many Apps in a worker, without Spark: state by App, plans that change between batches, failures."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa

from felice.pipelines.streams.on_spark.changes import of_program
from felice.pipelines.streams.on_spark.directory import Description
from felice.pipelines.streams.on_spark.host import level
from felice.pipelines.streams.on_spark.host.failing import HostedAppsFailed
from felice.pipelines.streams.on_spark.host.level import Hosting, Mark, marks, packed_hosted, run_level, ticks
from felice.pipelines.streams.on_spark.host.plans import (
    Entry,
    HostPlan,
    PlanFiles,
    levels_of,
    written_topics,
)
from felice.pipelines.streams.on_spark.packs import DROPPED, PACKS, results
from felice.pipelines.streams.on_spark.rows import OUT
from felice.pipelines.streams.on_spark.runner import sent_topology
from felice.streams import App, Context, Processor, Record
from streams.spark_batches import source_batch

PLACES, LEVELS = 2, 2


def counting(name: str, *, plus: int = 0) -> App:
    app = App(name, value="string")
    counts = app.stream("words").group_by_key().count(name="counts").to_stream()
    counts.map_values(lambda key, count: str(count + plus), value="string").to(f"{name}-out")
    return app


class Worker:
    """The batches of a host, in a worker that forgets what it knows when it is told to."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.files = PlanFiles(directory)
        self.hosting = Hosting(self.files, str(directory / "state"), PLACES)
        self.monkeypatch = monkeypatch
        self.plan = HostPlan()
        self.levels: tuple[int, ...] = ()
        self.left_out = Counter[str]()
        level._held_level.cache_clear()

    def put(self, app: App, incarnation: str, *, is_clocked: bool = False) -> None:
        topology = app.topology
        described = Description(app.name, partitions=0, starting={}, **of_program(topology))
        digest = self.files.write_app(sent_topology(topology))
        entry = Entry(
            app.name,
            incarnation,
            digest,
            levels_of(topology),
            topology.subscription(),
            written_topics(topology),
            is_clocked,
            {},
            described,
        )
        self._follow(self.plan.following(app.name, entry))

    def drop(self, name: str) -> None:
        self._follow(self.plan.following(name, None))

    def batch(
        self, number: int, words: list[str], *readers: str, forgets: bool = False, time_ms: int | None = None
    ) -> dict[str, list[str]]:
        if forgets:
            level._held_level.cache_clear()
        self.levels += (number,) * (self.plan.levels - len(self.levels))
        mark = Mark(number, self.plan.number, self.levels)
        rows = [
            (word.encode(), b"x", "words", 0, offset, 1_000_000, [])
            for offset, word in enumerate(words, number * 10)
        ]
        span = {("words", 0): (number * 10, number * 10 + len(words))}
        packs = [*marks(mark, PLACES)]
        packs += ticks(self.hosting, mark, time_ms) if time_ms is not None else ()
        packs += packed_hosted([source_batch(rows)], self.hosting, mark, dict.fromkeys(readers, span))
        return self._results(self._run(number, pa.Table.from_batches(packs, PACKS)))

    def _run(self, number: int, packs: pa.Table) -> pa.Table:
        for at in range(LEVELS):
            made = []
            for place in range(PLACES):
                context = SimpleNamespace(
                    partitionId=lambda place=place: place, getLocalProperty=lambda name: str(number)
                )
                self.monkeypatch.setattr(level, "TaskContext", SimpleNamespace(get=lambda it=context: it))
                here = packs.filter(pa.compute.equal(packs["place"], place))
                made += run_level(here.to_batches(), self.hosting, at, is_last=at == LEVELS - 1)
            packs = pa.Table.from_batches(made, PACKS)
        return packs

    def _results(self, packs: pa.Table) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        dropped = packs.filter(pa.compute.equal(packs["part"], DROPPED)).to_pylist()
        self.left_out = Counter[str]()
        for row in dropped:
            self.left_out[f"{row['topic']} {row['origin']}"] += row["count"]
        sent = packs.filter(pa.compute.equal(packs["part"], OUT))
        for batch in results(sent.to_batches()):
            for row in batch.to_pylist():
                text = f"{row['key'].decode()}={row['value'].decode()}"
                found.setdefault(row["topic"], []).append(text)
        return {topic: sorted(texts) for topic, texts in found.items()}

    def _follow(self, plan: HostPlan) -> None:
        self.plan = plan
        self.files.write(plan)


@pytest.mark.parametrize("forgets", [False, True])
def test_each_app_has_its_own_state_while_others_come_and_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forgets: bool
) -> None:
    worker = Worker(tmp_path, monkeypatch)
    worker.put(counting("one"), "one@1")
    assert worker.batch(0, ["a", "a", "b"], "one@1") == {"one-out": ["a=1", "a=2", "b=1"]}
    worker.put(counting("two"), "two@2")
    both = worker.batch(1, ["a"], "one@1", "two@2", forgets=forgets)
    assert both == {"one-out": ["a=3"], "two-out": ["a=1"]}
    # A new version with the same stores goes on with them.
    worker.put(counting("two", plus=100), "two@2")
    assert worker.batch(2, ["a"], "two@2", forgets=forgets) == {"two-out": ["a=102"]}
    worker.drop("one")
    worker.batch(3, [], forgets=forgets)
    worker.put(counting("one"), "one@5")
    assert worker.batch(4, ["a"], "one@5", "two@2", forgets=forgets) == {
        "one-out": ["a=1"],
        "two-out": ["a=103"],
    }
    for number in range(5, 30):  # Over several bases.
        worker.batch(number, [], forgets=forgets)
    assert worker.batch(30, ["a"], "one@5", forgets=True) == {"one-out": ["a=2"]}


def test_a_batch_runs_again_from_the_state_before_it_without_the_app_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(key: str, count: int) -> str:
        if count == 3:
            raise ValueError("three")
        return str(count)

    bad = App("bad", value="string")
    counts = bad.stream("words").group_by_key().count(name="counts").to_stream()
    counts.map_values(refuse, value="string").to("bad-out")
    worker = Worker(tmp_path, monkeypatch)
    worker.put(counting("one"), "one@1")
    worker.put(bad, "bad@2")
    worker.batch(0, ["a", "a"], "one@1", "bad@2")
    with pytest.raises(HostedAppsFailed, match=r'"bad@2".*three.*words-0, offset 10'):
        worker.batch(1, ["a"], "one@1", "bad@2")
    assert worker.batch(1, ["a"], "one@1") == {"one-out": ["a=3"]}
    assert worker.batch(2, ["a"], "one@1") == {"one-out": ["a=4"]}
    with pytest.raises(HostedAppsFailed, match="three"):
        worker.batch(3, ["a"], "bad@2")


def test_results_without_state_stay_in_the_order_of_their_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = App("plain", value="string")
    app.stream("words").filter(lambda key, value: key != "b").to("plain-out")
    worker = Worker(tmp_path, monkeypatch)
    worker.put(counting("one"), "one@1")
    worker.put(app, "plain@2")
    assert worker.batch(0, ["a", "b", "c"], "plain@2") == {"plain-out": ["a=x", "c=x"]}


def test_what_an_app_leaves_out_is_counted_under_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    picky = App("picky", key="string", value="json")
    rows = picky.stream("words", on_bad_record="skip", on_error="skip")
    rows.group_by_key().count(name="counts").to_stream().to("picky-out", value="int")
    worker = Worker(tmp_path, monkeypatch)
    worker.put(counting("one"), "one@1")
    worker.put(picky, "picky@2")
    worker.batch(0, ["a", "b", "a"], "one@1", "picky@2")
    assert worker.left_out == {"picky@2 skipped": 3}  # "x" is no JSON.


class Waiting(Processor):
    """Sends the times at which its timer of the wall clock is called."""

    def init(self, context: Context) -> None:
        context.schedule(10, lambda time: [Record("wall", str(time), time)], clock="wall")

    def process(self, record: Record) -> list[Record]:
        return []


def test_ticks_reach_the_apps_with_timers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = App("clock", value="string")
    app.stream("words").process(Waiting).to("clock-out")
    worker = Worker(tmp_path, monkeypatch)
    worker.put(counting("one"), "one@1")
    worker.put(app, "clock@2", is_clocked=True)
    assert worker.batch(0, ["a"], "one@1", time_ms=1000) == {"one-out": ["a=1"]}
    assert worker.batch(1, [], time_ms=2000) == {"clock-out": ["wall=2000"] * PLACES}
