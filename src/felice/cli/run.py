"""Runs a stream application on Spark."""

from __future__ import annotations

import re
import runpy
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from felice.cli.faults import Fault

if TYPE_CHECKING:
    from felice.streams import App

POLL_S = 1.0
STOP_WITHIN_S = 120.0
_ERROR_LINE = re.compile(r"^(?:[\w.]+\.)?(\w*(?:Error|Exception|TornBatch)): (.+)$", re.MULTILINE)


def app_in(path: Path) -> App:
    """The App that a file defines: the one named `app`, or the only one."""
    from felice.streams import App

    # Not imported as a module: functions of a module that workers cannot import would not reach them.
    found = runpy.run_path(str(path), run_name="felice_app")
    apps = {id(value): value for value in found.values() if isinstance(value, App)}
    if isinstance(found.get("app"), App):
        return found["app"]  # type: ignore[no-any-return]
    if len(apps) != 1:
        raise Fault(f"{path} defines {len(apps)} Apps; name the one to run `app`")
    return next(iter(apps.values()))


def reason_of(text: str) -> str:
    """What stopped a query: the last error in Spark's account of it, which is the one of our code or the user's."""
    errors = _ERROR_LINE.findall(text)
    return f"{errors[-1][0]}: {errors[-1][1]}" if errors else text.strip().splitlines()[0]


def describe_progress(progress: Any) -> str | None:
    """One line on a batch; None for one without rows."""
    from felice.spark import offsets_behind

    rows = int(progress["numInputRows"])
    if not rows:
        return None
    took_ms = max(1, int(progress["durationMs"].get("triggerExecution", 1)))
    behind = int(offsets_behind(progress).get("offsetsBehindLatest", 0))
    return f"batch {progress['batchId']}: {rows} rows in {took_ms} ms, {rows * 1000 // took_ms} rows/s, {behind} behind"


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--bootstrap-server", default="127.0.0.1:9092", show_default=True, help="A broker of the cluster."
)
@click.option(
    "--master", default="local[*]", show_default=True, help="Where Spark runs: local[N] or spark://host:7077."
)
@click.option(
    "--checkpoint",
    type=click.Path(path_type=Path),
    help="Directory for offsets and state. Without it: NAME-checkpoint in the current directory.",
)
@click.option(
    "--partitions", type=click.IntRange(1), help="Tasks of each part with state; the first start fixes it."
)
@click.option(
    "--trigger-ms", type=click.IntRange(0), default=0, show_default=True, help="Least time between batches."
)
@click.option("--until-caught-up", is_flag=True, help="End when all records that exist now are processed.")
@click.option("--describe", is_flag=True, help="Print the topology and end.")
def run(
    file: Path,
    bootstrap_server: str,
    master: str,
    checkpoint: Path | None,
    partitions: int | None,
    trigger_ms: int,
    until_caught_up: bool,
    describe: bool,
) -> None:
    """Run the stream application that a Python file defines, on Spark.

    Ctrl-C or SIGTERM stops it after the batch that is running. Started again with the same checkpoint, it goes on where
    it stopped. If it fails, the reason is printed and the exit code is 1.

    \b
    felice run wordcount.py --until-caught-up
    felice run wordcount.py --describe
    """
    app = app_in(file)
    if describe:
        click.echo(app.describe())
        return
    query = _started(
        app,
        master,
        bootstrap_server,
        checkpoint or Path(f"{app.name}-checkpoint"),
        {"partitions": partitions, "until_caught_up": until_caught_up, "trigger_ms": trigger_ms},
    )
    click.echo(f"{app.name} is running", err=True)
    _follow(query)


def _started(app: App, master: str, bootstrap: str, checkpoint: Path, options: dict[str, Any]) -> Any:
    from felice.pipelines.streams.on_spark.runner import SPARK_CONFIG, start
    from felice.spark import session
    from felice.streams import TopologyError

    spark = session(app.name, master, config=SPARK_CONFIG)
    try:
        return start(app, spark, bootstrap, checkpoint, **options)
    except TopologyError as error:
        raise Fault(str(error)) from None


def _follow(query: Any) -> None:
    """Print progress until the query ends; stop it when asked to."""
    told = -1
    try:
        while query.isActive:
            told = _tell(query, told)
            query.awaitTermination(POLL_S)
    except KeyboardInterrupt:
        _stop(query)
    except Exception:
        # The failure of the query. What is no failure of the query is raised again.
        if query.exception() is None:
            raise
    _tell(query, told)
    if (error := query.exception()) is not None:
        raise Fault(reason_of(str(error)))


def _tell(query: Any, told: int) -> int:
    """Print the batches after `told`, and return the last."""
    for progress in query.recentProgress:
        if progress["batchId"] > told and (line := describe_progress(progress)):
            click.echo(line, err=True)
            told = progress["batchId"]
    return told


def _stop(query: Any) -> None:
    """After the running batch, as far as that can be waited for: a batch that is cut off runs again."""
    click.echo("stopping after this batch", err=True)
    deadline = time.monotonic() + STOP_WITHIN_S
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
        time.sleep(0.05)
    query.stop()
