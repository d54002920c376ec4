"""`kafka-topics`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from felice.cli.faults import Fault
from felice.cli.kafka_tools import bootstrap_server_option, chosen_action, kafka_tool
from felice.cli.options import admin_client, command_config_option, key_values
from felice.cli.topics import (
    PartitionRow,
    TopicRow,
    add_partitions,
    create_topic,
    delete_topics,
    describe_topics,
    matching_topics,
    min_insync_replicas,
    replica_lists,
)

if TYPE_CHECKING:
    from felice.client.admin import AdminClient

# The options of --describe that choose what is shown. They exclude each other.
_REPORTS = (
    "at_min_isr_partitions",
    "topics_with_overrides",
    "unavailable_partitions",
    "under_min_isr_partitions",
    "under_replicated_partitions",
)
# Each action with the options that it takes.
_ACTIONS: Mapping[str, frozenset[str]] = {
    "list": frozenset(("topic", "exclude_internal")),
    "create": frozenset(
        ("topic", "partitions", "replication_factor", "replica_assignment", "configs", "if_not_exists")
    ),
    "describe": frozenset(("topic", "topic_id", "if_exists", "exclude_internal", *_REPORTS)),
    "alter": frozenset(("topic", "partitions", "if_exists")),
    "delete": frozenset(("topic", "if_exists")),
}


class _Options(TypedDict):
    """The options of the tool besides those of the connection."""

    do_list: bool
    do_create: bool
    do_describe: bool
    do_alter: bool
    do_delete: bool
    topic: str | None
    topic_id: str | None
    partitions: int | None
    replication_factor: int | None
    replica_assignment: str | None
    configs: tuple[str, ...]
    if_not_exists: bool
    if_exists: bool
    exclude_internal: bool
    topics_with_overrides: bool
    under_replicated_partitions: bool
    unavailable_partitions: bool
    under_min_isr_partitions: bool
    at_min_isr_partitions: bool


@kafka_tool("kafka-topics")
@bootstrap_server_option
@command_config_option
@click.option("--list", "do_list", is_flag=True, help="List topics.")
@click.option("--create", "do_create", is_flag=True, help="Create a topic.")
@click.option("--describe", "do_describe", is_flag=True, help="Show partitions, leaders and replicas.")
@click.option("--alter", "do_alter", is_flag=True, help="Add partitions.")
@click.option("--delete", "do_delete", is_flag=True, help="Delete topics.")
@click.option(
    "--topic", help="Topic name; for --list, --describe, --alter and --delete also a regular expression."
)
@click.option("--topic-id", help="With --describe: the topic with this id.")
@click.option(
    "--partitions", type=click.IntRange(min=1), help="Number of partitions, for --create and --alter."
)
@click.option("--replication-factor", type=click.IntRange(min=1), help="Replicas of each partition.")
@click.option(
    "--replica-assignment",
    metavar="0:1,1:2",
    help="Brokers of each partition instead of a number; the first is the preferred leader.",
)
@click.option(
    "--config", "configs", multiple=True, metavar="KEY=VALUE", help="A topic option; may be repeated."
)
@click.option("--if-not-exists", is_flag=True, help="With --create: succeed if the topic exists.")
@click.option(
    "--if-exists", is_flag=True, help="With --describe, --alter, --delete: succeed if no topic matches."
)
@click.option(
    "--exclude-internal", is_flag=True, help="Leave out __consumer_offsets and other internal topics."
)
@click.option(
    "--topics-with-overrides", is_flag=True, help="With --describe: only topics with options of their own."
)
@click.option(
    "--under-replicated-partitions",
    is_flag=True,
    help="With --describe: only partitions whose replicas are not all in sync.",
)
@click.option(
    "--unavailable-partitions", is_flag=True, help="With --describe: only partitions without a leader."
)
@click.option(
    "--under-min-isr-partitions",
    is_flag=True,
    help="With --describe: only partitions with fewer replicas in sync than min.insync.replicas.",
)
@click.option(
    "--at-min-isr-partitions",
    is_flag=True,
    help="With --describe: only partitions with as many replicas in sync as min.insync.replicas.",
)
def kafka_topics(bootstrap_server: str, command_config: Path | None, **asked: Unpack[_Options]) -> None:
    """List, create, describe, alter or delete topics.

    \b
    kafka-topics --bootstrap-server localhost:9092 --create --topic flights --partitions 3
    kafka-topics --bootstrap-server localhost:9092 --describe --topic flights
    """
    flags: Mapping[str, object] = asked
    action = chosen_action(_ACTIONS)
    reports = [f"--{name.replace('_', '-')}" for name in _REPORTS if flags[name]]
    if len(reports) > 1:
        raise Fault(f"Options {' and '.join(reports)} cannot be specified together.")
    if asked["topic"] is not None and asked["topic_id"] is not None:
        raise Fault("Options --topic and --topic-id cannot be specified together.")
    if action == "create" and asked["replica_assignment"] is not None:
        for name in ("partitions", "replication_factor"):
            if flags[name] is not None:
                raise Fault(f"Option --{name.replace('_', '-')} cannot be used with --replica-assignment")
    if action in ("create", "alter", "delete") and not asked["topic"]:
        raise Fault('Missing required argument "[topic]"')
    actions = {"list": _list, "create": _create, "describe": _describe, "alter": _alter, "delete": _delete}
    actions[action](admin_client(bootstrap_server, command_config), asked)


def _list(admin: AdminClient, asked: _Options) -> None:
    for name in matching_topics(admin, asked["topic"], exclude_internal=asked["exclude_internal"]):
        click.echo(name)


def _create(admin: AdminClient, asked: _Options) -> None:
    name = asked["topic"]
    assert name, "checked before the action"
    if asked["if_not_exists"] and name in matching_topics(admin, None):
        return
    create_topic(
        admin,
        name,
        partitions=asked["partitions"],
        replication_factor=asked["replication_factor"],
        config=key_values(asked["configs"]),
        replica_assignment=replica_lists(asked["replica_assignment"]),
    )
    click.echo(f"Created topic {name}.")


def _matching_or_fault(admin: AdminClient, asked: _Options) -> list[str]:
    names = matching_topics(admin, asked["topic"], exclude_internal=asked["exclude_internal"])
    if not names and asked["topic"] and not asked["if_exists"]:
        raise Fault(
            f"Error while executing topic command : Topic '{asked['topic']}' does not exist as expected"
        )
    return names


def _describe(admin: AdminClient, asked: _Options) -> None:
    rows = describe_topics(admin, _matching_or_fault(admin, asked))
    if asked["topic_id"] is not None:
        rows = [row for row in rows if row["topic_id"] == asked["topic_id"]]
        if not rows and not asked["if_exists"]:
            raise Fault(
                f"Error while executing topic command : TopicId '{asked['topic_id']}' does not exist as expected"
            )
    flags: Mapping[str, object] = asked
    only_partitions = any(flags[name] for name in _REPORTS if name != "topics_with_overrides")
    needed = asked["under_min_isr_partitions"] or asked["at_min_isr_partitions"]
    least = min_insync_replicas(admin, [row["topic"] for row in rows]) if needed else {}
    for row in rows:
        if asked["topics_with_overrides"]:
            if row["configs"]:
                click.echo(_headline(row))
            continue
        partitions = [
            found for found in row["partitions"] if _is_asked_for(found, asked, least.get(row["topic"], 0))
        ]
        if not only_partitions:
            click.echo(_headline(row))
        for found in partitions:
            click.echo(
                f"\tTopic: {row['topic']}\tPartition: {found['partition']}\t"
                f"Leader: {found['leader'] if found['leader'] is not None else 'none'}\t"
                f"Replicas: {_joined(found['replicas'])}\tIsr: {_joined(found['isr'])}\tElr: N/A\tLastKnownElr: N/A"
            )


def _headline(row: TopicRow) -> str:
    configs = ",".join(f"{key}={value}" for key, value in row["configs"].items())
    return (
        f"Topic: {row['topic']}\tTopicId: {row['topic_id']}\tPartitionCount: {row['partition_count']}\t"
        f"ReplicationFactor: {row['replication_factor']}\tConfigs: {configs}"
    )


def _is_asked_for(found: PartitionRow, asked: _Options, min_insync: int) -> bool:
    if asked["under_min_isr_partitions"]:
        return len(found["isr"]) < min_insync
    if asked["at_min_isr_partitions"]:
        return len(found["isr"]) == min_insync
    if asked["under_replicated_partitions"]:
        return len(found["isr"]) < len(found["replicas"])
    if asked["unavailable_partitions"]:
        return found["leader"] is None
    return True


def _joined(numbers: list[int]) -> str:
    return ",".join(str(number) for number in numbers)


def _alter(admin: AdminClient, asked: _Options) -> None:
    if asked["partitions"] is None:
        raise Fault("--alter needs --partitions; for options use kafka-configs")
    for name in _matching_or_fault(admin, asked):
        add_partitions(admin, name, asked["partitions"])


def _delete(admin: AdminClient, asked: _Options) -> None:
    delete_topics(admin, _matching_or_fault(admin, asked))
