"""`python -m bench.sql_steps`: what a record costs in the task of a query of SQL, beside the same App in Python.

How: both tasks take the same groups of records in turn, in this process: without Spark, topics and files. Figures are
     microseconds of CPU for a record; the ratio is Python's by SQL's, as that of the throughput.
"""

from __future__ import annotations

import cProfile
import os
import pstats
import runpy
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from bench import streams
from felice.pipelines.sql.functions import built_in
from felice.pipelines.sql.programs import program_of
from felice.pipelines.streams.app import App
from felice.pipelines.streams.on_spark.stage import MOST_GROUP, garbage_left
from felice.pipelines.streams.record import Group
from felice.pipelines.streams.task import Task

_KEYS, _RECORDS, _SPAN_MS = 100_000, 400_000, 600_000
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


def task_of(app: App) -> Task:
    """The task of the part with state: the applications have no other one."""
    (part,) = (one for one in app.topology.parts() if one.is_placed)
    return Task(app.topology, part)


def groups(records: int) -> Iterator[Group]:
    """The records of a backlog. The first ones make a row of each key."""
    for start in range(0, _KEYS + records, MOST_GROUP):
        numbers = range(start, min(start + MOST_GROUP, _KEYS + records))
        yield Group(
            [b"user-%d" % (number * 7919 % _KEYS) for number in numbers],
            [b"x" * 50] * len(numbers),
            [1_000_000_000 + number * _SPAN_MS // records for number in numbers],
            [()] * len(numbers),
        )


def fill(task: Task) -> None:
    """A row of each key, if the task joins a table."""
    if _TOPICS["table"] in task.topics:
        numbers = range(_KEYS)
        keys, values = [b"user-%d" % one for one in numbers], [b"row-%d" % one for one in numbers]
        task.process_group(_TOPICS["table"], Group(keys, values, [0] * _KEYS, [()] * _KEYS))


def measure(kind: str, records: int, profile: str | None) -> tuple[float, float]:
    """Microseconds for a record: the median of the groups, of both."""
    tasks = {"sql": task_of(of_sql(kind)), "python": task_of(of_python(kind))}
    took: dict[str, list[float]] = {name: [] for name in tasks}
    profiler = cProfile.Profile()
    for task in tasks.values():
        fill(task)
    for number, group in enumerate(groups(records)):
        for name in list(tasks)[:: 1 if number % 2 else -1]:
            with garbage_left():
                begun = time.process_time()
                if name == profile and number >= _KEYS // MOST_GROUP:
                    profiler.enable()
                sent = tasks[name].process_group(_TOPICS["input"], group)
                profiler.disable()
                took[name].append((time.process_time() - begun) * 1e6 / len(group.keys))
                assert sent.keys
                if number < _KEYS // MOST_GROUP:
                    took[name].clear()
                for store in tasks[name].stores.values():
                    store.forget_changes()
    if profile:
        pstats.Stats(profiler).sort_stats("tottime").print_stats(22)
    return statistics.median(took["sql"]), statistics.median(took["python"])


@click.command()
@click.argument("kinds", nargs=-1)
@click.option("--records", default=_RECORDS, show_default=True)
@click.option(
    "--profile", type=click.Choice(["sql", "python"]), help="Print where the time goes in this one."
)
def main(kinds: Sequence[str], records: int, profile: str | None) -> None:
    """Measure these kinds; all of them without a name."""
    for kind in kinds or list(streams.STATEMENTS):
        sql, python = measure(kind, records, profile)
        click.echo(f"{kind:10} SQL {sql:6.2f}   Python {python:6.2f}   ratio {python / sql:.2f}")


if __name__ == "__main__":
    main()
