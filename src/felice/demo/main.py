"""The demo, step by step: broker, topics, Spark, results, checks.

Keeps true: everything that it starts is stopped, and everything that it writes outside of
            `keep` is removed, also when a step fails. It passes only if every count
            agrees with the source.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path

import pandas as pd
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console

from felice.dataclass import dataclass
from felice.demo.carriers import carriers, check_carriers, run_statements
from felice.demo.check import Check, check_count, check_windows, expected_windows
from felice.demo.dataset import Dataset, load_dataset
from felice.demo.query import start_query
from felice.demo.report import print_checks, print_delays, save_chart
from felice.demo.steps import Step, Steps
from felice.demo.topics import (
    FLIGHTS,
    RESULTS,
    SOURCES,
    TABLES,
    DemoTopic,
    consume_results,
    count_records,
    count_written,
    create_topics,
    produce,
)
from felice.env.interrupts import HeldInterrupts
from felice.env.own_directory import OwnDirectory
from felice.pipelines.spark.java import options_for_few_resources
from felice.pipelines.spark.lag import offsets_behind
from felice.pipelines.spark.session import session, start_java, stop
from felice.server.process.embedded import EmbeddedBroker

MASTER = "local[*]"
CHART = "delays.png"
PROGRESS_EVERY_S = 0.3

# Spark logs to a file, because its lines would break the progress bars.
_LOG4J = """
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {log}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d %p %c{{1}}: %m%n%ex
"""


class QueryFailed(RuntimeError):
    """The Spark query failed. The text is Spark's."""


@dataclass(slots=True)
class Outcome:
    """Counts, times and checks of one run."""

    produced: dict[str, int] = field(default_factory=dict)
    consumed: dict[str, int] = field(default_factory=dict)
    windows: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    rows_per_s: dict[str, int] = field(default_factory=dict)
    checks: list[Check] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether there are checks and all of them passed."""
        return bool(self.checks) and all(check.passed for check in self.checks)

    def summary(self) -> dict[str, object]:
        """The line that `--json` prints."""
        return {
            "passed": self.passed,
            "topics": {
                topic: {"produced": rows, "consumed": self.consumed.get(topic, 0)}
                for topic, rows in self.produced.items()
            },
            "windows": self.windows,
            "seconds": self.seconds,
            "rows_per_s": self.rows_per_s,
            "checks": {
                check.title: {"expected": check.expected, "found": check.found} for check in self.checks
            },
        }


def run(console: Console, keep: Path | None = None, chart: Path | None = None) -> Outcome:
    """Runs all steps and prints the results; writes the chart to `chart` and keeps all files in `keep`, if given."""
    outcome = Outcome()
    with HeldInterrupts() as interrupts, _workplace(keep) as place:
        steps = Steps(console, interrupts.check)
        data, windows = _pipeline(place, steps, outcome)
        with steps.step("check", "compute the same windows with pandas"):
            outcome.checks += _checks(data, windows, outcome)
        charts = [path for path in (keep and place / CHART, chart) if path is not None]
        if charts:
            with steps.step("chart", "draw the chart"):
                for path in charts:
                    save_chart(windows, path)
        outcome.seconds = {name: round(step.seconds, 3) for name, step in steps.done.items()}
        outcome.rows_per_s = {name: round(step.rows_per_s) for name, step in steps.done.items() if step.rows}
        if keep is not None:
            (place / "summary.json").write_text(json.dumps(outcome.summary(), indent=2) + "\n")
    print_delays(console, windows)
    print_checks(console, outcome.checks)
    _say_what_stays(console, keep, chart)
    return outcome


def _pipeline(place: Path, steps: Steps, outcome: Outcome) -> tuple[Dataset, pd.DataFrame]:
    """Sends rows to topics while the Spark query follows them, and reads its results from a topic."""
    with EmbeddedBroker(place / "data") as broker:
        create_topics(broker.bootstrap)
        with _starting_query(place, broker.bootstrap) as starting:
            with steps.step("load", "read the year's rows from the package"):
                data = load_dataset()
            for topic in TABLES:
                _produce(topic, data, broker.bootstrap, steps, outcome)
            starting.tables_written.set()
            _produce(FLIGHTS, data, broker.bootstrap, steps, outcome)
            _compute(starting.query, steps, outcome)
            with steps.step("sql", "flights of each airline, by SQL on Spark"):
                run_statements(_started_spark(), broker.bootstrap, place / "sql-checkpoint")
        with steps.step("consume tables", "consume the tables in a group") as step:
            outcome.consumed |= count_records(broker.bootstrap, TABLES, step.advance)
        outcome.produced[RESULTS] = count_written(broker.bootstrap, RESULTS)
        with steps.step(
            f"consume {RESULTS}", "consume the results in a group", outcome.produced[RESULTS]
        ) as step:
            outcome.consumed[RESULTS], windows = consume_results(broker.bootstrap, step.advance)
        outcome.windows = len(windows)
        outcome.checks.append(check_carriers(data, carriers(broker.bootstrap)))
    return data, windows


def _produce(topic: DemoTopic, data: Dataset, bootstrap: str, steps: Steps, outcome: Outcome) -> None:
    rows = topic.rows(data)
    with steps.step(f"produce {topic.name}", f"produce {topic.name}", len(rows)) as step:
        produce(bootstrap, topic, rows, step.advance)
    outcome.produced[topic.name] = step.rows


@dataclass(slots=True)
class StartingQuery:
    """A query whose Spark starts on a thread. It begins when the tables that it joins are written."""

    tables_written: threading.Event = field(default_factory=threading.Event)
    is_abandoned: bool = False
    query: Future[StreamingQuery] = field(default_factory=Future)

    def start(self, place: Path, bootstrap: str) -> StreamingQuery:
        """Starts Spark and the query. Raises `CancelledError` if the topics are not filled."""
        spark = _start_spark(place)
        self.tables_written.wait()
        if self.is_abandoned:
            raise CancelledError
        return start_query(spark, bootstrap, place / "checkpoint", RESULTS)


@contextmanager
def _starting_query(place: Path, bootstrap: str) -> Iterator[StartingQuery]:
    """Starts Spark and the query on a thread while the topics are filled. Stops Spark at the end.

    Outside the main thread a SparkContext cannot install its own handler of Ctrl-C.
    """
    starting = StartingQuery()
    with ThreadPoolExecutor(1) as elsewhere:
        starting.query = elsewhere.submit(starting.start, place, bootstrap)
        try:
            yield starting
        except BaseException:
            starting.is_abandoned = True
            raise
        finally:
            starting.tables_written.set()
            wait([starting.query])
            _stop_spark()


def _stop_spark() -> None:
    spark = SparkSession.getActiveSession() or SparkSession._instantiatedSession
    if spark is not None:
        stop(spark)


def _started_spark() -> SparkSession:
    """The session that another thread has started, made active in this thread: Spark finds data sources by the active
    session.
    """
    spark = SparkSession._instantiatedSession
    assert spark is not None, "the first query has started Spark"
    spark._jvm.SparkSession.setActiveSession(spark._jsparkSession)  # type: ignore[union-attr]
    return spark


def _compute(starting: Future[StreamingQuery], steps: Steps, outcome: Outcome) -> None:
    """Waits until the query has read all flights."""
    flights = outcome.produced["flights"]
    with steps.step("spark", "start Spark and the query"):
        query = starting.result()
    with steps.step("query", "hourly delays with weather, by Spark", flights) as step:
        follow(query, flights, step)
    outcome.consumed["flights"] = step.rows


def _start_spark(place: Path) -> SparkSession:
    """Starts Spark. Java's standard error goes to a file, which is printed only if the start fails."""
    said, config = place / "java.log", _spark_config(place)
    try:
        with said.open("wb") as stderr:
            start_java(MASTER, config, stderr)
        return session("felice-demo", MASTER, config=config)
    except Exception:
        sys.stderr.write(said.read_text(errors="replace"))
        raise


def follow(query: StreamingQuery, rows: int, step: Step) -> None:
    """Waits until the query has processed so many rows, and stops it. Raises `QueryFailed` if it failed."""
    try:
        while query.isActive and step.rows < rows:
            step.advance(_rows_read(query) - step.rows)
            step.describe(_lag(query))
            time.sleep(PROGRESS_EVERY_S)
        if not query.isActive:
            query.awaitTermination()
    except StreamingQueryException as error:
        # The text comes from Java, which is stopped before the error is printed.
        raise QueryFailed(str(error)) from None
    finally:
        query.stop()
    step.advance(_rows_read(query) - step.rows)


def _lag(query: StreamingQuery) -> str:
    behind = offsets_behind(query.lastProgress) if query.lastProgress is not None else {}
    return f"{behind['offsetsBehindLatest']:,} flights behind" if behind else ""


def _rows_read(query: StreamingQuery) -> int:
    return sum(source["numInputRows"] for batch in query.recentProgress for source in batch["sources"])


def _checks(data: Dataset, windows: pd.DataFrame, outcome: Outcome) -> list[Check]:
    sources = {topic.name: len(topic.rows(data)) for topic in SOURCES}
    produced = [
        check_count(f"{name} produced", rows, outcome.produced[name]) for name, rows in sources.items()
    ]
    expected = sources | {RESULTS: outcome.produced[RESULTS]}
    consumed = [
        check_count(f"{name} consumed", rows, outcome.consumed[name]) for name, rows in expected.items()
    ]
    return [*produced, *consumed, check_windows(expected_windows(data), windows)]


@contextmanager
def _workplace(keep: Path | None) -> Iterator[Path]:
    """The directory for all files. Without `keep` it is temporary and removed at the end."""
    if keep is not None:
        keep.mkdir(parents=True)
        yield keep.resolve()
        return
    place = OwnDirectory("felice-demo-")
    try:
        yield place.path
    finally:
        place.remove()


def _spark_config(place: Path) -> dict[str, str]:
    log4j = place / "log4j2.properties"
    log4j.write_text(_LOG4J.format(log=place / "spark.log"))
    return {
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={log4j.as_uri()} {options_for_few_resources()}",
        "spark.local.dir": str(place / "spark"),
        "spark.sql.warehouse.dir": str(place / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(os.cpu_count() or 1),
        # The query is stopped after its last row. A batch without rows would only remove old state.
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


def _say_what_stays(console: Console, keep: Path | None, chart: Path | None) -> None:
    if chart is not None:
        console.print(f"chart: {chart}", highlight=False, soft_wrap=True)
    if keep is not None:
        said = f"chart: {keep / CHART}; topics: felice start --data-dir {keep / 'data'}"
        console.print(said, highlight=False, soft_wrap=True)
    elif chart is None:
        console.print("all removed again; --keep keeps the topics and the chart", highlight=False)
