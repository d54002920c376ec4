"""`felice demo`: the options, and the exit code.

Keeps true: 0 only if all counts agree with the source; standard output of `--json`
            ends with one line, the summary; nothing is left behind unless `--keep`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click
from rich.console import Console

_NEEDED = "the demo needs Spark, pandas and the data: pip install 'felice[demo]'"


@click.command()
@click.option("--keep", is_flag=True, help="Keep the data directory, the chart and the summary.")
@click.option(
    "--dir", "directory", type=click.Path(path_type=Path), default=Path("felice-demo"), show_default=True,
    help="Where --keep keeps them; must not exist yet.",
)  # fmt: skip
@click.option(
    "--chart", type=click.Path(path_type=Path), help="Save the chart here too: .png, .svg or .html."
)
@click.option(
    "--json", "as_json", is_flag=True, help="End with one line of JSON; all else goes to standard error."
)
def demo(keep: bool, directory: Path, chart: Path | None, as_json: bool) -> None:
    """A year of New York's flights through topics, Spark and back, checked against the source.

    Starts a broker of its own, so nothing needs to run; takes a minute or two.
    """
    if chart is not None and chart.suffix not in (".png", ".svg", ".html"):
        raise click.BadParameter("the name must end in .png, .svg or .html", param_hint="--chart")
    if keep and directory.exists():
        raise click.BadParameter(f"{directory} exists already; remove it or name another", param_hint="--dir")
    try:
        from felice.demo.dataset import DatasetMissing
        from felice.demo.main import run
        from felice.spark import JavaNotFound
    except ImportError as error:
        raise click.ClickException(f"{_NEEDED} ({error})") from error
    try:
        outcome = run(Console(stderr=as_json), keep=directory if keep else None, chart=chart)
    except (DatasetMissing, JavaNotFound) as missing:
        raise click.ClickException(str(missing)) from missing
    if as_json:
        click.echo(json.dumps(outcome.summary()))
    if not outcome.passed:
        sys.exit(1)
