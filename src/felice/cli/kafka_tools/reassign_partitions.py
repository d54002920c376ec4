"""`kafka-reassign-partitions`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from felice.cli.json_files import read_rows
from felice.cli.kafka_tools import run_tool
from felice.cli.options import admin_client, broker_ids, command_config_option
from felice.cli.reassign import (
    COMPLETED,
    IN_PROGRESS,
    MISSING,
    cancel,
    clear_throttles,
    current_plan,
    execute,
    format_plan,
    proposed_plan,
    read_plan,
    states,
    topics_there,
)

if TYPE_CHECKING:
    from felice.client.admin import AdminClient

_TOPICS = '{"topics": [{"topic": "t"}], "version": 1}'
_ACTIONS = ("generate", "execute", "verify", "cancel", "list_moves")
json_file = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command("kafka-reassign-partitions")
@click.option("--bootstrap-server", required=True)
@command_config_option
@click.option("--generate", is_flag=True)
@click.option("--execute", is_flag=True)
@click.option("--verify", is_flag=True)
@click.option("--cancel", is_flag=True)
@click.option("--list", "list_moves", is_flag=True)
@click.option("--reassignment-json-file", "plan_file", type=json_file)
@click.option("--topics-to-move-json-file", "topics_file", type=json_file)
@click.option("--broker-list", metavar="1,2,3")
@click.option("--throttle", type=int, default=-1)
@click.option("--additional", is_flag=True)
@click.option("--preserve-throttles", is_flag=True)
def kafka_reassign_partitions(bootstrap_server: str, command_config: Path | None, **asked: Any) -> None:
    """Move partitions to other brokers."""
    actions = [name for name in _ACTIONS if asked[name]]
    if len(actions) != 1:
        raise click.UsageError(
            "Command must include exactly one action: --generate, --execute, --verify, --cancel, --list"
        )
    if actions[0] in ("execute", "verify", "cancel") and asked["plan_file"] is None:
        raise click.UsageError("Missing required argument --reassignment-json-file")
    admin = admin_client(bootstrap_server, command_config)
    _ACTS[actions[0]](admin, asked)


def _generate(admin: AdminClient, asked: dict[str, Any]) -> None:
    if asked["topics_file"] is None or asked["broker_list"] is None:
        raise click.UsageError("--generate needs --topics-to-move-json-file and --broker-list")
    topics = read_rows(asked["topics_file"], "topics", _TOPICS, lambda row: str(row["topic"]))
    proposed = proposed_plan(admin, topics, broker_ids(asked["broker_list"]))
    click.echo(f"Current partition replica assignment\n{format_plan(current_plan(admin, topics))}\n")
    click.echo(f"Proposed partition reassignment configuration\n{format_plan(proposed)}")


def _execute(admin: AdminClient, asked: dict[str, Any]) -> None:
    plan = read_plan(asked["plan_file"])
    throttle = asked["throttle"] if asked["throttle"] >= 0 else None
    before = execute(admin, plan, throttle, additional=asked["additional"])
    click.echo(f"Current partition replica assignment\n\n{format_plan(before)}\n")
    click.echo("Save this to use as the --reassignment-json-file option during rollback")
    if throttle is not None:
        click.echo(
            "Warning: You must run --verify periodically, until the reassignment completes, "
            "to ensure the throttle is removed."
        )
        click.echo(f"The inter-broker throttle limit was set to {throttle} B/s")
    plural = "s" if len(plan) != 1 else ""
    click.echo(f"Successfully started partition reassignment{plural} for {_names(plan)}")


def _verify(admin: AdminClient, asked: dict[str, Any]) -> None:
    plan = read_plan(asked["plan_file"])
    click.echo("Status of partition reassignment:")
    found = states(admin, plan)
    for (topic, number), state in found.items():
        click.echo(_state_line(f"{topic}-{number}", state, plan[topic, number]))
    if IN_PROGRESS not in found.values() and not asked["preserve_throttles"]:
        click.echo()
        _clear(admin, found)


def _state_line(name: str, state: str, wanted: Sequence[int]) -> str:
    if state == COMPLETED:
        return f"Reassignment of partition {name} is completed."
    if state == IN_PROGRESS:
        return f"Reassignment of partition {name} is still in progress."
    replicas = "" if state == MISSING else state
    return (
        f"There is no active reassignment of partition {name}, "
        f"but replica set is {replicas} rather than {','.join(map(str, wanted))}."
    )


def _clear(admin: AdminClient, found: Mapping[tuple[str, int], str]) -> None:
    topics = topics_there(found)
    brokers = clear_throttles(admin, topics)
    click.echo(f"Clearing broker-level throttles on brokers {','.join(map(str, brokers))}")
    for topic in topics:
        click.echo(f"Clearing topic-level throttles on topic {topic}")


def _cancel(admin: AdminClient, asked: dict[str, Any]) -> None:
    plan = read_plan(asked["plan_file"])
    ended = cancel(admin, plan)
    if ended:
        click.echo(f"Successfully cancelled partition reassignments for: {_names(ended)}")
    else:
        click.echo("None of the specified partition reassignments are active.")
    if not asked["preserve_throttles"]:
        _clear(admin, states(admin, plan))


def _list(admin: AdminClient, asked: dict[str, Any]) -> None:
    moves = admin.list_partition_reassignments().result()
    if not moves:
        click.echo("No partition reassignments found.")
        return
    click.echo("Current partition reassignments:")
    for (topic, number), move in sorted(moves.items()):
        parts = [f"{topic}-{number}: replicas: {','.join(map(str, move.replicas))}."]
        if move.adding:
            parts.append(f"adding: {','.join(map(str, move.adding))}.")
        if move.removing:
            parts.append(f"removing: {','.join(map(str, move.removing))}.")
        click.echo(" ".join(parts))


_ACTS = {
    "generate": _generate, "execute": _execute, "verify": _verify, "cancel": _cancel, "list_moves": _list
}  # fmt: skip


def _names(partitions: Any) -> str:
    return ",".join(f"{topic}-{number}" for topic, number in sorted(partitions))


def main() -> None:
    run_tool(kafka_reassign_partitions)
