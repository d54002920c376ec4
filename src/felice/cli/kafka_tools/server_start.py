"""`kafka-server-start`: a broker from a configuration file, as `felice broker`."""

from __future__ import annotations

from pathlib import Path

from felice.cli.kafka_tools import kafka_tool
from felice.cli.start import run_from_file, server_options


@kafka_tool("kafka-server-start")
@server_options
def kafka_server_start(
    properties_file: Path | None,
    overrides: tuple[str, ...],
    reads_environment: bool,
    log_format: str,
    log_level: str,
) -> None:
    """Start a broker from a server.properties file.

    \b
    kafka-server-start server.properties --override num.partitions=3
    """
    run_from_file(properties_file, overrides, log_format, log_level, reads_environment=reads_environment)
