"""`kafka-consumer-groups`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import click

from felice.cli.faults import Fault
from felice.cli.groups import (
    GroupState,
    ResetChoices,
    delete_groups,
    describe_group,
    list_groups,
    parse_partitions,
    reset_choices,
    reset_offsets,
    selected_partitions,
)
from felice.cli.kafka_tools import bootstrap_server_option, kafka_tool, run_tool
from felice.cli.options import admin_client, command_config_option, wait_all
from felice.cli.output import padded

if TYPE_CHECKING:
    from felice.client.admin import AdminClient

_ACTIONS = ("list", "describe", "delete", "reset_offsets", "delete_offsets")
_OFFSET_COLUMNS = {
    "GROUP": "group",
    "TOPIC": "topic",
    "PARTITION": "partition",
    "CURRENT-OFFSET": "current_offset",
    "LOG-END-OFFSET": "log_end_offset",
    "LAG": "lag",
    "CONSUMER-ID": "consumer_id",
    "HOST": "host",
    "CLIENT-ID": "client_id",
}


class _Options(ResetChoices):
    """The options of the tool besides those of the connection."""

    do_list: bool
    do_describe: bool
    do_delete: bool
    do_reset_offsets: bool
    do_delete_offsets: bool
    groups: tuple[str, ...]
    all_groups: bool
    topics: tuple[str, ...]
    all_topics: bool
    members: bool
    state: str | None
    offsets: bool
    verbose: bool
    export: bool
    dry_run: bool
    execute: bool


@kafka_tool("kafka-consumer-groups")
@bootstrap_server_option
@command_config_option
@click.option("--list", "do_list", is_flag=True, help="List all groups.")
@click.option("--describe", "do_describe", is_flag=True, help="Show offsets and lag of groups.")
@click.option("--delete", "do_delete", is_flag=True, help="Delete groups that have no members.")
@click.option(
    "--reset-offsets",
    "do_reset_offsets",
    is_flag=True,
    help="Set the offsets of groups that have no members.",
)
@click.option(
    "--delete-offsets",
    "do_delete_offsets",
    is_flag=True,
    help="Delete offsets of topics that the group does not read.",
)
@click.option("--group", "groups", multiple=True, help="Group to act on; may be repeated.")
@click.option("--all-groups", is_flag=True, help="Act on every group.")
@click.option(
    "--topic", "topics", multiple=True, help="Topic, or topic:0,1 for single partitions; may be repeated."
)
@click.option("--all-topics", is_flag=True, help="Every topic that the group has offsets for.")
@click.option("--members", is_flag=True, help="With --describe: show members.")
@click.option(
    "--state",
    "state",
    is_flag=False,
    flag_value="",
    help="With --describe: show the state. With --list: show states, or only groups in the given states.",
)
@click.option("--offsets", is_flag=True, help="With --describe: show offsets (the default).")
@click.option("--verbose", is_flag=True, help="With --members: show assignments too.")
@click.option("--export", is_flag=True, help="With --reset-offsets: print the new offsets as CSV.")
@reset_choices
def kafka_consumer_groups(
    bootstrap_server: str, command_config: Path | None, **asked: Unpack[_Options]
) -> None:
    """List, describe or delete groups, and reset or delete their offsets.

    \b
    kafka-consumer-groups --bootstrap-server localhost:9092 --describe --group billing
    kafka-consumer-groups --bootstrap-server localhost:9092 --reset-offsets --group billing \\
        --topic flights --to-earliest --execute
    """
    flags: Mapping[str, object] = asked
    chosen = [action for action in _ACTIONS if flags[f"do_{action}"]]
    if len(chosen) != 1:
        raise click.UsageError(
            "Command must include exactly one action: --list, --describe, --delete, --reset-offsets, --delete-offsets"
        )
    if asked["groups"] and asked["all_groups"]:
        raise click.UsageError("Option --group cannot be used with option --all-groups")
    if asked["do_delete_offsets"] and not (asked["groups"] and asked["topics"]):
        raise click.UsageError("Option --delete-offsets takes the following options: --group, --topic")
    admin = admin_client(bootstrap_server, command_config)
    if chosen[0] == "list":
        _list(admin, asked)
        return
    names = _group_names(admin, asked)
    actions = {
        "describe": _describe,
        "delete": _delete,
        "reset_offsets": _reset_offsets,
        "delete_offsets": _delete_offsets,
    }
    actions[chosen[0]](admin, names, asked)


def _group_names(admin: AdminClient, asked: _Options) -> list[str]:
    if asked["all_groups"]:
        return [row["group"] for row in list_groups(admin)]
    if not asked["groups"]:
        raise click.UsageError("This action takes one of: --group, --all-groups")
    return list(asked["groups"])


def _list(admin: AdminClient, asked: _Options) -> None:
    rows = list_groups(admin)
    if asked["state"] is None:
        for row in rows:
            click.echo(row["group"])
        return
    wanted = {state.strip().lower() for state in asked["state"].split(",") if state.strip()}
    shown = [(row["group"], row["state"]) for row in rows if not wanted or row["state"].lower() in wanted]
    _print(("GROUP", "STATE"), shown, (25, 20))


def _describe(admin: AdminClient, names: list[str], asked: _Options) -> None:
    for name in names:
        found = describe_group(admin, name)
        if found["state"] == "Dead":
            raise Fault(
                f"Error: Executing consumer group command failed due to Consumer group '{name}' does not exist."
            )
        if asked["members"]:
            _print_members(found, verbose=asked["verbose"])
        elif asked["state"] is not None:
            _print_state(found)
        else:
            _print_offsets(found)


def _print(columns: tuple[str, ...], rows: Sequence[tuple[object, ...]], widths: tuple[int, ...]) -> None:
    shown = [tuple("-" if cell is None else cell for cell in row) for row in rows]
    fitted = [
        max(width, *(len(str(row[number])) for row in shown)) if shown else width
        for number, width in enumerate(widths)
    ]
    click.echo()
    for line in padded(columns, shown, fitted):
        click.echo(line)


def _print_offsets(found: GroupState) -> None:
    if not found["members"]:
        click.echo(f"\nConsumer group '{found['group']}' has no active members.", err=True)
    rows = []
    for row in found["offsets"]:
        host = f"/{row['host'].removeprefix('/')}" if row["host"] else None
        cells: Mapping[str, object] = {**row, "host": host}
        rows.append(tuple(cells[key] for key in _OFFSET_COLUMNS.values()))
    _print(tuple(_OFFSET_COLUMNS), rows, (15, 15, 10, 15, 15, 15, 15, 15, 15))


def _print_members(found: GroupState, *, verbose: bool) -> None:
    columns: tuple[str, ...] = ("GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS")
    rows: list[tuple[object, ...]] = []
    for member in found["members"]:
        row: tuple[object, ...] = (
            found["group"],
            member["member_id"],
            member["host"],
            member["client_id"],
            len(member["partitions"]),
        )
        rows.append((*row, ", ".join(member["partitions"])) if verbose else row)
    if verbose:
        columns = (*columns, "ASSIGNMENT")
    _print(columns, rows, (15, 15, 15, 15, 15, 10)[: len(columns)])


def _print_state(found: GroupState) -> None:
    row = (
        found["group"],
        found["coordinator"],
        found["assignment_strategy"],
        found["state"],
        len(found["members"]),
    )
    _print(
        ("GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS"), [row], (25, 25, 25, 20, 10)
    )


def _delete(admin: AdminClient, names: list[str], asked: _Options) -> None:
    delete_groups(admin, names)
    shown = ", ".join(f"'{name}'" for name in names)
    click.echo(f"Deletion of requested consumer groups ({shown}) was successful.")


def _reset_offsets(admin: AdminClient, names: list[str], asked: _Options) -> None:
    if asked["execute"] and asked["dry_run"]:
        raise click.UsageError("Only one of --execute and --dry-run can be given")
    rows = []
    for name in names:
        partitions = selected_partitions(admin, name, asked["topics"], asked["all_topics"])
        targets = reset_offsets(admin, name, partitions, asked, execute=asked["execute"])
        rows += [(name, topic, partition, offset) for (topic, partition), offset in targets.items()]
    if asked["export"]:
        for _, topic, partition, offset in rows:
            click.echo(f'"{topic}",{partition},{offset}')
        return
    _print(("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"), rows, (30, 30, 10, 15))


def _delete_offsets(admin: AdminClient, names: list[str], asked: _Options) -> None:
    from felice.client.admin import ConsumerGroupTopicPartitions, TopicPartition

    partitions = parse_partitions(admin, asked["topics"])
    for name in names:
        asked_for = ConsumerGroupTopicPartitions(name, [TopicPartition(*found) for found in partitions])
        result = wait_all(admin.delete_consumer_group_offsets([asked_for]))[name]
        rows = [
            (found.topic, found.partition, f"Error: {found.error.str()}" if found.error else "Successful")
            for found in result.topic_partitions or []
        ]
        click.echo(f"Request succeeded for deleting offsets from group {name}.")
        _print(("TOPIC", "PARTITION", "STATUS"), rows, (30, 15, 15))


def main() -> None:
    """The entry point of `kafka-consumer-groups`."""
    run_tool(kafka_consumer_groups)
