"""The order in which a task of a Spark worker takes the records of a batch."""

from __future__ import annotations

from random import Random

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from pyspark import cloudpickle

from felice.pipelines.streams.formats import BYTES
from felice.pipelines.streams.on_spark.packs import PACKS, unpacked
from felice.pipelines.streams.on_spark.rows import SCHEMA
from felice.pipelines.streams.on_spark.stage import TICK, Plan, _order, packed_ticks
from felice.pipelines.streams.topology import TopicFormats
from felice.streams import App, Context, KeyValues, Processor, Record
from streams.spark_workers import PLACES


def rows_at(*rows: tuple[str, str, int, int]) -> pa.Table:
    found = [
        {"topic": topic, "origin": origin, "seq": seq, "timestamp": timestamp}
        for topic, origin, seq, timestamp in rows
    ]
    return pa.Table.from_pylist(found, SCHEMA)


def read(topic: str, *, is_global: bool = False) -> TopicFormats:
    return TopicFormats(topic, BYTES, BYTES, is_global=is_global)


class Times(Processor):
    """Sends the times at which its timer of the wall clock is called."""

    def init(self, context: Context) -> None:
        context.schedule(10, lambda time: [Record("wall", str(time), time)], clock="wall")

    def process(self, record: Record) -> None:
        return None


def test_the_last_tick_of_a_batch_goes_to_every_task_with_timers() -> None:
    app = App("clocked", value="string")
    app.stream("counted").group_by_key().count().to("counts")
    app.stream("timed").process(Times, stores=[KeyValues("kept")]).to("times")
    app.stream("passed").to("copy")
    plan = Plan(cloudpickle.dumps(app.topology), PLACES, ())  # type: ignore[no-untyped-call]
    (timed,) = plan.application().reads["timed"]
    ticks = pa.schema([("timestamp", pa.timestamp("us", tz="UTC")), ("value", pa.int64())])
    batches = [
        pa.RecordBatch.from_pylist([{"timestamp": at, "value": number} for at, number in rows], ticks)
        for rows in ([(2_000_999, 7), (3_000_999, 8), (1_000_999, 6)], [], [(4_000_000, 9)])
    ]
    made = unpacked(pa.Table.from_batches(packed_ticks(batches, plan), PACKS))
    told = zip(*(made[name].to_pylist() for name in ("part", "place", "seq", "timestamp")), strict=True)
    assert list(told) == [
        (timed, place, *last) for last in ((8, 3_000), (9, 4_000)) for place in range(PLACES)
    ]
    assert {*made["topic"].to_pylist(), *made["origin"].to_pylist()} == {TICK}


def test_global_tables_go_first_and_the_wall_clock_last() -> None:
    rows = [
        (TICK, TICK, 4, 2),
        ("a", "a-0", 0, 5),
        ("g", "g-0", 0, 9),
        ("a", "a-0", 1, 3),
        ("g", "g-1", 0, 1),
    ]
    columns = list(zip(*rows, strict=True))
    table = pa.table(
        {
            "topic": columns[0],
            "origin": columns[1],
            "seq": pa.array(columns[2]),
            "timestamp": pa.array(columns[3]),
        }
    )
    order = _order(table, [read("g", is_global=True), read("a")]).tolist()
    assert [rows[at][1:3] for at in order] == [("g-1", 0), ("g-0", 0), ("a-0", 0), ("a-0", 1), (TICK, 4)]


def test_a_partition_keeps_its_order_and_the_oldest_head_goes_first() -> None:
    table = rows_at(
        ("a", "a-0", 2, 30),
        ("a", "a-0", 1, 50),
        ("a", "a-1", 1, 40),
        ("t", "t-0", 1, 50),
        ("t", "t-0", 2, 10),
        ("a", "a-1", 2, 60),
    )
    order = _order(table, [read("t"), read("a")]).tolist()
    taken = [(table["origin"][at].as_py(), table["seq"][at].as_py()) for at in order]
    assert taken == [("a-1", 1), ("t-0", 1), ("t-0", 2), ("a-0", 1), ("a-0", 2), ("a-1", 2)]


def test_the_order_is_that_of_choosing_the_partition_with_the_oldest_head() -> None:
    dice = Random(3)
    for _ in range(200):
        queues = {
            f"a-{number}": [dice.randrange(20) for _ in range(dice.randrange(6))] for number in range(3)
        }
        rows = [
            ("a", origin, seq, time) for origin, times in queues.items() for seq, time in enumerate(times)
        ]
        dice.shuffle(rows)
        expected, heads = [], dict.fromkeys(queues, 0)
        while any(heads[origin] < len(times) for origin, times in queues.items()):
            origin = min(
                (one for one in queues if heads[one] < len(queues[one])),
                key=lambda one: (queues[one][heads[one]], one),
            )
            expected.append((origin, heads[origin]))
            heads[origin] += 1
        table = rows_at(*rows)
        taken = [(rows[at][1], rows[at][2]) for at in _order(table, [read("a")]).tolist()]
        assert taken == expected
