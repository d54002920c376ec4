"""The state of the whole cluster: brokers, leaders, and everything that is wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import click
from click.core import ParameterSource

from felice.cli.command_group import CommandGroup
from felice.cli.faults import Fault
from felice.cli.options import admin_client, connection_options, json_option
from felice.cli.output import partition_lines, show, show_json, show_table

if TYPE_CHECKING:
    from felice.client.admin import AdminClient

_TIMEOUT_S = 30.0
# The time that each single broker has to answer.
_REACH_TIMEOUT_MS = 5000
_BRIEF = {"request.timeout.ms": _REACH_TIMEOUT_MS, "socket.connection.setup.timeout.ms": _REACH_TIMEOUT_MS}


class BrokerRow(TypedDict):
    """A registered broker, and how many partitions it leads and replicates."""

    broker: int
    address: str
    rack: str | None
    controller: bool
    leads: int
    preferred_leader: int
    replicas: int
    in_sync: int


class UnreachedBroker(TypedDict):
    """A registered broker that does not answer."""

    broker: int
    reason: str


class StrayLog(TypedDict):
    """A log that a broker has set aside."""

    broker: int
    path: str


class ClusterStatus(TypedDict):
    """The state of a cluster. Partitions are named `topic-number`."""

    cluster_id: str | None
    controller: int | None
    topics: int
    partitions: int
    brokers: list[BrokerRow]
    unreached_brokers: list[UnreachedBroker]
    missing_brokers: list[int]
    offline_partitions: list[str]
    under_replicated_partitions: list[str]
    not_led_by_preferred: list[str]
    stray_logs: list[StrayLog]


class OfferedVersions(TypedDict):
    """A range of versions of one API, and the brokers that offer it."""

    key: int
    api: str | None
    min: int
    max: int
    usable: int | None
    brokers: list[int]


def cluster_status(admin: AdminClient, brief: AdminClient) -> ClusterStatus:
    """Brokers with their numbers of leaders and replicas, and partitions that lack a leader or a replica.

    `brief` sends a request to each single broker, so it must have a short timeout.
    """
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
    unreached = unreached_brokers(brief)
    silent = {row["broker"] for row in unreached}
    strays, without_logs = stray_logs(brief, [node.id for node in nodes.nodes if node.id not in silent])
    unreached += without_logs
    controller = nodes.controller.id if nodes.controller else None
    brokers: list[BrokerRow] = [
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
        "unreached_brokers": sorted(unreached, key=lambda row: row["broker"]),
        "missing_brokers": sorted(replicas.keys() - {node.id for node in nodes.nodes}),
        "offline_partitions": [name for name, found in partitions if found.leader < 0],
        "under_replicated_partitions": [
            name for name, found in partitions if len(found.isrs) < len(found.replicas)
        ],
        "not_led_by_preferred": [
            name for name, found in partitions if found.replicas and found.leader != found.replicas[0]
        ],
        "stray_logs": strays,
    }


def stray_logs(admin: AdminClient, brokers: Sequence[int]) -> tuple[list[StrayLog], list[UnreachedBroker]]:
    """Logs with records that brokers have set aside, and the brokers that did not answer this question in time.

    All brokers are asked at once. A broker that refuses the answer is left out.
    """
    from felice.client import KafkaException

    found: list[StrayLog] = []
    unreached: list[UnreachedBroker] = []
    for broker, future in admin.describe_log_dirs(brokers, [], request_timeout=_TIMEOUT_S).items():
        try:
            directories = future.result()
        except KafkaException as error:
            if error.code < 0:  # not a broker's own answer
                unreached.append({"broker": broker, "reason": error.error.str()})
            continue
        found += [
            StrayLog(broker=broker, path=f"{directory.path}/{name}")
            for directory in directories
            for name in directory.stray_logs
        ]
    return found, unreached


def unreached_brokers(admin: AdminClient) -> list[UnreachedBroker]:
    """The registered brokers that do not answer, each with the reason.

    A broker that died stays registered until its session ends. Until then only a request to it reveals that.
    """
    from felice.client.admin import KafkaException

    return [
        {"broker": node.id, "reason": answer.error.str()}
        for node, answer in admin.list_api_versions().result().items()
        if isinstance(answer, KafkaException)
    ]


def faults_of(status: ClusterStatus, brokers: int | None = None) -> list[str]:
    """Everything that is wrong, one text each.

    A missing broker without replicas can only be noticed by comparing with `brokers`, the expected number.
    """
    faults = []
    if brokers is not None and (there := len(status["brokers"])) < brokers:
        faults.append(f"only {there} of {brokers} brokers are registered")
    faults += [
        f"broker {row['broker']} does not answer: {row['reason']}" for row in status["unreached_brokers"]
    ]
    if offline := len(status["offline_partitions"]):
        faults.append(f"partitions without a leader: {offline}")
    if behind := len(status["under_replicated_partitions"]):
        faults.append(f"partitions that lack replicas: {behind}")
    if strays := status["stray_logs"]:
        first = f"broker {strays[0]['broker']}, {strays[0]['path']}"
        faults.append(f"logs with records that were set aside: {len(strays)} ({first})")
    return faults


def offered_versions(admin: AdminClient) -> tuple[list[OfferedVersions], dict[int, str]]:
    """One row for each API and offered range of versions, with the brokers that offer it.

    Also returns, for each broker that did not answer, the error."""
    from felice.client.admin import ApiVersionRange, KafkaException

    brokers: dict[ApiVersionRange, list[int]] = {}
    failed = {}
    for node, offered in admin.list_api_versions().result().items():
        if isinstance(offered, KafkaException):
            failed[node.id] = offered.error.str()
            continue
        for row in offered:
            brokers.setdefault(row, []).append(node.id)
    rows: list[OfferedVersions] = [
        {
            "key": row.key,
            "api": row.name,
            "min": row.min_version,
            "max": row.max_version,
            "usable": row.usable,
            "brokers": found,
        }
        for row, found in sorted(brokers.items(), key=lambda item: (item[0].key, item[1]))
    ]
    return rows, failed


@click.group(cls=CommandGroup, invoke_without_command=True)
@connection_options
@click.option(
    "--check",
    is_flag=True,
    help="Exit code 1 if a broker does not answer, a partition is offline or lacks a replica, "
    "or a log was set aside.",
)
@click.option(
    "--brokers", type=click.IntRange(min=1), help="With --check: exit code 1 if fewer brokers are registered."
)
@json_option
@click.pass_context
def cluster(
    context: click.Context,
    bootstrap: str,
    command_config: Path | None,
    check: bool,
    brokers: int | None,
    as_json: bool,
) -> None:
    """Show brokers, controller, leader balance, and partitions that are offline or lack replicas.

    \b
    felice cluster
    felice cluster --check && echo healthy
    felice cluster --check --brokers 3
    felice cluster api-versions
    """
    if context.invoked_subcommand is not None:
        if any(context.get_parameter_source(name) is ParameterSource.COMMANDLINE for name in context.params):
            raise Fault(f"options of {context.invoked_subcommand} must follow its name")
        return
    if brokers is not None and not check:
        raise Fault("--brokers needs --check")
    status = cluster_status(
        admin_client(bootstrap, command_config), admin_client(bootstrap, command_config, _BRIEF)
    )
    if as_json:
        show_json(status)
    else:
        _print(status)
    if check and (faults := faults_of(status, brokers)):
        raise Fault("; ".join(faults))


@cluster.command("api-versions")
@connection_options
@json_option
def api_versions_command(bootstrap: str, command_config: Path | None, as_json: bool) -> None:
    """Show which versions of which APIs the brokers offer, and which of them this client would use.

    \b
    felice cluster api-versions

    During a rolling upgrade an API has a row for each range that brokers offer.
    """
    rows, failed = offered_versions(admin_client(bootstrap, command_config))
    show(rows, as_json)
    if failed:
        raise Fault("; ".join(f"broker {broker}: {why}" for broker, why in failed.items()))


def _print(status: ClusterStatus) -> None:
    click.echo(
        f"Cluster {status['cluster_id']}: {len(status['brokers'])} brokers, "
        f"{status['topics']} topics, {status['partitions']} partitions"
    )
    show_table([{**row, "controller": "*" if row["controller"] else ""} for row in status["brokers"]])
    click.echo(f"Brokers that have replicas and are not there: {_joined(status['missing_brokers'])}")
    silent = [f"{row['broker']} ({row['reason']})" for row in status["unreached_brokers"]]
    click.echo(f"Brokers that do not answer: {', '.join(silent) or 'none'}")
    for title, names in (
        ("Offline partitions", status["offline_partitions"]),
        ("Under-replicated partitions", status["under_replicated_partitions"]),
        ("Not led by the preferred replica", status["not_led_by_preferred"]),
    ):
        click.echo(f"{title}: {len(names) or 'none'}")
        for line in partition_lines(names):
            click.echo(line)
    if status["stray_logs"]:
        click.echo(f"Logs with records that were set aside: {len(status['stray_logs'])}")
        for stray in status["stray_logs"]:
            click.echo(f"  broker {stray['broker']}: {stray['path']}")


def _joined(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers)) or "none"
