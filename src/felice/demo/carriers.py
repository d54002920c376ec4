"""The demo's query of SQL: the flights of each airline, over the same topics."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
from pyspark.sql import SparkSession

from felice.demo.check import Check
from felice.demo.dataset import Dataset
from felice.demo.topics import CARRIERS, ends_of, read_last
from felice.pipelines.sql.functions import built_in
from felice.pipelines.sql.programs import program_of
from felice.pipelines.streams.on_spark.runner import start

STATEMENTS = f"""
SET 'auto.offset.reset' = 'earliest';

CREATE STREAM flights (carrier STRING KEY, origin STRING, dep_delay DOUBLE)
  WITH (kafka_topic = 'flights', value_format = 'JSON');

CREATE TABLE {CARRIERS} WITH (kafka_topic = '{CARRIERS}') AS
  SELECT carrier, COUNT(*) AS flights, COUNT(dep_delay) AS departed, MAX(dep_delay) AS worst
  FROM flights
  GROUP BY carrier;
"""
COMPARED = ["flights", "departed", "worst"]


def run_statements(spark: SparkSession, bootstrap: str, checkpoint: Path) -> None:
    """Run the query over all flights, and end."""
    partitions = {topic: len(ends_of(bootstrap, topic)) for topic in ("flights", CARRIERS)}
    (app,) = program_of(STATEMENTS, partitions, built_in()).apps
    query = start(app.scope, spark, bootstrap, checkpoint, until_caught_up=True)
    query.awaitTermination()


def carriers(bootstrap: str) -> pd.DataFrame:
    """The rows of the query's table, by carrier."""
    _, last = read_last(bootstrap, CARRIERS)
    rows = {key.decode(): json.loads(value) for key, value in last.items()}
    found = pd.DataFrame.from_dict(rows, orient="index").rename(columns=str.lower)
    return found.sort_index()


def check_carriers(data: Dataset, found: pd.DataFrame) -> Check:
    """Compares the table with what pandas computes."""
    expected = data.flights.groupby("carrier").agg(
        flights=("carrier", "size"), departed=("dep_delay", "count"), worst=("dep_delay", "max")
    )
    same = expected.index.equals(found.index)
    wrong = [] if same else ["the carriers differ"]
    for column in COMPARED if same else ():
        differing = expected.index[expected[column].astype(float) != found[column].astype(float)]
        wrong += [f"{column} differs for {', '.join(differing)}"] if len(differing) else []
    return Check("airlines counted by SQL", len(expected), len(found), differences=tuple(wrong))
