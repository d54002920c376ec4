"""DataFrames as inputs and outputs of an App, without Spark."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from felice.pipelines.streams.on_spark import frames
from felice.pipelines.streams.on_spark.directory import CheckpointError, check_query
from felice.pipelines.streams.on_spark.packs import READ, unpacked
from felice.pipelines.streams.on_spark.rows import OUT
from felice.pipelines.streams.on_spark.stage import Application
from felice.streams import App, TestDriver


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
    given = [rows("a", "b"), rows("c")]
    made = list(frames.packed_frame(given, plan, "rows"))
    packs = pa.Table.from_batches(made)
    records = unpacked(packs.filter(pa.compute.equal(packs["part"], OUT)))
    assert records["value"].to_pylist() == [b"ka", b"kb", b"kc"]
    assert set(records["origin"].to_pylist()) == {"rows-3"}
    assert records["seq"].to_pylist() == [0, 1 << 20, 2 << 20]
    assert packs.filter(pa.compute.equal(packs["part"], READ))["count"].to_pylist() == [3]
    found = pa.Table.from_batches(
        frames._records(one.filter(pa.compute.equal(one["part"], OUT)) for one in made)
    )
    assert found.column_names == ["key", "value", "timestamp", "headers"]
    assert found["timestamp"].cast(pa.int64()).to_pylist() == [5_000] * 3


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


def test_a_query_must_have_the_checkpoint_of_its_dataframe(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=f"checkpointLocation={tmp_path}"):
        check_query(tmp_path, "mine")
    (tmp_path / "metadata").write_text(json.dumps({"id": "mine"}))
    check_query(tmp_path, "mine")
    with pytest.raises(CheckpointError):
        check_query(tmp_path, "another")
