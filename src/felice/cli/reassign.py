"""Moving partitions to other brokers: a plan, its execution, its progress, its cancellation.

Plans are Kafka's JSON: {"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2]}]}.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from felice.cli.command_group import CommandGroup
from felice.cli.faults import Fault
from felice.cli.json_files import JsonRow, partition_of, read_rows
from felice.cli.options import admin_client, broker_ids, connection_options, json_option, wait_all
from felice.cli.output import Row, progress, show

if TYPE_CHECKING:
    from felice.client import KafkaException
    from felice.client.admin import AdminClient

Plan = dict[tuple[str, int], tuple[int, ...]]
"""The wanted replicas of each partition, the preferred leader first."""

_TIMEOUT_S = 30.0
_ALTER_TIMEOUT_S = 60.0
# A broker that takes no connection is asked again for so long.
_BROKER_TIMEOUT_S = 15.0
_POLL_S = 0.5
LEADER_RATE, FOLLOWER_RATE = "leader.replication.throttled.rate", "follower.replication.throttled.rate"
LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"
_SHAPE = '{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2]}]}'


# Plans


def read_plan(path: Path) -> Plan:
    """Reads and checks a plan; raises `Fault` that says what is wrong with it."""
    rows = read_rows(path, "partitions", _SHAPE, _move)
    plan = {partition: brokers for partition, brokers, _ in rows}
    if len(plan) != len(rows):
        raise Fault(f"{path} names a partition twice")
    for (topic, number), brokers in plan.items():
        if not brokers or len(set(brokers)) < len(brokers):
            raise Fault(
                f"{path}: {topic}-{number} needs at least one replica, and each broker once: {_joined(brokers)}"
            )
    if not plan:
        raise Fault(f"{path} names no partition")
    if any(place != "any" for _, _, places in rows for place in places):
        raise Fault(f"{path} names log directories; move replicas between those with: felice log-dirs move")
    return plan


def _move(row: JsonRow) -> tuple[tuple[str, int], tuple[int, ...], list[object]]:
    """The partition, its replicas and their log directories in one row of a plan."""
    return partition_of(row), tuple(map(int, row["replicas"])), list(row.get("log_dirs", ()))


def format_plan(plan: Mapping[tuple[str, int], Sequence[int]]) -> str:
    """The plan as Kafka's JSON."""
    rows = [
        {"topic": topic, "partition": number, "replicas": list(brokers), "log_dirs": ["any"] * len(brokers)}
        for (topic, number), brokers in sorted(plan.items())
    ]
    return json.dumps({"version": 1, "partitions": rows}, separators=(",", ":"))


def current_plan(admin: AdminClient, topics: Sequence[str]) -> Plan:
    """The present replicas of the partitions of these topics."""
    found = admin.list_topics(timeout=_TIMEOUT_S).topics
    missing = [name for name in topics if name not in found]
    if missing:
        raise Fault(f"there is no topic {', '.join(missing)}")
    return {
        (name, number): tuple(partition.replicas)
        for name in topics
        for number, partition in sorted(found[name].partitions.items())
    }


def proposed_plan(
    admin: AdminClient,
    topics: Sequence[str],
    brokers: Sequence[int],
    seed: int | None = None,
    *,
    rack_aware: bool = True,
) -> Plan:
    """A plan that spreads the partitions of topics over brokers and racks. The number of replicas stays."""
    from felice.controller.placement import place_replicas

    nodes = {node.id: node for node in admin.describe_cluster().result().nodes}
    _check_brokers(brokers, nodes)
    if twice := sorted({broker for broker in brokers if brokers.count(broker) > 1}):
        raise Fault(f"Broker list contains duplicate entries: {_joined(twice)}")
    racks = {broker: nodes[broker].rack if rack_aware else None for broker in sorted(brokers)}
    dice = random.Random(seed)
    plan: Plan = {}
    for name in topics:
        current = current_plan(admin, [name])
        factor = max(len(replicas) for replicas in current.values())
        if factor > len(brokers):
            raise Fault(f"{name} has {factor} replicas: {len(brokers)} brokers are too few")
        start, shift = dice.randrange(len(brokers)), dice.randrange(len(brokers))
        placed = place_replicas(racks, len(current), factor, start_index=start, start_shift=shift)
        plan.update({(name, number): replicas for number, replicas in placed.items()})
    return plan


def _check_brokers(brokers: Iterable[int], known: Iterable[int]) -> None:
    there = sorted(known)
    if unknown := sorted(set(brokers) - set(there)):
        raise Fault(f"there is no broker {_joined(unknown)}; there are {_joined(there)}")


# Execution


def execute(admin: AdminClient, plan: Plan, throttle: int | None, *, additional: bool = False) -> Plan:
    """Starts a reassignment and returns the previous replicas."""
    under_way = admin.list_partition_reassignments().result()
    if under_way and not additional:
        raise Fault(f"{len(under_way)} partitions are being reassigned; wait for them, or give --additional")
    everything = current_plan(admin, topics_of(plan))
    if missing := [
        f"{topic}-{number}" for topic, number in sorted(plan) if (topic, number) not in everything
    ]:
        raise Fault(f"there is no partition {', '.join(missing)}")
    before = {partition: everything[partition] for partition in plan}
    # Checked before anything is changed: otherwise a plan that cannot be carried out would leave its throttles behind.
    nodes = admin.describe_cluster().result().nodes
    _check_brokers((broker for replicas in plan.values() for broker in replicas), [one.id for one in nodes])
    if throttle is not None:
        set_throttles(admin, plan, before, throttle)
    wait_all(admin.alter_partition_reassignments(plan))
    return before


def cancel(admin: AdminClient, plan: Plan) -> list[tuple[str, int]]:
    """Cancels those reassignments of the plan that are in progress, and returns their partitions."""
    under_way = admin.list_partition_reassignments().result()
    active = [partition for partition in sorted(plan) if partition in under_way]
    if active:
        wait_all(admin.alter_partition_reassignments(dict.fromkeys(active)))
    return active


COMPLETED, IN_PROGRESS, MISSING = "completed", "in progress", "no such partition"


def states(admin: AdminClient, plan: Plan) -> dict[tuple[str, int], str]:
    """The state of each partition's reassignment; if it is not carried out, the present replicas."""
    under_way = admin.list_partition_reassignments().result()
    topics = admin.list_topics(timeout=_TIMEOUT_S).topics
    found = {}
    for (topic, number), wanted in sorted(plan.items()):
        partition = topics[topic].partitions.get(number) if topic in topics else None
        if (topic, number) in under_way:
            found[topic, number] = IN_PROGRESS
        elif partition is None:
            found[topic, number] = MISSING
        elif tuple(partition.replicas) == wanted:
            found[topic, number] = COMPLETED
        else:
            found[topic, number] = _joined(partition.replicas)
    return found


def topics_of(partitions: Iterable[tuple[str, int]]) -> list[str]:
    """The topics of partitions, sorted, each once."""
    return sorted({topic for topic, _ in partitions})


def topics_there(found: Mapping[tuple[str, int], str]) -> list[str]:
    """Those topics of a plan that exist. Only they can have throttles."""
    return topics_of(partition for partition, state in found.items() if state != MISSING)


def set_throttles(admin: AdminClient, plan: Plan, before: Plan, bytes_per_second: int) -> None:
    """Throttles a reassignment: sending on the present replicas, receiving on the new ones."""
    brokers = sorted({broker for replicas in (*plan.values(), *before.values()) for broker in replicas})
    rates = {name: str(bytes_per_second) for name in (LEADER_RATE, FOLLOWER_RATE)}
    for broker in brokers:
        _alter(admin, "BROKER", str(broker), rates)
    for topic in topics_of(plan):
        moves = {n: (before.get((t, n), ()), plan[t, n]) for t, n in sorted(plan) if t == topic}
        leaders = [f"{n}:{broker}" for n, (old, _) in moves.items() for broker in old]
        new = [
            f"{n}:{broker}" for n, (old, wanted) in moves.items() for broker in wanted if broker not in old
        ]
        _alter(admin, "TOPIC", topic, {LEADER_REPLICAS: ",".join(leaders), FOLLOWER_REPLICAS: ",".join(new)})


class Cleared(NamedTuple):
    """The brokers whose throttles were removed, and the error of each broker that keeps its own."""

    brokers: list[int]
    left: dict[int, KafkaException]

    def check(self) -> None:
        """Raises `Fault` if a broker keeps its throttle."""
        if self.left:
            brokers = ", ".join(map(str, sorted(self.left)))
            reasons = "; ".join(dict.fromkeys(error.error.str() for error in self.left.values()))
            raise Fault(
                f"the replication throttle of broker {brokers} could not be removed: {reasons}. "
                "Verify the plan again when that broker runs, or it keeps its throttle"
            )


def clear_throttles(admin: AdminClient, plan: Plan, topics: Sequence[str]) -> Cleared:
    """Removes the throttles of the topics, and those of all brokers, also those of the plan that do not run now."""
    from felice.client import KafkaException

    known = admin.list_topics(timeout=_TIMEOUT_S).brokers
    brokers = sorted({*known, *(broker for replicas in plan.values() for broker in replicas)})
    cleared = Cleared([], {})
    for broker in brokers:
        try:
            _alter(admin, "BROKER", str(broker), {LEADER_RATE: None, FOLLOWER_RATE: None}, _BROKER_TIMEOUT_S)
            cleared.brokers.append(broker)
        except KafkaException as error:
            cleared.left[broker] = error
    for topic in topics:
        _alter(admin, "TOPIC", topic, {LEADER_REPLICAS: None, FOLLOWER_REPLICAS: None})
    return cleared


def _alter(
    admin: AdminClient,
    kind: str,
    name: str,
    values: Mapping[str, str | None],
    timeout_s: float = _ALTER_TIMEOUT_S,
) -> None:
    from felice.client.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    changes = [
        ConfigEntry(
            key,
            value,
            incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
        )
        for key, value in values.items()
    ]
    resource = ConfigResource(ResourceType[kind], name, incremental_configs=changes)
    wait_all(admin.incremental_alter_configs([resource], request_timeout=timeout_s))


# Commands

plan_argument = click.argument("plan_file", type=click.Path(exists=True, dir_okay=False, path_type=Path))


@click.group(cls=CommandGroup)
def reassign() -> None:
    """Move partitions to other brokers.

    \b
    felice reassign generate flights --brokers 1,2,3 > plan.json
    felice reassign execute plan.json --throttle 50000000 > before.json
    felice reassign verify plan.json --wait
    felice reassign cancel plan.json
    """


@reassign.command("generate")
@click.argument("topics", nargs=-1, required=True)
@connection_options
@click.option("--brokers", required=True, metavar="1,2,3", help="Brokers that receive the partitions.")
@click.option("--seed", type=int, help="Seed: the same seed and cluster give the same plan.")
def generate_command(
    topics: tuple[str, ...], bootstrap: str, command_config: Path | None, brokers: str, seed: int | None
) -> None:
    """Print a plan that spreads the partitions of topics over brokers; the number of replicas stays.

    \b
    felice reassign generate flights --brokers 1,2,3 > plan.json

    For more or fewer replicas, edit the lists in the plan before you execute it.
    """
    admin = admin_client(bootstrap, command_config)
    click.echo(format_plan(proposed_plan(admin, topics, broker_ids(brokers), seed)))


@reassign.command("execute")
@plan_argument
@connection_options
@click.option("--throttle", type=click.IntRange(min=1), metavar="BYTES", help="Limit in bytes per second.")
@click.option("--additional", is_flag=True, help="Allow it while other moves are in progress.")
def execute_command(
    plan_file: Path, bootstrap: str, command_config: Path | None, throttle: int | None, additional: bool
) -> None:
    """Start the moves of a plan, and print the current placement as a plan for going back.

    \b
    felice reassign execute plan.json --throttle 50000000
    """
    plan = read_plan(plan_file)
    before = execute(admin_client(bootstrap, command_config), plan, throttle, additional=additional)
    click.echo(format_plan(before))
    click.echo(
        f"{len(plan)} partitions are being reassigned; see: felice reassign verify {plan_file}", err=True
    )


@reassign.command("verify")
@plan_argument
@connection_options
@click.option("--wait", is_flag=True, help="Wait until no move is in progress.")
@click.option("--preserve-throttles", is_flag=True, help="Do not remove throttles.")
@json_option
def verify_command(
    plan_file: Path,
    bootstrap: str,
    command_config: Path | None,
    wait: bool,
    preserve_throttles: bool,
    as_json: bool,
) -> None:
    """Show the progress of a plan; remove its throttles when all moves have ended.

    \b
    felice reassign verify plan.json --wait

    Exit code 1: a partition is neither on its new brokers nor moving there.
    """
    plan = read_plan(plan_file)
    admin = admin_client(bootstrap, command_config)
    found = _wait_until_over(admin, plan) if wait else states(admin, plan)
    rows = [
        {"partition": f"{topic}-{number}", "state": _in_words(state)}
        for (topic, number), state in found.items()
    ]
    show(rows, as_json)
    if IN_PROGRESS not in found.values() and not preserve_throttles:
        clear_throttles(admin, plan, topics_there(found)).check()
    if set(found.values()) - {COMPLETED, IN_PROGRESS}:
        click.get_current_context().exit(1)


def _in_words(state: str) -> str:
    return state if state in (COMPLETED, IN_PROGRESS, MISSING) else f"replicas are {state}"


def _wait_until_over(admin: AdminClient, plan: Plan) -> dict[tuple[str, int], str]:
    over = 0
    with progress("reassigning", len(plan)) as advance:
        while True:
            found = states(admin, plan)
            ended = sum(state != IN_PROGRESS for state in found.values())
            advance(ended - over)
            over = ended
            if over == len(plan):
                return found
            time.sleep(_POLL_S)


@reassign.command("cancel")
@plan_argument
@connection_options
def cancel_command(plan_file: Path, bootstrap: str, command_config: Path | None) -> None:
    """Cancel the moves of a plan: partitions return to their previous brokers, and throttles are removed.

    \b
    felice reassign cancel plan.json

    As with Kafka, brokers that the plan kept stay in the plan's order, and the first of them is the preferred
    leader. To restore the old order too, execute the plan that `execute` printed.
    """
    plan = read_plan(plan_file)
    admin = admin_client(bootstrap, command_config)
    ended = cancel(admin, plan)
    cleared = clear_throttles(admin, plan, topics_there(states(admin, plan)))
    click.echo(f"{len(ended)} moves were cancelled.")
    if any(len(plan[partition]) > 1 for partition in ended):
        click.echo(
            "The order of their replicas may be the plan's now; "
            "to restore the order, execute the plan that `felice reassign execute` printed.",
            err=True,
        )
    cleared.check()


@reassign.command("list")
@connection_options
@json_option
def list_command(bootstrap: str, command_config: Path | None, as_json: bool) -> None:
    """Show the moves in progress.

    \b
    felice reassign list
    """
    rows: list[Row] = [
        {
            "partition": f"{topic}-{number}",
            "replicas": list(move.replicas),
            "adding": list(move.adding),
            "removing": list(move.removing),
        }
        for (topic, number), move in sorted(
            admin_client(bootstrap, command_config).list_partition_reassignments().result().items()
        )
    ]
    show(rows, as_json, empty="No partition is being reassigned.")


def _joined(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))
