"""`kafka-server-start`: a broker from a configuration file, as `felice broker`."""

from __future__ import annotations

from felice.cli.kafka_tools import run_tool
from felice.cli.start import broker


def main() -> None:
    run_tool(broker)
