"""`felice demo`: the options and the exit code.

Keeps true: the exit code is 0 only if all counts agree with the source; with `--json` the
            last line of standard output is the summary; without `--keep` no file is
            left behind.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import click
from rich.console import Console

CHART_KINDS = (".png", ".svg", ".html")
KEPT_IN = Path("felice-demo")
# Without a terminal, lines may be as long as necessary.
UNLIMITED_COLUMNS = 1000
_NEEDED = "the demo needs Spark, pandas and the data: pip install 'felice[demo]'"


@click.command()
@click.option("--keep", is_flag=True, help="Keep the data directory, the chart and the summary.")
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path),
    show_default=str(KEPT_IN),
    help="Directory for --keep; must not exist yet.",
)
@click.option(
    "--chart", type=click.Path(path_type=Path), help="Save the chart here too: .png, .svg or .html."
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print one line of JSON at the end; everything else goes to standard error.",
)
def demo(keep: bool, directory: Path | None, chart: Path | None, as_json: bool) -> None:
    """Run a year of New York's flights through topics, Spark and back, and check the result.

    \b
    felice demo
    felice demo --keep --chart flights.png

    It starts a broker of its own and takes a minute or two.
    """
    kept = _place_to_keep(keep, directory)
    if chart is not None:
        _check_chart(chart, kept)
    try:
        from felice.demo.dataset import DatasetMissing
        from felice.demo.main import run
        from felice.spark import JavaNotFound
    except ImportError as error:
        raise click.ClickException(f"{_NEEDED} ({error})") from error
    try:
        outcome = run(_console(as_json), keep=kept, chart=chart)
    except (DatasetMissing, JavaNotFound) as missing:
        raise click.ClickException(str(missing)) from missing
    if as_json:
        click.echo(json.dumps(outcome.summary()))
    if not outcome.passed:
        sys.exit(1)


def _place_to_keep(keep: bool, directory: Path | None) -> Path | None:
    """The directory of `--keep`. Refuses options that would fail at the end of the work, or have no effect."""
    if not keep:
        if directory is not None:
            raise click.BadParameter("only --keep keeps anything there; add it", param_hint="--dir")
        return None
    kept = directory or KEPT_IN
    if kept.exists():
        raise click.BadParameter(f"{kept} exists already; remove it or name another", param_hint="--dir")
    return kept


def _check_chart(chart: Path, kept: Path | None) -> None:
    if chart.suffix not in CHART_KINDS:
        raise click.BadParameter("the name must end in .png, .svg or .html", param_hint="--chart")
    if chart.parent == kept:
        return
    if not chart.parent.is_dir():
        raise click.BadParameter(f"there is no directory {chart.parent}", param_hint="--chart")
    if chart.is_dir():
        raise click.BadParameter(f"{chart} is a directory", param_hint="--chart")
    if not os.access(chart if chart.exists() else chart.parent, os.W_OK):
        raise click.BadParameter(f"{chart} cannot be written", param_hint="--chart")


def _console(as_json: bool) -> Console:
    console = Console(stderr=as_json)
    return console if console.is_terminal else Console(stderr=as_json, width=UNLIMITED_COLUMNS)
