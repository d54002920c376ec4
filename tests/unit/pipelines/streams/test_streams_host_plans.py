"""What a host runs, and where each App reads on: plans, failures, positions and shares, without Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")

from felice.pipelines.spark.mistakes import ClusterError
from felice.pipelines.spark.options import SinkOptions
from felice.pipelines.spark.planning import OffsetRange
from felice.pipelines.streams.on_spark.changes import of_program
from felice.pipelines.streams.on_spark.directory import CheckpointError, Description
from felice.pipelines.streams.on_spark.host.failing import Failed, HostedAppsFailed, failed_in, named
from felice.pipelines.streams.on_spark.host.level import Hosting
from felice.pipelines.streams.on_spark.host.plans import (
    Entry,
    Failure,
    HostPlan,
    PlanFiles,
    ReadFailures,
    check_hosted,
    levels_of,
    written_topics,
)
from felice.pipelines.streams.on_spark.host.positions import (
    MissingTopics,
    Positions,
    ends_within,
    first_batches,
    lost,
    segments,
    shares,
    spans,
)
from felice.pipelines.streams.on_spark.host.reader import HostReader, HostWriter
from felice.pipelines.streams.on_spark.source import PackWriter
from felice.streams import App, StreamsError, TopologyError

A, B = ("t", 0), ("t", 1)


def two_levels() -> App:
    app = App("deep")
    counts = app.stream("orders").group_by_key().count()
    counts.group_by(lambda key, count: (str(count), count), key="string").count().to_stream().to("out")
    return app


def entry(name: str = "one", app: App | None = None, **given: Any) -> Entry:
    topology = (app or two_levels()).topology
    described = Description(name, partitions=0, starting={}, **of_program(topology))
    plain = Entry(
        name,
        f"{name}@1",
        "digest",
        levels_of(topology),
        topology.subscription(),
        written_topics(topology),
        False,
        {},
        described,
    )
    return replace(plain, **given)


def test_levels_count_the_parts_with_state_before_a_part() -> None:
    app = two_levels()
    app.stream("orders").filter(lambda key, value: True).to("same")
    assert [len(level) for level in levels_of(app.topology)] == [1, 1]
    plain = App("plain")
    plain.stream("orders").to("out")
    assert levels_of(plain.topology) == ()


def test_a_plan_is_read_as_it_was_written(tmp_path: Path) -> None:
    files = PlanFiles(tmp_path)
    assert files.latest_number() == 0 and files.plan(0).entries == ()
    plan = HostPlan().following("one", entry(is_paused=True, cleared=3, starts={"orders": {"0": 5}}))
    files.write(plan)
    assert files.latest_number() == 1
    assert files.plan(1).entries == plan.entries
    with pytest.raises(CheckpointError, match="plan 2 of the host cannot be read"):
        files.plan(2)


def test_a_replaced_app_keeps_its_turn_and_parts_have_numbers_of_their_own() -> None:
    plan = HostPlan(1, (entry("one"), entry("two"), entry("three")))
    assert list(plan.bases.values()) == [0, 2, 4]
    following = plan.following("two", entry("two", is_paused=True))
    assert [one.name for one in following.entries] == ["one", "two", "three"]
    assert [one.name for one in plan.following("two", None).entries] == ["one", "three"]
    with pytest.raises(KeyError):
        plan.named("four")
    with pytest.raises(KeyError):
        HostPlan(1, (entry("one", is_detached=True),)).named("one")


def test_an_entry_reads_its_topics() -> None:
    assert entry().reads("orders") and not entry().reads("orders-2")
    assert entry().pattern == "^(?:orders)$"


def test_a_failed_app_is_left_out_until_its_failure_is_cleared() -> None:
    plan = HostPlan(1, (entry("one"), entry("two"), entry("three", is_paused=True)))
    failure = Failure(2, "one@1", 7, "why", {"t": {"0": 3}})
    assert [one.name for one in plan.running(6, [failure])] == ["one", "two"]
    assert [one.name for one in plan.running(7, [failure])] == ["two"]
    assert [one.name for one in plan.running(9, [failure])] == ["two"]
    cleared = plan.following("one", entry("one", cleared=2))
    assert [one.name for one in cleared.running(8, [failure])] == ["one", "two"]
    # The batch that ran without it has the plan before, and runs without it again.
    assert [one.name for one in plan.running(7, [failure])] == ["two"]
    # Resumed before the batch was planned, it may fail in this batch again.
    twice = Failure(3, "one@1", 7, "why", {})
    assert [one.name for one in cleared.running(7, [failure, twice])] == ["two"]
    again = Failure(3, "one@2", 8, "why", {})
    assert plan.running(8, [again]) == [plan.entries[0], plan.entries[1]]  # Another incarnation's failure.


def test_an_app_that_failed_has_the_positions_from_before_the_batch() -> None:
    plan = HostPlan(1, (entry("one"), entry("two")))
    reached = Positions(7, 1, apps={"one@1": {A: 9}, "two@1": {A: 9}})
    failure = Failure(2, "one@1", 7, "why", {"t": {"0": 3}})
    assert reached.corrected(plan, [failure]).apps == {"one@1": {A: 3}, "two@1": {A: 9}}
    # Later batches have them already.
    later = replace(reached, batch=8, apps={"one@1": {A: 3}, "two@1": {A: 10}})
    assert later.corrected(plan, [failure]) == later
    # A plan that cleared the failure before this batch was planned: the App took part.
    cleared = HostPlan(2, (entry("one", cleared=2), entry("two")))
    assert reached.corrected(cleared, [failure]) == reached


def test_positions_are_read_as_they_were_written() -> None:
    given = Positions(3, 2, 1000, (0, 3), {"b@1": {B: 1, A: 2}, "a@1": {}})
    assert Positions.of(given.document()) == given
    assert list(given.document()["apps"]) == ["a@1", "b@1"]
    assert first_batches(given, 2) == (0, 3)
    assert first_batches(given, 4) == (0, 3, 4, 4)
    assert first_batches(Positions(), 1) == (0,)


def test_files_that_no_batch_needs_are_removed(tmp_path: Path) -> None:
    files = PlanFiles(tmp_path)
    old, kept = files.write_app(b"old"), files.write_app(b"kept")
    files.write(HostPlan(1, (entry("one", digest=old),)))
    files.write(HostPlan(2, (entry("one", digest=kept, cleared=1), entry("two", digest=kept))))
    for number, name, batch in ((1, "one@1", 4), (2, "two@1", 4), (3, "gone@1", 2)):
        files.write_failure(Failure(number, name, batch, "why", {}))
    files.remove_older(2, 5)
    with pytest.raises(CheckpointError):
        files.plan(1)
    assert [one.incarnation for one in files.failures()] == ["two@1"]
    assert files.next_failure(files.plan(2)) == 3
    assert files.next_failure(HostPlan(3, (entry(cleared=8),))) == 9
    assert files.app(kept) == b"kept" and not (tmp_path / "apps" / old).exists()


def test_a_file_of_a_failure_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, read, paths = PlanFiles(tmp_path), ReadFailures(), list[str]()
    text_of = Path.read_text
    monkeypatch.setattr(Path, "read_text", lambda path: paths.append(path.stem) or text_of(path))
    assert files.failures(read) == []
    for number in (1, 2):
        files.write_failure(Failure(number, "a", 4, "why", {}))
    assert [one.number for one in files.failures(read)] == [1, 2]
    files.write_failure(Failure(2, "b", 5, "another of this number", {}))
    (tmp_path / "failures" / "1.json").unlink()
    paths.clear()
    assert [one.incarnation for one in files.failures(read)] == ["b"]
    assert [one.incarnation for one in files.failures(read)] == ["b"]
    assert paths == ["2"] and len(read.known) == 1


def test_each_range_is_read_once_for_all_apps() -> None:
    one, two = spans({A: 3}, {A: 9, B: 2}, {B: 0}), spans({A: 5, B: 2}, {A: 20, B: 2}, {})
    assert one == {A: (3, 9), B: (0, 2)} and two == {A: (5, 20)}
    assert segments([one, two]) == [
        OffsetRange("t", 0, 3, 5),
        OffsetRange("t", 0, 5, 9),
        OffsetRange("t", 0, 9, 20),
        OffsetRange("t", 1, 0, 2),
    ]
    assert segments([{A: (0, 2)}, {A: (5, 6)}]) == [OffsetRange("t", 0, 0, 2), OffsetRange("t", 0, 5, 6)]


def test_an_app_that_is_far_behind_does_not_make_batches_long_for_others() -> None:
    assert shares(100, {"one": 1000}) == {"one": 100}
    assert shares(100, {"behind": 1000, "small": 5}) == {"small": 5, "behind": 25}
    assert shares(100, dict.fromkeys("abcde", 1000)) == dict.fromkeys("abcde", 20)
    assert shares(2, dict.fromkeys("abc", 9)) == {"a": 1, "b": 1, "c": 1}

    def cut(name: str, most: int, begin: Any, end: Any) -> Any:
        return {A: begin[A] + most}

    begins, ends = {"behind": {A: 0}, "small": {A: 990}}, {"behind": {A: 1000}, "small": {A: 1000}}
    assert ends_within(100, begins, ends, cut) == {"behind": {A: 25}, "small": {A: 1000}}


def test_positions_behind_the_end_of_a_topic_are_named() -> None:
    assert lost({A: 5, B: 2}, {A: 4, B: 2}) == ["partition 0 of topic t went back from offset 5 to 4"]


def test_an_error_names_its_app_through_texts() -> None:
    with pytest.raises(HostedAppsFailed) as caught, named("one@1"):
        raise StreamsError('a record with "quotes" {and braces}\nand lines')
    text = f"Job aborted\n  felice.failing.HostedAppsFailed: {caught.value}\n\tat java.lang.Thread"
    failed = failed_in(text)
    assert failed == Failed(("one@1",), 'StreamsError: a record with "quotes" {and braces}\nand lines')
    assert failed_in("StreamsError: another") is None


def test_a_host_refuses_dataframes() -> None:
    app = App("frames")
    app.from_df("rows", lambda spark: None).to("out")
    with pytest.raises(TopologyError, match="DataFrames"):
        check_hosted(app.name, app.topology)


def test_where_a_topic_cannot_be_written_those_fail_that_write_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = PlanFiles(tmp_path)
    files.write(HostPlan(1, (entry("one"), entry("two", writes=("other",)))))
    error = ClusterError("topic out cannot be written: no such topic")

    def fail(self: PackWriter, iterator: Any) -> Any:
        raise error

    monkeypatch.setattr(PackWriter, "write", fail)
    writer = HostWriter(SinkOptions.parse({"kafka.bootstrap.servers": "broker:1"}), files)
    with pytest.raises(HostedAppsFailed) as caught:
        writer.write(iter(()))
    assert failed_in(f"HostedAppsFailed: {caught.value}") == Failed(("one@1",), str(error))
    error = ClusterError("no broker answers")
    with pytest.raises(ClusterError, match="no broker answers"):
        writer.write(iter(()))


def test_positions_of_a_topic_that_brokers_do_not_name_for_a_moment_are_kept() -> None:
    missing = MissingTopics(30)
    assert missing.awaited(["a", "b"], {"a", "b"}, 0) == set()
    assert missing.awaited(["a", "b"], {"a"}, 1) == {"b"}
    assert missing.awaited(["a", "b"], {"a", "b"}, 20) == set()
    assert missing.awaited(["a", "b"], {"a"}, 29) == {"b"}
    assert missing.awaited(["a", "b"], {"a"}, 58) == {"b"}
    assert missing.awaited(["a", "b"], {"a"}, 59) == set()


def test_an_app_whose_second_topic_is_not_named_goes_on_with_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that was started again knows `left` already, and not yet `right`."""
    one = entry(subscription=("subscribe", "left,right"))
    hosting = Hosting(PlanFiles(tmp_path), str(tmp_path), 1)
    reader = HostReader({"kafka.bootstrap.servers": "broker:1"}, hosting, 1000, 1)
    latest: dict[tuple[str, int], int] = {("left", 0): 7}
    view = SimpleNamespace(recreated=set(), earliest=lambda keys: dict.fromkeys(keys, 0))
    monkeypatch.setattr(reader, "_cluster", lambda: view)
    ends = SimpleNamespace(known=None, newer_than=lambda base: latest)
    monkeypatch.setattr(reader, "_latest", lambda: ends)
    at = {("left", 0): 5, ("right", 0): 9}
    reached = Positions(3, 1, apps={"one@1": at})
    plan = HostPlan(1, (one,))
    assert reader._begins_and_ends(plan, [one], reached) == (
        {"one@1": at},
        {"one@1": {("left", 0): 7, ("right", 0): 9}},
    )
    reader._missing = MissingTopics(0)  # It was deleted.
    assert reader._begins_and_ends(plan, [one], reached)[1] == {"one@1": {("left", 0): 7}}
