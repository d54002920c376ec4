"""DataFrames as inputs and outputs of an App, without Spark."""

from __future__ import annotations

import json
import pickle
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from felice.pipelines.streams.formats import FORMATS
from felice.pipelines.streams.on_spark import frames, identity, runner
from felice.pipelines.streams.on_spark.application import Application
from felice.pipelines.streams.on_spark.directory import Checkpoint, CheckpointError
from felice.pipelines.streams.on_spark.identity import check_query
from felice.pipelines.streams.on_spark.packs import READ, unpacked
from felice.pipelines.streams.on_spark.rows import OUT
from felice.pipelines.streams.operators.stateless import Pass
from felice.pipelines.streams.topology import Node, TopicFormats
from felice.streams import App, DeadLetters, StreamsError, TestDriver, TopologyError


def never(spark: Any) -> Any:
    raise AssertionError("nobody has a session")


def app_of_rows() -> App:
    app = App("sales", value="string")
    app.from_df("rows", never).map_values(str.__add__).to("out")
    return app


def test_a_test_sends_rows_in_place_of_a_dataframe() -> None:
    driver = TestDriver(app_of_rows())
    driver.send("rows", "a", "b", 7)
    assert [(one.key, one.value, one.timestamp) for one in driver.read("out")] == [("a", "ab", 7)]


def test_a_dataframe_is_no_topic() -> None:
    app = app_of_rows()
    app.table("prices").to("copy")
    assert app.topology.topics() == ["prices"]
    assert app.topology.frames() == ["rows"]
    assert "source-0 (DataFrame rows)" in app.describe()


def test_what_makes_a_dataframe_is_not_sent_to_workers() -> None:
    app = App("sales", value="string")
    app.from_df("rows", lambda spark: None)
    assert pickle.loads(pickle.dumps(app.scope.frames)) == {}


def test_rows_of_a_task_are_numbered_over_all_its_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    application = Application(app_of_rows().topology, None)
    plan: Any = SimpleNamespace(places=1, application=lambda: application)
    monkeypatch.setattr(
        frames, "TaskContext", SimpleNamespace(get=lambda: SimpleNamespace(partitionId=lambda: 3))
    )
    given = [rows("a", "b"), rows("c"), rows("d")]
    made = list(frames.packed_frame(given, plan, "rows"))
    packs = pa.Table.from_batches(made)
    records = unpacked(packs.filter(pa.compute.equal(packs["part"], OUT)))
    assert records["value"].to_pylist() == [b"ka", b"kb", b"kc", b"kd"]
    assert set(records["origin"].to_pylist()) == {"rows-3"}
    assert records["seq"].to_pylist() == [0, 1 << 20, 2 << 20, 3 << 20]
    assert packs.filter(pa.compute.equal(packs["part"], READ))["count"].to_pylist() == [4]
    monkeypatch.setattr(frames, "check_query", lambda checkpoint: None)
    outs = (one.filter(pa.compute.equal(one["part"], OUT)) for one in made)
    found = pa.Table.from_batches(frames.records(outs, "checkpoint"))
    assert found.column_names == ["key", "value", "timestamp", "headers"]
    assert found["timestamp"].cast(pa.int64()).to_pylist() == [5_000] * 4


def rows(*values: str) -> pa.RecordBatch:
    count = len(values)
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array([b"k"] * count),
            "value": pa.array([one.encode() for one in values]),
            "timestamp": pa.array([5_999] * count).cast(pa.timestamp("us", tz="UTC")),
            "headers": pa.nulls(count, frames.HEADERS),
        }
    )


def test_a_task_must_belong_to_the_query_with_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def task_of(query: str | None) -> None:
        context = SimpleNamespace(getLocalProperty=lambda name: query)
        monkeypatch.setattr(identity, "TaskContext", SimpleNamespace(get=lambda: context))

    task_of("mine")
    with pytest.raises(CheckpointError, match=f"checkpointLocation={tmp_path}"):
        check_query(str(tmp_path))
    (tmp_path / "metadata").write_text(json.dumps({"id": "mine"}))
    check_query(str(tmp_path))
    task_of("another")
    with pytest.raises(CheckpointError, match=f"checkpointLocation={tmp_path}"):
        list(frames.records([], str(tmp_path)))
    task_of(None)
    with pytest.raises(CheckpointError, match="only a streaming query"):
        check_query(str(tmp_path))


def test_topics_are_those_that_brokers_have() -> None:
    app = App("sales", value="string")
    app.stream("z").merge(app.from_df("rows", never)).group_by(str.__add__).count().to("out")
    app.stream("a").to("copy")
    assert app.topology.topics() == ["a", "z"]


def test_a_dataframe_and_a_topic_may_have_one_name() -> None:
    app = App("sales", value="string")
    app.from_df("sold", never).to("sold")
    assert '"DataFrame sold" -> ' in app.dot() and '-> "sold";' in app.dot()
    assert '"DataFrame sold" [label="sold", shape=ellipse];' in app.dot()


def test_a_node_for_a_while_leaves_no_trace() -> None:
    app = app_of_rows()
    before, parent = app.describe(), app.topology.nodes[1]
    with app.topology.with_node(Node("more", lambda stores: Pass()), parent):
        assert "more" in app.describe()
    assert app.describe() == before


def test_the_time_of_a_row_may_be_in_its_value() -> None:
    app = App("sales")
    app.from_df("rows", never, ts="at").to("out")
    driver = TestDriver(app)
    driver.send("rows", "a", {"at": 7})
    assert [one.timestamp for one in driver.read("out")] == [7]
    with pytest.raises(StreamsError, match="a record of DataFrame 'rows' with key 'a'"):
        driver.send("rows", "a", {})


@pytest.mark.parametrize(
    ("name", "make", "message"),
    [
        ("s3/rows", never, "'s3/rows' cannot be the name of a DataFrame"),
        ("(wall clock)", never, "cannot be the name"),
        ("rows", "orders", "'rows': from_df takes a function of the session, and got 'orders'"),
    ],
)
def test_a_wrong_dataframe_is_refused_at_once(name: str, make: Any, message: str) -> None:
    with pytest.raises(TopologyError, match=re.escape(message)):
        App("sales").from_df(name, make)


def test_a_dataframe_is_read_once() -> None:
    app = App("sales")
    app.from_df("rows", never)
    with pytest.raises(TopologyError, match="DataFrame 'rows' is read twice"):
        app.from_df("rows", never)


def test_where_a_row_comes_from_is_said_behind_repartitions_too() -> None:
    app = App("sales", value="string")
    app.from_df("rows", never).group_by(str.__add__).count(name="n").to("out")
    application = Application(app.topology, None)
    assert application.where("rows", "rows-3", 5) == "at row 5 of task 3 of DataFrame 'rows'"
    inner = "sales-n-repartition"
    assert application.where(inner, "rows-3", 5 << 20 | 1) == "made of row 5 of task 3 of DataFrame 'rows'"


class Session:
    """A Spark session that notes the options of a source, and makes nothing."""

    def __init__(self) -> None:
        self.told: dict[str, str] = {}
        self.conf = SimpleNamespace(set=lambda name, value: None)
        self.sparkContext = SimpleNamespace(defaultParallelism=2, master="local[2]")
        self.readStream = self

    def format(self, name: str) -> Session:
        return self

    def options(self, **told: str) -> Session:
        self.told = told
        return self

    def load(self) -> None:
        return None


@pytest.mark.parametrize("reads_frame", [False, True])
@pytest.mark.parametrize("is_own", [False, True])
def test_a_topic_is_limited_only_alone_and_lag_is_only_that_of_the_app(
    reads_frame: bool, is_own: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = App("sales", value="string")
    stream = app.stream("orders")
    (stream.merge(app.from_df("rows", never)) if reads_frame else stream).to("out")
    for name in ("register_once", "packs_of_frame", "_stages"):
        monkeypatch.setattr(runner, name, lambda *given: None)
    monkeypatch.setattr(runner, "reduce", lambda union, inputs: inputs)
    spark: Any = Session()
    connected = {"kafka.bootstrap.servers": "127.0.0.1:9092"}
    runner._results_of(app.scope, spark, connected, Checkpoint(tmp_path), None, None, is_own=is_own)
    assert ("maxOffsetsPerTrigger" in spark.told) == (not reads_frame)
    assert spark.told.get("groupId") == ("sales" if is_own else None)


def test_a_query_keeps_its_number_of_tasks(tmp_path: Path) -> None:
    app = App("sales", value="string")
    text, kept = FORMATS["string"], Checkpoint(tmp_path)
    sink = Node("frame", sink=TopicFormats(runner.FRAME, text, text, is_frame=True))
    with app.topology.with_node(sink, app.stream("orders").node):
        assert runner.described(app.scope, kept, 2).partitions == 2
        with pytest.raises(CheckpointError, match="has 2 partitions, and keeps them"):
            runner.described(app.scope, kept, 2, 3)


def test_an_app_with_dead_letters_has_no_dataframe(tmp_path: Path) -> None:
    app = App("sales", value="string")
    stream = app.stream("orders", on_error=DeadLetters("dead"))
    spark: Any = None
    with pytest.raises(TopologyError, match=r"no topics for dead letters \(dead\)"):
        stream.df(spark, tmp_path)
