"""`kafka-reassign-partitions`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from felice.cli.faults import Fault
from felice.cli.json_files import read_rows
from felice.cli.kafka_tools import bootstrap_server_option, chosen_action, kafka_tool
from felice.cli.options import admin_client, broker_ids, command_config_option
from felice.cli.reassign import (
    COMPLETED,
    IN_PROGRESS,
    MISSING,
    Plan,
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
# Each action with the options that it takes.
_ACTIONS: Mapping[str, frozenset[str]] = {
    "generate": frozenset(("topics_file", "broker_list", "disable_rack_aware")),
    "execute": frozenset(("plan_file", "throttle", "additional")),
    "verify": frozenset(("plan_file", "preserve_throttles")),
    "cancel": frozenset(("plan_file", "preserve_throttles")),
    "list": frozenset(),
}
json_file = click.Path(exists=True, dir_okay=False, path_type=Path)


class _Options(TypedDict):
    """The options of the tool besides those of the connection."""

    generate: bool
    execute: bool
    verify: bool
    cancel: bool
    do_list: bool
    plan_file: Path | None
    topics_file: Path | None
    broker_list: str | None
    throttle: int
    additional: bool
    preserve_throttles: bool
    disable_rack_aware: bool


@kafka_tool("kafka-reassign-partitions")
@bootstrap_server_option
@command_config_option
@click.option("--generate", is_flag=True, help="Print the current plan and a new one.")
@click.option("--execute", is_flag=True, help="Start the moves of a plan.")
@click.option("--verify", is_flag=True, help="Show whether a plan is complete; then remove its throttles.")
@click.option("--cancel", is_flag=True, help="Cancel the moves of a plan.")
@click.option("--list", "do_list", is_flag=True, help="List moves in progress.")
@click.option("--reassignment-json-file", "plan_file", type=json_file, help="The plan.")
@click.option(
    "--topics-to-move-json-file",
    "topics_file",
    type=json_file,
    help="With --generate: a JSON file that lists topics.",
)
@click.option("--broker-list", metavar="1,2,3", help="With --generate: brokers that receive the partitions.")
@click.option(
    "--throttle", type=int, default=-1, help="With --execute: limit in bytes per second; -1 for none."
)
@click.option(
    "--additional", is_flag=True, help="With --execute: allow it while other moves are in progress."
)
@click.option("--preserve-throttles", is_flag=True, help="Keep throttles.")
@click.option("--disable-rack-aware", is_flag=True, help="With --generate: do not look at brokers' racks.")
def kafka_reassign_partitions(
    bootstrap_server: str, command_config: Path | None, **asked: Unpack[_Options]
) -> None:
    """Move partitions to other brokers.

    \b
    kafka-reassign-partitions --bootstrap-server localhost:9092 --execute --reassignment-json-file plan.json
    kafka-reassign-partitions --bootstrap-server localhost:9092 --verify --reassignment-json-file plan.json
    """
    action = chosen_action(_ACTIONS)
    if "plan_file" in _ACTIONS[action] and asked["plan_file"] is None:
        raise Fault("Missing required argument --reassignment-json-file")
    admin = admin_client(bootstrap_server, command_config)
    _ACTS[action](admin, asked)


def _generate(admin: AdminClient, asked: _Options) -> None:
    if asked["topics_file"] is None or asked["broker_list"] is None:
        raise Fault("--generate needs --topics-to-move-json-file and --broker-list")
    topics = read_rows(asked["topics_file"], "topics", _TOPICS, lambda row: str(row["topic"]))
    brokers = broker_ids(asked["broker_list"])
    proposed = proposed_plan(admin, topics, brokers, rack_aware=not asked["disable_rack_aware"])
    click.echo(f"Current partition replica assignment\n{format_plan(current_plan(admin, topics))}\n")
    click.echo(f"Proposed partition reassignment configuration\n{format_plan(proposed)}")


def _plan_of(asked: _Options) -> Plan:
    assert asked["plan_file"] is not None, "checked before the action"
    return read_plan(asked["plan_file"])


def _execute(admin: AdminClient, asked: _Options) -> None:
    plan = _plan_of(asked)
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


def _verify(admin: AdminClient, asked: _Options) -> None:
    plan = _plan_of(asked)
    click.echo("Status of partition reassignment:")
    found = states(admin, plan)
    for (topic, number), state in found.items():
        click.echo(_state_line(f"{topic}-{number}", state, plan[topic, number]))
    if IN_PROGRESS not in found.values() and not asked["preserve_throttles"]:
        click.echo()
        _clear(admin, plan, found)


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


def _clear(admin: AdminClient, plan: Plan, found: Mapping[tuple[str, int], str]) -> None:
    topics = topics_there(found)
    cleared = clear_throttles(admin, plan, topics)
    click.echo(f"Clearing broker-level throttles on brokers {','.join(map(str, cleared.brokers))}")
    for topic in topics:
        click.echo(f"Clearing topic-level throttles on topic {topic}")
    cleared.check()


def _cancel(admin: AdminClient, asked: _Options) -> None:
    plan = _plan_of(asked)
    ended = cancel(admin, plan)
    if ended:
        click.echo(f"Successfully cancelled partition reassignments for: {_names(ended)}")
    else:
        click.echo("None of the specified partition reassignments are active.")
    if not asked["preserve_throttles"]:
        _clear(admin, plan, states(admin, plan))


def _list(admin: AdminClient, asked: _Options) -> None:
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
    "generate": _generate,
    "execute": _execute,
    "verify": _verify,
    "cancel": _cancel,
    "list": _list,
}


def _names(partitions: Iterable[tuple[str, int]]) -> str:
    return ",".join(f"{topic}-{number}" for topic, number in sorted(partitions))
