"""`kafka-consumer-groups`."""

from __future__ import annotations

import csv
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import click

from felice.cli.faults import Fault
from felice.cli.groups import (
    GroupState,
    ResetChoices,
    describe_group,
    list_groups,
    parse_partitions,
    reset_choices,
    reset_offsets,
    selected_partitions,
)
from felice.cli.kafka_tools import bootstrap_server_option, chosen_action, kafka_tool
from felice.cli.options import admin_client, command_config_option, wait_all
from felice.cli.output import padded
from felice.cli.rounds import tell_left_out

if TYPE_CHECKING:
    from felice.client.admin import AdminClient

_RESET_WAYS = frozenset(ResetChoices.__annotations__)
# Each action with the options that it takes.
_ACTIONS: Mapping[str, frozenset[str]] = {
    "list": frozenset(("state", "group_type", "timeout")),
    "describe": frozenset(("groups", "all_groups", "members", "state", "offsets", "verbose", "timeout")),
    "delete": frozenset(("groups", "all_groups", "timeout")),
    "reset_offsets": _RESET_WAYS
    | {"groups", "all_groups", "topics", "all_topics", "export", "dry_run", "execute", "timeout"},
    "delete_offsets": frozenset(("groups", "topics", "timeout")),
    "validate_regex": frozenset(),
}
_STATES = ("PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty", "Assigning", "Reconciling")
_TYPES = ("Classic", "Consumer")
_MEMBER_COLUMNS = ("GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS")
_MEMBER_WIDTHS = {"GROUP-INSTANCE-ID": 17, "CURRENT-ASSIGNMENT": 20, "TARGET-ASSIGNMENT": 20}
_OFFSET_COLUMNS = {
    "GROUP": "group",
    "TOPIC": "topic",
    "PARTITION": "partition",
    "LEADER-EPOCH": "leader_epoch",
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
    do_validate_regex: str | None
    groups: tuple[str, ...]
    all_groups: bool
    topics: tuple[str, ...]
    all_topics: bool
    members: bool
    state: str | None
    group_type: str | None
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
@click.option(
    "--validate-regex",
    "do_validate_regex",
    metavar="REGEX",
    help="Check a regular expression of a subscription.",
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
@click.option(
    "--type",
    "group_type",
    is_flag=False,
    flag_value="",
    help="With --list: show types, or only groups of the given types.",
)
@click.option("--offsets", is_flag=True, help="With --describe: show offsets (the default).")
@click.option("--verbose", is_flag=True, help="With --describe: show assignments or epochs too.")
@click.option("--timeout", type=click.IntRange(min=1), help="Milliseconds that each request may take.")
@click.option("--export", is_flag=True, help="With --reset-offsets: print the new offsets as CSV.")
@reset_choices
def kafka_consumer_groups(
    bootstrap_server: str, command_config: Path | None, timeout: int | None, **asked: Unpack[_Options]
) -> None:
    """List, describe or delete groups, and reset or delete their offsets.

    \b
    kafka-consumer-groups --bootstrap-server localhost:9092 --describe --group billing
    kafka-consumer-groups --bootstrap-server localhost:9092 --reset-offsets --group billing \\
        --topic flights --to-earliest --execute
    """
    if asked["groups"] and asked["all_groups"]:
        raise Fault("Option --group cannot be used with option --all-groups")
    if asked["do_delete_offsets"] and not (asked["groups"] and asked["topics"]):
        raise Fault("Option --delete-offsets takes the following options: --group, --topic")
    action = chosen_action(_ACTIONS)
    if asked["do_validate_regex"] is not None:
        click.echo(_validity(asked["do_validate_regex"]))
        return
    settings = {"request.timeout.ms": timeout} if timeout is not None else {}
    admin = admin_client(bootstrap_server, command_config, settings)
    if action == "list":
        _list(admin, asked)
        return
    names = _group_names(admin, asked)
    actions = {
        "describe": _describe,
        "delete": _delete,
        "reset_offsets": _reset_offsets,
        "delete_offsets": _delete_offsets,
    }
    actions[action](admin, names, asked)


def _validity(expression: str) -> str:
    """Whether members of groups may subscribe with an expression, by the checks of Felice's brokers."""
    from felice.coordinator.group.consumer.expressions import fault_of

    fault = fault_of(expression)
    said = "valid" if fault is None else f"invalid: {fault}"
    return f"The regular expression `{expression}` is {said}."


def _group_names(admin: AdminClient, asked: _Options) -> list[str]:
    if asked["all_groups"]:
        return [row["group"] for row in list_groups(admin)]
    if not asked["groups"]:
        raise Fault("This action takes one of: --group, --all-groups")
    return list(asked["groups"])


def _list(admin: AdminClient, asked: _Options) -> None:
    rows = list_groups(admin)
    columns: dict[str, list[str]] = {"GROUP": [row["group"] for row in rows]}
    kept = [True] * len(rows)
    for option, header, words, values in (
        (asked["group_type"], "TYPE", _TYPES, [row["type"].capitalize() for row in rows]),
        (asked["state"], "STATE", _STATES, [row["state"] for row in rows]),
    ):
        if option is not None:
            wanted = _chosen_words(option, header.lower(), words)
            kept = [keep and value in wanted for keep, value in zip(kept, values, strict=True)]
            columns[header] = values
    shown = [row for row, keep in zip(zip(*columns.values(), strict=True), kept, strict=True) if keep]
    if len(columns) == 1:
        for (name,) in shown:
            click.echo(name)
        return
    _print(tuple(columns), shown, (25, 20, 20)[: len(columns)], after="")


def _chosen_words(text: str, what: str, words: Sequence[str]) -> set[str]:
    """The words that an option lists; all of them if it lists none. The case does not matter."""
    by_lower = {word.lower(): word for word in words}
    given = [part.strip().lower() for part in text.split(",")] if text else []
    if any(part not in by_lower for part in given):
        raise Fault(f"Invalid {what} list '{text}'. Valid {what}s are: {', '.join(words)}")
    return {by_lower[part] for part in given} or set(words)


def _describe(admin: AdminClient, names: list[str], asked: _Options) -> None:
    from felice.client import KafkaException

    views = {
        "--members": asked["members"],
        "--offsets": asked["offsets"],
        "--state": asked["state"] is not None,
    }
    if sum(views.values()) > 1:
        raise Fault(f"Option --describe takes at most one of these options: {', '.join(views)}")
    if asked["state"]:
        raise Fault(f"Option --describe does not take a value for --state: {asked['state']!r}")
    failed: KafkaException | None = None
    for name in names:
        try:
            found = describe_group(admin, name)
        except KafkaException as error:
            # Another group may have another coordinator.
            failed = failed or error
            if len(names) > 1:
                tell_left_out(f"left out group '{name}'", error)
            continue
        if found["state"] == "Dead":
            raise Fault(
                f"Error: Executing consumer group command failed due to Consumer group '{name}' does not exist."
            )
        if not found["members"]:
            click.echo(f"\nConsumer group '{name}' has no active members.", err=True)
        elif found["state"] not in ("Stable", "Empty"):
            click.echo(f"\nWarning: Consumer group '{name}' is rebalancing.", err=True)
        if asked["members"]:
            _print_members(found, verbose=asked["verbose"])
        elif asked["state"] is not None:
            _print_state(found, verbose=asked["verbose"])
        else:
            _print_offsets(found, verbose=asked["verbose"])
    if failed is not None:
        raise failed


def _print(
    columns: tuple[str, ...], rows: Sequence[tuple[object, ...]], widths: Sequence[int], after: str = "\n"
) -> None:
    shown = [tuple("-" if cell is None else cell for cell in row) for row in rows]
    fitted = [
        max(width, *(len(str(row[number])) for row in shown)) if shown else width
        for number, width in enumerate(widths)
    ]
    click.echo(after, nl=False)
    for line in padded(columns, shown, fitted):
        click.echo(line)


def _print_offsets(found: GroupState, *, verbose: bool) -> None:
    columns = {name: key for name, key in _OFFSET_COLUMNS.items() if verbose or name != "LEADER-EPOCH"}
    rows = []
    for row in found["offsets"]:
        host = f"/{row['host'].removeprefix('/')}" if row["host"] else None
        cells: Mapping[str, object] = {**row, "host": host}
        rows.append(tuple(cells[key] for key in columns.values()))
    _print(tuple(columns), rows, [10 if name == "PARTITION" else 15 for name in columns])


def _print_members(found: GroupState, *, verbose: bool) -> None:
    members = found["members"]
    # Like Kafka's tool: columns only for groups with static members, or with classic members.
    has_instances = any(member["group_instance_id"] for member in members)
    has_classic = any(member["is_upgraded"] is False for member in members)
    rows: list[dict[str, object]] = []
    for member in members:
        row: dict[str, object] = {"GROUP": found["group"], "CONSUMER-ID": member["member_id"]}
        if has_instances:
            row["GROUP-INSTANCE-ID"] = member["group_instance_id"] or ""
        row |= {
            "HOST": member["host"],
            "CLIENT-ID": member["client_id"],
            "#PARTITIONS": len(member["partitions"]),
        }
        if verbose:
            # Members of a classic group have neither epochs nor a target assignment.
            row |= {
                "CURRENT-EPOCH": member["epoch"],
                "CURRENT-ASSIGNMENT": _assignment(member["partitions"]),
                "TARGET-EPOCH": found["target_assignment_epoch"],
                "TARGET-ASSIGNMENT": _assignment(member["target_partitions"] or []),
            }
            if has_classic:
                row["UPGRADED"] = "false" if member["is_upgraded"] is False else "true"
        rows.append(row)
    columns = tuple(rows[0]) if rows else _MEMBER_COLUMNS
    _print(columns, [tuple(row.values()) for row in rows], [_MEMBER_WIDTHS.get(name, 15) for name in columns])


def _assignment(partitions: Sequence[str]) -> str | None:
    """`t1:0,1;t2:0` from `t1-0`, `t1-1`, `t2-0`; None without partitions."""
    topics: dict[str, list[int]] = {}
    for name in partitions:
        topic, _, number = name.rpartition("-")
        topics.setdefault(topic, []).append(int(number))
    shown = ";".join(f"{topic}:{','.join(map(str, sorted(topics[topic])))}" for topic in sorted(topics))
    return shown or None


def _print_state(found: GroupState, *, verbose: bool) -> None:
    epochs: dict[str, tuple[object, int]] = {
        "GROUP-EPOCH": (found["group_epoch"], 15),
        "TARGET-ASSIGNMENT-EPOCH": (found["target_assignment_epoch"], 25),
    }
    cells: dict[str, tuple[object, int]] = {
        "GROUP": (found["group"], 15),
        "COORDINATOR (ID)": (found["coordinator"], 25),
        "ASSIGNMENT-STRATEGY": (found["assignment_strategy"] or "-", 20),
        "STATE": (found["state"], 20),
        **(epochs if verbose else {}),
        "#MEMBERS": (len(found["members"]), 10),
    }
    values, widths = zip(*cells.values(), strict=True)
    _print(tuple(cells), [values], widths)


def _delete(admin: AdminClient, names: list[str], asked: _Options) -> None:
    from felice.client import KafkaException

    deleted, failed = [], []
    for name, future in admin.delete_consumer_groups(names).items():
        try:
            future.result()
            deleted.append(f"'{name}'")
        except KafkaException as error:
            failed.append(f"Group '{name}' could not be deleted due to: {error.args[0].str()}")
    if not failed:
        click.echo(f"Deletion of requested consumer groups ({', '.join(deleted)}) was successful.")
        return
    if deleted:
        click.echo(f"These consumer groups were deleted successfully: {', '.join(deleted)}")
    raise Fault(f"Error: Deletion of some consumer groups failed: {'; '.join(failed)}")


def _reset_offsets(admin: AdminClient, names: list[str], asked: _Options) -> None:
    if asked["execute"] and asked["dry_run"]:
        raise Fault("Only one of --execute and --dry-run can be given")
    rows: list[tuple[str, str, int, int]] = []
    for name in names:
        partitions = selected_partitions(
            admin, name, asked["topics"], asked["all_topics"], asked.get("from_file")
        )
        targets = reset_offsets(admin, name, partitions, asked, execute=asked["execute"])
        rows += [(name, topic, partition, offset) for (topic, partition), offset in targets.items()]
    if asked["export"]:
        # --from-file reads these rows again.
        lines = csv.writer(sys.stdout, lineterminator="\n")
        lines.writerows(rows if len(names) > 1 else [row[1:] for row in rows])
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
