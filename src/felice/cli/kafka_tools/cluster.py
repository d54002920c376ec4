"""`kafka-cluster`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import click

from felice.cli.kafka_tools import kafka_tool_group
from felice.cli.options import admin_client

_ROW = "{:<10} {:<9} {:<10} {:<10} {:<10} {:<15}"


@kafka_tool_group("kafka-cluster")
def kafka_cluster() -> None:
    """Show the cluster's id, or where its brokers listen.

    \b
    kafka-cluster cluster-id --bootstrap-server localhost:9092
    """


def _asking(command: Callable[..., None]) -> Callable[..., None]:
    named = click.option("--bootstrap-server", "-b", required=True, help="Brokers to connect to first.")(
        command
    )
    return click.option(
        "--config",
        "-c",
        "command_config",
        type=click.Path(exists=True, path_type=Path),
        help="A file of client properties.",
    )(named)


@kafka_cluster.command("cluster-id")
@_asking
def cluster_id(bootstrap_server: str, command_config: Path | None) -> None:
    """Print the cluster's id.

    \b
    kafka-cluster cluster-id --bootstrap-server localhost:9092
    """
    click.echo(f"Cluster ID: {admin_client(bootstrap_server, command_config).cluster_id()}")


@kafka_cluster.command("list-endpoints")
@_asking
def list_endpoints(bootstrap_server: str, command_config: Path | None) -> None:
    """Print where brokers listen.

    \b
    kafka-cluster list-endpoints --bootstrap-server localhost:9092
    """
    _show(("ID", "HOST", "PORT", "RACK", "STATE", "ENDPOINT_TYPE"))
    nodes = admin_client(bootstrap_server, command_config).describe_cluster().result().nodes
    for node in sorted(nodes, key=lambda node: node.id):
        _show((node.id, node.host, node.port, node.rack or "null", "unfenced", "broker"))


def _show(row: Sequence[object]) -> None:
    click.echo(_ROW.format(*map(str, row)))
