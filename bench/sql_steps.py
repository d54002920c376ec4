"""`python -m bench.sql_steps`: what a record costs in the stage of a query of SQL, beside the same App in Python.

How: both stages take the same batches of records in turn, in this process: from Arrow through the task to Arrow and the
     file of changes, without Spark. Figures are microseconds of CPU for a record, the medians of the batches; the ratio
     is Python's by SQL's, as that of the throughput.
"""

from __future__ import annotations

import cProfile
import io
import os
import pstats
import runpy
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import click
import numpy as np
import pyarrow as pa

from bench import streams
from felice.pipelines.sql.functions import built_in
from felice.pipelines.sql.programs import program_of
from felice.pipelines.streams.app import App
from felice.pipelines.streams.on_spark.application import Application
from felice.pipelines.streams.on_spark.places import LocalPlace
from felice.pipelines.streams.on_spark.rows import HEADERS, SCHEMA
from felice.pipelines.streams.on_spark.stage import garbage_left, run_rows
from felice.pipelines.streams.on_spark.state import StateFiles

_KEYS, _RECORDS, _BATCH, _SPAN_MS = 100_000, 200_000, 20_000, 600_000
_BEGIN_MS = 1_700_000_000_000
_APPLICATION = Path(__file__).with_name("stream_application.py")
_TOPICS = {"input": "given", "table": "rows", "output": "results"}


def of_sql(kind: str) -> App:
    """The query of SQL."""
    topics = streams.Topics(kind, **_TOPICS)
    text = streams.STATEMENTS[kind].format(topics)
    return program_of(text, dict.fromkeys(_TOPICS.values(), 2), built_in()).apps[0]


def of_python(kind: str) -> App:
    """The same application in Python."""
    os.environ["FELICE_BENCH_STREAM"] = " ".join([kind, *_TOPICS.values()])
    app: App = runpy.run_path(str(_APPLICATION))["app"]
    return app


class InMemory(LocalPlace):
    """Takes files of changes, and keeps none."""

    def put(self, name: str, mark: str, write: Callable[[BinaryIO], object]) -> None:
        """Write the file in memory."""
        write(io.BytesIO())


class Stage:
    """The part of an application that has state: the measured ones have no other."""

    def __init__(self, app: App) -> None:
        self._application = Application(app.topology, None)
        (self._part,) = (one for one in app.topology.parts() if one.is_placed)
        self._task = self._application.task(self._part.number)
        self._files = StateFiles(InMemory(Path()))
        self.took_us: list[float] = []

    def fill(self) -> None:
        """Make a row of each key, if the application has a table."""
        if _TOPICS["table"] in self._task.topics:
            keys = range(_KEYS)
            self._run(rows("table", keys, [b"row-%d" % one for one in keys], [_BEGIN_MS] * _KEYS))

    def take(self, batch: pa.Table, profiler: cProfile.Profile | None) -> None:
        """Process a batch."""
        with garbage_left():
            begun = time.process_time()
            if profiler is not None:
                profiler.enable()
            self._run(batch)
            if profiler is not None:
                profiler.disable()
            self.took_us.append((time.process_time() - begun) * 1e6 / len(batch))

    def _run(self, batch: pa.Table) -> None:
        results = run_rows(self._application, batch, self._task)
        results.batch(self._application.reader_of, 1, "0/0", results.in_order())
        changes = {name: store.take_changes() for name, store in self._task.stores.items()}
        self._files.write(0, changes, self._task.stores)


def rows(topic: str, keys: Sequence[int], values: Sequence[bytes], timestamps: Sequence[int]) -> pa.Table:
    """Records as the stage gets them."""
    size = len(keys)
    given = {
        "part": np.zeros(size, np.int32),
        "place": np.zeros(size, np.int32),
        "origin": pa.repeat(pa.scalar("given-0"), size),
        "seq": np.arange(size),
        "topic": pa.repeat(pa.scalar(_TOPICS[topic]), size),
        "key": [b"user-%d" % key for key in keys],
        "value": values,
        "timestamp": timestamps,
        "headers": pa.array([[]] * size, HEADERS),
    }
    return pa.table([pa.array(given[one.name], one.type) for one in SCHEMA], schema=SCHEMA)


def batches(records: int) -> Iterator[pa.Table]:
    """The records of a backlog. The first batches make a row of each key."""
    for start in range(0, _KEYS + records, _BATCH):
        numbers = range(start, min(start + _BATCH, _KEYS + records))
        keys = [number * 7919 % _KEYS for number in numbers]
        times = [_BEGIN_MS + number * _SPAN_MS // records for number in numbers]
        yield rows("input", keys, [b"x" * 50] * len(keys), times)


def measure(kind: str, records: int, profile: str | None) -> dict[str, float]:
    """Microseconds for a record, of both."""
    stages = {"sql": Stage(of_sql(kind)), "python": Stage(of_python(kind))}
    profiler = cProfile.Profile()
    for stage in stages.values():
        stage.fill()
    for number, batch in enumerate(batches(records)):
        is_warm = number * _BATCH >= _KEYS
        for name in list(stages)[:: 1 if number % 2 else -1]:
            stages[name].take(batch, profiler if is_warm and name == profile else None)
            if not is_warm:
                stages[name].took_us.clear()
    if profile:
        pstats.Stats(profiler).sort_stats("tottime").print_stats(25)
    return {name: statistics.median(stage.took_us) for name, stage in stages.items()}


@click.command()
@click.argument("kinds", nargs=-1, type=click.Choice(list(streams.STATEMENTS)))
@click.option("--records", default=_RECORDS, show_default=True)
@click.option(
    "--profile", type=click.Choice(["sql", "python"]), help="Print where the time goes in this one."
)
def main(kinds: Sequence[str], records: int, profile: str | None) -> None:
    """Measure these kinds; all of them without a name."""
    for kind in kinds or list(streams.STATEMENTS):
        took = measure(kind, records, profile)
        sql, python = took["sql"], took["python"]
        click.echo(f"{kind:10} SQL {sql:6.2f}   Python {python:6.2f}   ratio {python / sql:.2f}")


if __name__ == "__main__":
    main()
