"""`python -m soak`: runs the load and checks it, or reports on an earlier or running one."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import click

from soak.report import faults_of, write_report
from soak.run import soak


@click.group()
def main() -> None:
    """Mixed load on one broker process, for any time."""


@main.command()
@click.option("--minutes", default=60.0, show_default=True)
@click.option(
    "--interval", "interval_s", default=10.0, show_default=True, help="Seconds between two samples."
)
@click.option(
    "--round", "round_s", default=20.0, show_default=True, help="Seconds that a round takes, about."
)
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), help="Where files go; made if needed."
)
def run(minutes: float, interval_s: float, round_s: float, out: Path | None) -> None:
    """Start a broker, put load on it, check it. The exit status is 1 after an anomaly."""
    directory = (out or Path(tempfile.mkdtemp(prefix="felice-soak-"))).absolute()
    click.echo(f"samples and reports go to {directory}")
    soak(directory, minutes, interval_s, round_s)
    click.echo(write_report(directory))
    sys.exit(1 if faults_of(directory) else 0)


@main.command()
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
def report(directory: Path) -> None:
    """Check what is in DIRECTORY so far."""
    click.echo(write_report(directory.absolute()))


if __name__ == "__main__":
    main()
