"""`kafka-dump-log`."""

from __future__ import annotations

from pathlib import Path

import click

from felice.cli.dump_log import dump_files
from felice.cli.faults import Fault
from felice.cli.kafka_tools import kafka_tool


@kafka_tool("kafka-dump-log")
@click.option(
    "--files",
    required=True,
    metavar="FILE,FILE",
    help=".log, .index or .timeindex files, separated by commas.",
)
@click.option("--print-data-log", is_flag=True, help="Print each record too.")
def kafka_dump_log(files: str, print_data_log: bool) -> None:
    """Print and check segments and indexes.

    \b
    kafka-dump-log --files felice-data/flights-0/00000000000000000000.log --print-data-log
    """
    paths = [Path(name) for name in files.split(",")]
    if missing := [str(path) for path in paths if not path.exists()]:
        raise Fault(f"there is no file {', '.join(missing)}")
    dump_files(paths, deep=print_data_log)
