"""Topics: list, create, describe, alter (more partitions), delete."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import click

from felice.cli.command_group import CommandGroup
from felice.cli.faults import Fault
from felice.cli.options import admin_client, connection_options, json_option, key_values, wait_all
from felice.cli.output import show, show_json
from felice.protocol.patterns import Pattern, PatternError, own_pattern

if TYPE_CHECKING:
    from felice.client.admin import AdminClient, TopicDescription

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
# Without this timeout, `AdminClient.list_topics` would try for 60 s.
_TIMEOUT_S = 30.0

_MIN_INSYNC = "min.insync.replicas"


def list_topics(admin: AdminClient, *, exclude_internal: bool = False) -> list[str]:
    """The names of all topics, sorted."""
    names = sorted(admin.list_topics(timeout=_TIMEOUT_S).topics)
    return [name for name in names if not (exclude_internal and name in INTERNAL_TOPICS)]


def matching_topics(admin: AdminClient, pattern: str | None, *, exclude_internal: bool = False) -> list[str]:
    """Topics whose whole name matches the pattern: a regular expression, a name, or names with commas between them."""
    names = list_topics(admin, exclude_internal=exclude_internal)
    if pattern is None:
        return names
    wanted = topic_pattern(pattern)
    return [name for name in names if wanted.fullmatch(name)]


def topic_pattern(text: str) -> Pattern:
    """A regular expression for names of topics; a comma separates alternatives. Raises `Fault` if it is not one."""
    try:
        return own_pattern(text.replace(",", "|"))
    except PatternError as error:
        raise Fault(f"{text!r} is not a regular expression: {error}") from None


def create_topic(
    admin: AdminClient,
    name: str,
    *,
    partitions: int | None = None,
    replication_factor: int | None = None,
    config: Mapping[str, str] | None = None,
    replica_assignment: Sequence[Sequence[int]] | None = None,
) -> None:
    """Creates a topic. Warns if `min.insync.replicas` is higher than the number of replicas."""
    from felice.client.admin import NewTopic

    if replica_assignment is not None:
        replicas = [list(brokers) for brokers in replica_assignment]
        topic = NewTopic(name, len(replicas), replica_assignment=replicas, config=dict(config or {}))
    else:
        # -1 means the broker's default.
        topic = NewTopic(
            name,
            -1 if partitions is None else partitions,
            -1 if replication_factor is None else replication_factor,
            config=dict(config or {}),
        )
    wait_all(admin.create_topics([topic]))
    warn_of_min_insync(admin, name, config or {})


def warn_of_min_insync(admin: AdminClient, name: str, config: Mapping[str, str]) -> None:
    """Warns if `min.insync.replicas` is higher than the number of replicas.

    Brokers accept any value, but a value above the number of replicas counts as that number."""
    from felice.client import KafkaException

    if _MIN_INSYNC not in config:
        return
    try:
        [row] = describe_topics(admin, [name])
    except KafkaException:
        return  # this broker does not know the topic yet; the broker that does has logged the warning
    replicas = min(len(partition["replicas"]) for partition in row["partitions"])
    if (wanted := int(config[_MIN_INSYNC])) > replicas:
        click.echo(
            f"warning: {_MIN_INSYNC}={wanted} counts as {replicas}, for {name} has no more replicas; "
            f"set it to {replicas} or less, or give the topic more replicas with felice reassign",
            err=True,
        )


def delete_topics(admin: AdminClient, names: Sequence[str]) -> None:
    """Deletes topics; raises the first failure."""
    if names:
        wait_all(admin.delete_topics(list(names)))


def add_partitions(admin: AdminClient, name: str, total: int) -> None:
    """Raises the number of partitions of a topic to `total`."""
    from felice.client.admin import NewPartitions

    wait_all(admin.create_partitions([NewPartitions(name, total)]))


def overrides_of(admin: AdminClient, names: Sequence[str]) -> dict[str, dict[str, str]]:
    """The options that are set on each topic (without defaults)."""
    from felice.client.admin import ConfigResource, ConfigSource, ResourceType

    if not names:
        return {}
    results = wait_all(admin.describe_configs([ConfigResource(ResourceType.TOPIC, name) for name in names]))
    return {
        resource.name: {
            entry.name: str(entry.value)
            for entry in entries.values()
            if entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        }
        for resource, entries in results.items()
    }


def min_insync_replicas(admin: AdminClient, names: Sequence[str]) -> dict[str, int]:
    """`min.insync.replicas` of each topic, also where it is the broker's default."""
    from felice.client.admin import ConfigResource, ResourceType

    if not names:
        return {}
    results = wait_all(admin.describe_configs([ConfigResource(ResourceType.TOPIC, name) for name in names]))
    return {resource.name: int(str(entries[_MIN_INSYNC].value)) for resource, entries in results.items()}


class PartitionRow(TypedDict):
    """A partition with the ids of its leader (None without one), its replicas and its in-sync replicas."""

    partition: int
    leader: int | None
    replicas: list[int]
    isr: list[int]


class TopicRow(TypedDict):
    """A topic. `configs` has only the options that are set for this topic."""

    topic: str
    topic_id: str
    partition_count: int
    replication_factor: int
    configs: dict[str, str]
    partitions: list[PartitionRow]


def describe_topics(admin: AdminClient, names: Sequence[str]) -> list[TopicRow]:
    """One row for each topic, with its partitions under `partitions`."""
    from felice.client.admin import TopicCollection

    if not names:
        return []
    configs = overrides_of(admin, names)
    described = wait_all(admin.describe_topics(TopicCollection(list(names))))
    return [_topic_row(described[name], configs.get(name, {})) for name in names]


def _topic_row(topic: TopicDescription, config: Mapping[str, str]) -> TopicRow:
    partitions: list[PartitionRow] = [
        {
            "partition": partition.id,
            "leader": partition.leader.id if partition.leader else None,
            "replicas": [node.id for node in partition.replicas],
            "isr": [node.id for node in partition.isr],
        }
        for partition in topic.partitions
    ]
    return {
        "topic": topic.name,
        "topic_id": str(topic.topic_id),
        "partition_count": len(partitions),
        "replication_factor": len(topic.partitions[0].replicas) if partitions else 0,
        "configs": dict(config),
        "partitions": partitions,
    }


def existing(admin: AdminClient, names: Iterable[str]) -> list[str]:
    """Returns the names; raises `Fault` for the first that is not a topic."""
    known = set(list_topics(admin))
    wanted = list(names)
    for name in wanted:
        if name not in known:
            raise Fault(f"Topic '{name}' does not exist as expected; see: felice topics list")
    return wanted


def replica_lists(text: str | None) -> list[list[int]] | None:
    """Reads `0:1,1:2` as the replicas of partition 0 (brokers 0 and 1) and partition 1 (1 and 2)."""
    if text is None:
        return None
    try:
        return [[int(broker) for broker in partition.split(":")] for partition in text.split(",")]
    except ValueError:
        raise Fault(f"expected replicas like 0:1,1:2, got {text!r}") from None


@click.group(cls=CommandGroup)
def topics() -> None:
    """List, create, describe, alter and delete topics.

    \b
    felice topics create flights --partitions 3 --config retention.ms=86400000
    felice topics describe flights
    """


@topics.command("list")
@connection_options
@click.option(
    "--exclude-internal", is_flag=True, help="Leave out __consumer_offsets and other internal topics."
)
@json_option
def list_command(bootstrap: str, command_config: Path | None, exclude_internal: bool, as_json: bool) -> None:
    """Print the names of all topics, a line each.

    \b
    felice topics list
    """
    names = list_topics(admin_client(bootstrap, command_config), exclude_internal=exclude_internal)
    if as_json:
        show_json(names)
    else:
        click.echo("".join(f"{name}\n" for name in names), nl=False)


@topics.command("create")
@click.argument("name")
@connection_options
@click.option(
    "--partitions",
    type=click.IntRange(min=1),
    help="Number of partitions; default: the broker's num.partitions.",
)
@click.option(
    "--replication-factor",
    type=click.IntRange(min=1),
    help="Replicas of each partition; default: the broker's default.replication.factor.",
)
@click.option(
    "--replica-assignment",
    metavar="1:2,2:3",
    help="Brokers of partition 0, then of partition 1, instead of the two numbers; the preferred leader comes first.",
)
@click.option(
    "--config", "configs", multiple=True, metavar="KEY=VALUE", help="A topic option; may be repeated."
)
@click.option("--if-not-exists", is_flag=True, help="Succeed if the topic exists already.")
def create_command(
    name: str,
    bootstrap: str,
    command_config: Path | None,
    partitions: int | None,
    replication_factor: int | None,
    replica_assignment: str | None,
    configs: tuple[str, ...],
    if_not_exists: bool,
) -> None:
    """Create a topic.

    \b
    felice topics create flights --partitions 3
    felice topics create orders --replication-factor 3 --config min.insync.replicas=2
    """
    assignment = replica_lists(replica_assignment)
    if assignment is not None and (partitions, replication_factor) != (None, None):
        raise Fault(
            "--replica-assignment says how many partitions and replicas there are; leave the others out"
        )
    admin = admin_client(bootstrap, command_config)
    if if_not_exists and name in list_topics(admin):
        return
    config = key_values(configs)
    create_topic(
        admin,
        name,
        partitions=partitions,
        replication_factor=replication_factor,
        config=config,
        replica_assignment=assignment,
    )
    click.echo(f"Created topic {name}.")


@topics.command("describe")
@click.argument("names", nargs=-1)
@connection_options
@json_option
def describe_command(
    names: tuple[str, ...], bootstrap: str, command_config: Path | None, as_json: bool
) -> None:
    """Show topics (all, if none is named), their options and their partitions.

    \b
    felice topics describe flights
    """
    admin = admin_client(bootstrap, command_config)
    rows = describe_topics(admin, existing(admin, names) if names else list_topics(admin))
    if as_json:
        show_json(rows)
        return
    for row in rows:
        config = ", ".join(f"{key}={value}" for key, value in row["configs"].items()) or "defaults"
        click.echo(f"{row['topic']}  id {row['topic_id']}  {config}")
        show(row["partitions"], False)


@topics.command("alter")
@click.argument("name")
@connection_options
@click.option("--partitions", type=int, required=True, help="New total number of partitions.")
def alter_command(name: str, bootstrap: str, command_config: Path | None, partitions: int) -> None:
    """Give a topic more partitions.

    \b
    felice topics alter flights --partitions 6
    """
    add_partitions(admin_client(bootstrap, command_config), name, partitions)
    click.echo(f"Topic {name} has {partitions} partitions.")


@topics.command("delete")
@click.argument("names", nargs=-1, required=True)
@connection_options
@click.option("--if-exists", is_flag=True, help="Succeed if a topic does not exist.")
@click.option(
    "--force",
    is_flag=True,
    help="Delete internal topics too. With __consumer_offsets all groups lose their offsets.",
)
def delete_command(
    names: tuple[str, ...], bootstrap: str, command_config: Path | None, if_exists: bool, force: bool
) -> None:
    """Delete topics and all their records.

    \b
    felice topics delete flights
    """
    if not force and (internal := sorted(INTERNAL_TOPICS.intersection(names))):
        raise Fault(f"{internal[0]} is an internal topic; add --force to delete it")
    admin = admin_client(bootstrap, command_config)
    known = set(list_topics(admin))
    wanted = [name for name in names if name in known] if if_exists else existing(admin, names)
    delete_topics(admin, wanted)
    for name in wanted:
        click.echo(f"Deleted topic {name}.")
