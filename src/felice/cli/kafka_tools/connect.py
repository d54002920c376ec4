"""`connect-standalone`, `connect-distributed` and `connect-mirror-maker`: as `felice connect` and `felice mirror`."""

from __future__ import annotations

from pathlib import Path

from felice.cli.connect_worker import (
    clusters_option,
    connector_files,
    mirror_file,
    run_distributed,
    run_mirror,
    run_standalone,
    worker_file,
    worker_options,
)
from felice.cli.kafka_tools import kafka_tool


@kafka_tool("connect-standalone")
@worker_file
@connector_files
@worker_options
def connect_standalone(
    worker_file: Path,
    connector_files: tuple[Path, ...],
    overrides: tuple[str, ...],
    log_format: str,
    log_level: str,
) -> None:
    """Start a worker that is alone, with the connectors of these files.

    \b
    connect-standalone connect-standalone.properties connect-file-source.properties
    """
    run_standalone(worker_file, connector_files, overrides, log_format, log_level)


@kafka_tool("connect-distributed")
@worker_file
@worker_options
def connect_distributed(
    worker_file: Path, overrides: tuple[str, ...], log_format: str, log_level: str
) -> None:
    """Start a worker that shares its work with the other workers of its group.

    \b
    connect-distributed connect-distributed.properties
    """
    run_distributed(worker_file, overrides, log_format, log_level)


@kafka_tool("connect-mirror-maker")
@mirror_file
@clusters_option
@worker_options
def connect_mirror_maker(
    mirror_file: Path,
    clusters: tuple[str, ...],
    overrides: tuple[str, ...],
    log_format: str,
    log_level: str,
) -> None:
    """Mirror topics between clusters.

    \b
    connect-mirror-maker connect-mirror-maker.properties
    """
    run_mirror(mirror_file, clusters, overrides, log_format, log_level)
