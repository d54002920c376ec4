"""The cluster as a whole: who is there, who leads, and what is not as it should be."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from felice.cli.faults import Fault
from felice.cli.options import admin_client, connection_options, json_option
from felice.cli.output import show_json, show_table

if TYPE_CHECKING:
    from felice.client.admin import AdminClient

_TIMEOUT_S = 30.0


def cluster_status(admin: AdminClient) -> dict[str, Any]:
    """Brokers with their share, and the partitions that lack a leader or a replica."""
    nodes = admin.describe_cluster().result()
    topics = admin.list_topics(timeout=_TIMEOUT_S).topics
    partitions = [
        (f"{name}-{number}", found)
        for name, topic in sorted(topics.items())
        for number, found in sorted(topic.partitions.items())
    ]
    leads, preferred = Counter[int](), Counter[int]()
    replicas, in_sync = Counter[int](), Counter[int]()
    for _, found in partitions:
        leads[found.leader] += 1
        preferred.update(found.replicas[:1])
        replicas.update(found.replicas)
        in_sync.update(found.isrs)
    controller = nodes.controller.id if nodes.controller else None
    brokers = [
        {
            "broker": node.id,
            "address": f"{node.host}:{node.port}",
            "rack": node.rack,
            "controller": node.id == controller,
            "leads": leads[node.id],
            "preferred_leader": preferred[node.id],
            "replicas": replicas[node.id],
            "in_sync": in_sync[node.id],
        }
        for node in nodes.nodes
    ]
    return {
        "cluster_id": nodes.cluster_id,
        "controller": controller,
        "topics": len(topics),
        "partitions": len(partitions),
        "brokers": brokers,
        "missing_brokers": sorted(replicas.keys() - {node.id for node in nodes.nodes}),
        "offline_partitions": [name for name, found in partitions if found.leader < 0],
        "under_replicated_partitions": [
            name for name, found in partitions if len(found.isrs) < len(found.replicas)
        ],
        "not_led_by_preferred": [
            name for name, found in partitions if found.replicas and found.leader != found.replicas[0]
        ],
    }


def is_healthy(status: dict[str, Any], brokers: int | None = None) -> bool:
    """A broker that nobody has replicas on is missed only by who counts."""
    if brokers is not None and len(status["brokers"]) < brokers:
        return False
    return not (status["offline_partitions"] or status["under_replicated_partitions"])


@click.command()
@connection_options
@click.option("--check", is_flag=True, help="Exit code 1 if a partition is offline or lacks a replica.")
@click.option("--brokers", type=click.IntRange(min=1), help="With --check: so many brokers must be there.")
@json_option
def cluster(
    bootstrap: str, command_config: Path | None, check: bool, brokers: int | None, as_json: bool
) -> None:
    """Show brokers, controller, leader balance, and partitions that are offline or lack replicas.

    \b
    felice cluster
    felice cluster --check && echo healthy
    felice cluster --check --brokers 3
    """
    if brokers is not None and not check:
        raise Fault("--brokers goes with --check")
    status = cluster_status(admin_client(bootstrap, command_config))
    if as_json:
        show_json(status)
    else:
        _print(status)
    if check and not is_healthy(status, brokers):
        click.get_current_context().exit(1)


def _print(status: dict[str, Any]) -> None:
    click.echo(
        f"Cluster {status['cluster_id']}: {len(status['brokers'])} brokers, "
        f"{status['topics']} topics, {status['partitions']} partitions"
    )
    show_table([{**row, "controller": "*" if row["controller"] else ""} for row in status["brokers"]])
    for title, names in (
        ("Brokers that have replicas and are not there", status["missing_brokers"]),
        ("Offline partitions", status["offline_partitions"]),
        ("Under-replicated partitions", status["under_replicated_partitions"]),
        ("Not led by the preferred replica", status["not_led_by_preferred"]),
    ):
        click.echo(f"{title}: {_some(names)}")


def _some(names: list[Any], most: int = 20) -> str:
    shown = ", ".join(str(name) for name in names[:most])
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{len(names)} ({shown}{more})" if names else "none"
