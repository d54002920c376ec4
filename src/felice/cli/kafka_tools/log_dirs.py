"""`kafka-log-dirs`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from felice.cli.kafka_tools import bootstrap_server_option, kafka_tool
from felice.cli.log_dirs import known_brokers, log_dirs_in_rounds
from felice.cli.options import admin_client, broker_ids, command_config_option

if TYPE_CHECKING:
    from felice.client.admin import LogDirDescription


@kafka_tool("kafka-log-dirs")
@bootstrap_server_option
@command_config_option
@click.option("--describe", is_flag=True, required=True, help="Describe log directories (the only action).")
@click.option("--topic-list", metavar="T1,T2", help="Only these topics.")
@click.option("--broker-list", metavar="1,2", help="Only these brokers.")
def kafka_log_dirs(
    bootstrap_server: str,
    command_config: Path | None,
    describe: bool,
    topic_list: str | None,
    broker_list: str | None,
) -> None:
    """Print the log directories of brokers and their replicas as JSON.

    \b
    kafka-log-dirs --bootstrap-server localhost:9092 --describe --topic-list flights
    """
    from felice.client import KafkaException

    admin = admin_client(bootstrap_server, command_config)
    brokers = broker_ids(broker_list) if broker_list else known_brokers(admin)
    names = topic_list.split(",") if topic_list else None
    click.echo("Querying brokers for log directories information")
    found = log_dirs_in_rounds(admin, brokers, names)
    answered = {broker: rows for broker, rows in found.items() if not isinstance(rows, KafkaException)}
    if answered:
        listed = ",".join(map(str, answered))
        click.echo(f"Received log directory information from brokers {listed}")
        rows = [
            {"broker": broker, "logDirs": [_log_dir(row) for row in directories]}
            for broker, directories in answered.items()
        ]
        click.echo(json.dumps({"version": 1, "brokers": rows}, separators=(",", ":")))
    for error in found.values():
        if isinstance(error, KafkaException):
            raise error


def _log_dir(found: LogDirDescription) -> dict[str, object]:
    return {
        "partitions": [
            {
                "partition": f"{replica.topic}-{replica.partition}",
                "size": replica.size_bytes,
                "offsetLag": replica.offset_lag,
                "isFuture": replica.is_future,
            }
            for replica in found.replicas
        ],
        "error": None if found.error is None else found.error.name(),
        "logDir": found.path,
    }
