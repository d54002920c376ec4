"""Starts an App as one streaming query on Spark: from its topics through its tasks to its topics, exactly once.

Keeps true: one query with one checkpoint is the whole application. Spark's logs say which offsets a batch has; the
            state's versions have the batch's number; the sink writes a batch once. So all three belong together, and a
            batch that runs again replaces what it left.
How:        The source's rows are addressed (`stage.address`); then each part with state has a shuffle by place and a
            stage. Rows of other parts pass through, so that the query stays one line of stages and nothing is computed
            twice.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from felice.pipelines.streams.app import App
from felice.pipelines.streams.on_spark.stage import OUT, SPARK_SCHEMA, Plan, address, run_part
from felice.pipelines.streams.topology import TopologyError

DESCRIPTION = "application.json"
DESCRIPTION_FORMAT = 1
STATE = "felice-streams"
SPARK_CONFIG = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",
}


def start(
    app: App,
    spark: SparkSession,
    bootstrap: str,
    checkpoint: Path,
    *,
    partitions: int | None = None,
    until_caught_up: bool = False,
    trigger_ms: int = 0,
) -> StreamingQuery:
    """Start the App; with `until_caught_up`, it ends when it has processed what is there now.

    `partitions` is the number of tasks of each part with state. It is fixed by the first start.
    """
    # Spark must not change the number of tasks by itself: each has the state of one partition.
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    directory = checkpoint.absolute() / STATE
    places = _described(app, directory, partitions or int(spark.sparkContext.defaultParallelism))
    plan = Plan(
        cloudpickle.dumps(app.topology),  # type: ignore[no-untyped-call]
        places,
        str(directory),
    )
    topics = sorted(
        one.topic for part in app.topology.parts() for one in part.sources if not one.is_repartition
    )
    connected = {"kafka.bootstrap.servers": bootstrap}
    source = spark.readStream.format("felice").options(
        **connected,
        subscribe=",".join(topics),
        startingOffsets="earliest",
        includeHeaders="true",
        groupId=app.name,
        **{"kafka.isolation.level": "read_committed"},
    )
    writer = _results(app, source.load(), plan).writeStream.format("felice").options(**connected)
    writer = writer.option("checkpointLocation", str(checkpoint.absolute())).queryName(app.name)
    timed = {"availableNow": True} if until_caught_up else {"processingTime": f"{trigger_ms} milliseconds"}
    return writer.trigger(**timed).start()


def _results(app: App, source: DataFrame, plan: Plan) -> DataFrame:
    rows = source.mapInArrow(partial(address, plan=plan), SPARK_SCHEMA)
    for part in app.topology.parts():
        if part.stores:
            placed = rows.repartitionById(plan.places, "place")
            rows = placed.mapInArrow(partial(run_part, plan=plan, number=part.number), SPARK_SCHEMA)
    results = rows.where(f"part = {OUT}")
    return results.selectExpr("topic", "key", "value", "timestamp_millis(timestamp) as timestamp", "headers")


def _described(app: App, directory: Path, partitions: int) -> int:
    """Check that the state in the directory is this App's, or say in it that it is; the number of partitions."""
    _check(app)
    path = directory / DESCRIPTION
    mine = {"format": DESCRIPTION_FORMAT, "application": app.name, "topology": app.describe()}
    if not path.exists():
        directory.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(mine | {"partitions": partitions}, indent=1))
        return partitions
    found = json.loads(path.read_text())
    for what, text in (
        ("format", "was written by another release of Felice"),
        ("application", f"belongs to the application {found.get('application')!r}"),
        ("topology", "belongs to an earlier topology of this application"),
    ):
        if found.get(what) != mine[what]:
            raise TopologyError(
                f"the state in {directory} {text}; use another checkpoint, or remove this one"
            )
    kept: int = found["partitions"]
    return kept


def _check(app: App) -> None:
    parts = app.topology.parts()
    if not any(one for part in parts for one in part.sinks if not one.is_repartition):
        raise TopologyError(f"{app.name} writes no topic")
    for part in parts:
        if not part.stores and any(one.is_repartition for one in part.sources):
            raise TopologyError(f"sub-topology {part.number} reads a repartition and keeps nothing")
