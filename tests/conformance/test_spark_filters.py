"""Filters that Spark pushes down choose the rows that Spark itself would choose: random filters over random records.

The oracle is Spark over a copy of the rows, of which no source knows the filters.
"""

import os
import random
from functools import reduce
from typing import Any

import pyarrow as pa
import pytest

from conformance.targets import Target
from conformance.topics import create_topic
from felice.client.blocking import BlockingClient
from felice.records.arrow import arrow_to_batches

# For more: FELICE_FILTER_SEEDS=10.
SEEDS = range(int(os.environ.get("FELICE_FILTER_SEEDS", "1")))
ROWS = 12
TIMES_MS = (-5_000_000_000, -60_000, -1, 0, 1, 999, 1_500_000_000_000, 1_500_000_000_001, 1_700_000_000_000)
WHOLE = ("null", "-1", "0", "1", "2", "3", "7", "11", "2.5", "'3'", "5000000000", "9223372036854775807")
TIMES = (
    "null",
    "'1960-01-01'",
    "'1969-12-31 23:59:59.9999'",
    "'1970-01-01'",
    "'1970-01-01 00:00:00.0005'",
    "date'2017-07-14'",
    "timestamp'2017-07-14 02:40:00.001'",
    "timestamp'2023-11-14 22:13:20 Europe/Berlin'",
    "timestamp'0001-01-01'",
    "timestamp'-0005-01-01'",
    "timestamp'+12000-01-01'",
)
COMPARISONS = ("=", "<=>", "<", "<=", ">", ">=", "<>")
FOUND = [
    "offset in (3, null)",
    "offset not in (3, null)",
    "not (offset <=> null)",
    "timestamp >= '1960-01-01'",
    "timestamp > timestamp'-0005-01-01'",
    "timestamp < timestamp'+12000-01-01'",
    "timestamp in (timestamp'2017-07-14 02:40:00', timestamp'+12000-01-01', null)",
    "headers is null and offset > 1",
    "headers is not null",
]


def some_filter(chance: random.Random, topics: list[str], depth: int = 2) -> str:
    if depth and chance.random() < 0.6:
        one, other = (some_filter(chance, topics, depth - 1) for _ in range(2))
        return chance.choice([f"({one} and {other})", f"({one} or {other})", f"not ({one})"])
    column = chance.choice(["topic", "partition", "offset", "timestamp", "timestampType"])
    texts = ["null", "'x'", *(f"'{topic}'" for topic in topics)]
    literals = {"topic": texts, "timestamp": list(TIMES)}.get(column, list(WHOLE))
    kind = chance.randrange(10)
    if kind < 5:
        return f"{column} {chance.choice(COMPARISONS)} {chance.choice(literals)}"
    if kind < 8:
        listed = ", ".join(chance.choice(literals) for _ in range(chance.randint(1, 4)))
        return f"{column} {chance.choice(['in', 'not in'])} ({listed})"
    if kind < 9:
        return f"{column} between {chance.choice(literals)} and {chance.choice(literals)}"
    return f"{chance.choice([column, 'key', 'headers'])} is {chance.choice(['', 'not '])}null"


def produce(broker: Target, topic: str, chance: random.Random) -> None:
    header = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    with BlockingClient(broker.bootstrap) as client:
        for partition in range(3):
            rows = pa.table(
                {
                    "key": pa.array(chance.choices([None, b"", b"k"], k=ROWS), pa.binary()),
                    "value": [b"v"] * ROWS,
                    "timestamp": pa.array(chance.choices(TIMES_MS, k=ROWS), pa.int64()),
                    "headers": pa.array(
                        chance.choices([None, [], [{"key": "h", "value": b"1"}]], k=ROWS), header
                    ),
                }
            )
            batches = arrow_to_batches(rows, timestamp_ms=0, target_bytes=200)
            for batch in batches:
                client.produce([(topic, partition, batch)], -1)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_filter_chooses_what_spark_chooses(spark: Any, broker: Target, seed: int) -> None:
    chance = random.Random(seed)
    topics = [f"filters-{seed}-{name}" for name in "ab"]
    for topic in topics:
        create_topic(broker, topic, partitions=3)
        produce(broker, topic, chance)
    options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": ",".join(topics)}
    frame = spark.read.format("felice").options(**options, includeHeaders="true").load()
    filters = FOUND + [some_filter(chance, topics) for _ in range(8)]
    place = ("topic", "partition", "offset")
    parts = [
        frame.where(text).selectExpr(f"{number} as number", *place) for number, text in enumerate(filters)
    ]
    found = reduce(lambda one, other: one.union(other), parts).collect()
    # A copy, because Spark would find the rows of a cached frame for the filtered ones, too.
    conditions = [f"({text}) as filter_{number}" for number, text in enumerate(filters)]
    expected = frame.localCheckpoint().selectExpr(*place, *conditions).collect()
    for number, text in enumerate(filters):
        of_felice = {tuple(row[1:]) for row in found if row["number"] == number}
        assert of_felice == {tuple(row[:3]) for row in expected if row[f"filter_{number}"]}, text
    assert len({row["number"] for row in found}) > len(filters) / 3, "most filters chose nothing"
