"""Consumer groups: list, describe with lag, move offsets, delete."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, TypeVar, Unpack

import click

from felice.cli.command_group import CommandGroup
from felice.cli.faults import Fault
from felice.cli.offsets import offsets_at, offsets_in_rounds, partitions_of
from felice.cli.options import admin_client, connection_options, json_option, read_text, wait_all
from felice.cli.output import show
from felice.cli.rounds import tell_left_out
from felice.cli.topics import existing

if TYPE_CHECKING:
    from felice.client.admin import AdminClient, MemberAssignment, MemberDescription

Partition = tuple[str, int]
T = TypeVar("T")


class GroupListing(TypedDict):
    """A group in the list of all groups."""

    group: str
    state: str
    type: str
    protocol: str


class MemberRow(TypedDict):
    """A member of a group, with its assigned partitions as `topic-number`.

    The last three are None in a classic group. `is_upgraded` is False for a member with the classic protocol.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    partitions: list[str]
    epoch: int | None
    target_partitions: list[str] | None
    is_upgraded: bool | None


class OffsetRow(TypedDict):
    """A partition that a group has committed or owns. None stands for what is unknown."""

    group: str
    topic: str
    partition: int
    leader_epoch: int | None
    current_offset: int | None
    log_end_offset: int | None
    lag: int | None
    consumer_id: str | None
    host: str | None
    client_id: str | None


class GroupState(TypedDict):
    """A group with its members and offsets. A classic group has no epochs."""

    group: str
    type: str
    state: str
    group_epoch: int | None
    target_assignment_epoch: int | None
    assignment_strategy: str
    coordinator: str | None
    members: list[MemberRow]
    offsets: list[OffsetRow]


class ResetChoices(TypedDict, total=False):
    """The options of `reset_choices`. Exactly one of them is chosen: neither None nor False."""

    to_earliest: bool
    to_latest: bool
    to_current: bool
    to_offset: int | None
    shift_by: int | None
    to_datetime: str | None
    by_duration: str | None
    from_file: Path | None


def list_groups(admin: AdminClient) -> list[GroupListing]:
    """One row for each group, sorted by name."""
    result = admin.list_consumer_groups().result()
    if result.errors:
        raise result.errors[0]
    rows: list[GroupListing] = [
        {
            "group": listing.group_id,
            "state": _name(listing.state),
            "type": _name(listing.type).lower(),
            "protocol": listing.protocol_type,
        }
        for listing in result.valid
    ]
    return sorted(rows, key=lambda row: row["group"])


def _name(value: Enum | None) -> str:
    """The client's `PREPARING_REBALANCING` as `PreparingRebalancing`, which is how Kafka's tools print it."""
    return "".join(word.capitalize() for word in value.name.split("_")) if value is not None else ""


def committed_offsets(admin: AdminClient, group: str) -> dict[Partition, int]:
    """The committed offset of each partition of the group."""
    return {partition: offset for partition, (offset, _) in _committed(admin, group).items()}


def _committed(admin: AdminClient, group: str) -> dict[Partition, tuple[int, int | None]]:
    """The committed offset of each partition, and the leader epoch of its record, if there is one."""
    from felice.client.admin import ConsumerGroupTopicPartitions

    result = wait_all(admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]))[group]
    return {
        (found.topic, found.partition): (found.offset, found.leader_epoch)
        for found in result.topic_partitions or []
        if found.offset >= 0
    }


def describe_group(admin: AdminClient, group: str) -> GroupState:
    """The group's state, its members, and a row with the lag of each assigned or committed partition."""
    description = wait_all(admin.describe_consumer_groups([group]))[group]
    committed = _committed(admin, group)
    owners = {
        (found.topic, found.partition): member
        for member in description.members
        for found in (member.assignment.topic_partitions if member.assignment else [])
    }
    partitions = sorted(committed.keys() | owners.keys())
    known = set(partitions_of(admin, _known_topics(admin, {topic for topic, _ in partitions})))
    ends = _known_ends(admin, [partition for partition in partitions if partition in known])
    coordinator = description.coordinator
    return {
        "group": group,
        "type": _name(description.type).lower(),
        "state": _name(description.state),
        "group_epoch": description.group_epoch,
        "target_assignment_epoch": description.target_assignment_epoch,
        "assignment_strategy": description.partition_assignor,
        "coordinator": f"{coordinator.host}:{coordinator.port} ({coordinator.id})" if coordinator else None,
        "members": [_member_row(member) for member in description.members],
        "offsets": [
            _offset_row(group, found, committed.get(found), ends.get(found), owners.get(found))
            for found in partitions
        ],
    }


def _known_ends(admin: AdminClient, partitions: Sequence[Partition]) -> dict[Partition, int]:
    """The end offsets of the partitions that have a leader; the others are named on standard error."""
    ends = {}
    for partition, found in offsets_in_rounds(admin, partitions, -1):
        if isinstance(found, int):
            ends[partition] = found
        else:
            tell_left_out(f"the end offset of {partition[0]}-{partition[1]} is unknown", found)
    return ends


def _known_topics(admin: AdminClient, names: set[str]) -> list[str]:
    return sorted(names & set(admin.list_topics(timeout=30).topics))


def _member_row(member: MemberDescription) -> MemberRow:
    return {
        "member_id": member.member_id,
        "group_instance_id": member.group_instance_id,
        "client_id": member.client_id,
        "host": member.host,
        "partitions": _partition_names(member.assignment) or [],
        "epoch": member.member_epoch,
        "target_partitions": _partition_names(member.target_assignment),
        "is_upgraded": member.is_upgraded,
    }


def _partition_names(assignment: MemberAssignment | None) -> list[str] | None:
    if assignment is None:
        return None
    return [f"{found.topic}-{found.partition}" for found in assignment.topic_partitions]


def _offset_row(
    group: str,
    found: Partition,
    committed: tuple[int | None, int | None] | None,
    end: int | None,
    member: MemberDescription | None,
) -> OffsetRow:
    current, epoch = committed or (None, None)
    return {
        "group": group,
        "topic": found[0],
        "partition": found[1],
        "leader_epoch": epoch,
        "current_offset": current,
        "log_end_offset": end,
        "lag": end - current if end is not None and current is not None else None,
        "consumer_id": member.member_id if member else None,
        "host": member.host if member else None,
        "client_id": member.client_id if member else None,
    }


def delete_groups(admin: AdminClient, groups: Sequence[str]) -> None:
    """Deletes groups; raises the first failure."""
    wait_all(admin.delete_consumer_groups(list(groups)))


def set_offsets(admin: AdminClient, group: str, targets: Mapping[Partition, int]) -> None:
    """Commits offsets for a group that has no members; raises `Fault` for the first failure."""
    from felice.client.admin import ConsumerGroupTopicPartitions, TopicPartition

    asked = [TopicPartition(topic, partition, offset) for (topic, partition), offset in targets.items()]
    result = wait_all(admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, asked)]))[group]
    for found in result.topic_partitions or []:
        if found.error:
            raise Fault(f"{found.topic}-{found.partition}: {found.error.str()}")


def require_inactive(admin: AdminClient, group: str) -> None:
    """Raises if the group has members, because their next commit would undo a reset."""
    description = wait_all(admin.describe_consumer_groups([group]))[group]
    if description.members:
        raise Fault(
            f"Assignments can only be reset if the group '{group}' is inactive, but the current state is "
            f"{_name(description.state)}; stop its consumers first"
        )


def parse_partitions(admin: AdminClient, topics: Sequence[str]) -> list[Partition]:
    """Reads `topic` (all its partitions) and `topic:0,1`."""
    found: list[Partition] = []
    for text in topics:
        name, colon, numbers = text.partition(":")
        existing(admin, [name])
        known = partitions_of(admin, [name])
        if not colon:
            found += known
            continue
        for number in numbers.split(","):
            if not number.isdecimal() or (name, int(number)) not in known:
                raise Fault(f"topic {name} has no partition {number!r}")
            found.append((name, int(number)))
    return found


class Reset:
    """Computes the offsets to move a group to. Each method returns the target offset of every partition."""

    def __init__(self, admin: AdminClient, group: str, partitions: Sequence[Partition]) -> None:
        self._admin = admin
        self.group = group
        self._partitions = list(partitions)
        self._committed = committed_offsets(admin, group)
        self._starts = offsets_at(admin, self._partitions, -2)
        self._ends = offsets_at(admin, self._partitions, -1)

    def to_earliest(self) -> dict[Partition, int]:
        """The first offset of each partition."""
        return dict(self._starts)

    def to_latest(self) -> dict[Partition, int]:
        """The end offset of each partition."""
        return dict(self._ends)

    def to_offset(self, offset: int) -> dict[Partition, int]:
        """One offset for all partitions, bounded by the start and the end of each."""
        return {found: self._bounded(found, offset) for found in self._partitions}

    def to_current(self) -> dict[Partition, int]:
        """The committed offset of each partition."""
        return {found: self._committed.get(found, self._ends[found]) for found in self._partitions}

    def shift_by(self, count: int) -> dict[Partition, int]:
        """The committed offset plus `count`, which may be negative, bounded by the start and the end."""
        for found in self._partitions:
            if found not in self._committed:
                raise Fault(f"cannot shift {found[0]}-{found[1]}: the group has committed no offset for it")
        return {found: self._bounded(found, self._committed[found] + count) for found in self._partitions}

    def to_time(self, timestamp_ms: int) -> dict[Partition, int]:
        """The first offset at or after a timestamp; the end if there is none."""
        at = offsets_at(self._admin, self._partitions, timestamp_ms)
        return {found: at[found] if at[found] >= 0 else self._ends[found] for found in self._partitions}

    def from_file(self, wanted: Mapping[Partition, int]) -> dict[Partition, int]:
        """The offsets of a file, bounded by the start and the end of each partition."""
        for topic, partition in wanted:
            if (topic, partition) not in self._starts:
                raise Fault(f"{topic}-{partition} of the file is not among the partitions to reset")
        return {found: self._bounded(found, offset) for found, offset in wanted.items()}

    def _bounded(self, found: Partition, offset: int) -> int:
        return min(max(offset, self._starts[found]), self._ends[found])


def read_reset_file(path: Path, group: str) -> dict[Partition, int]:
    """The offsets for a group in lines of `group,topic,partition,offset`, or `topic,partition,offset` for any group."""
    targets = {}
    for number, row in enumerate(csv.reader(io.StringIO(read_text(path))), start=1):
        if not row:
            continue
        *groups, topic, partition, offset = [None] * (3 - len(row)) + [text.strip() for text in row]
        try:
            found, wanted = (str(topic), int(str(partition))), int(str(offset))
        except ValueError:
            found, wanted = ("", -1), -1
        if not found[0] or len(groups) > 1 or found[1] < 0:
            raise Fault(
                f"{path}, line {number}: expected topic,partition,offset or group,topic,partition,offset, "
                f"got {','.join(row)}"
            )
        if groups and groups[0] != group:
            continue
        if found in targets:
            raise Fault(f"{path}, line {number}: {found[0]}-{found[1]} is there twice")
        targets[found] = wanted
    return targets


def parse_datetime(text: str) -> int:
    """`2026-11-20T10:00:00.000` (in UTC unless it names an offset) as milliseconds since the epoch."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise Fault(f"{text!r} is not a time like 2026-11-20T10:00:00.000") from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def parse_duration(text: str, now: datetime) -> int:
    """`P1DT2H3M4S` before now, as milliseconds since the epoch."""
    import re

    found = re.fullmatch(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", text)
    if not found or not any(found.groups()):
        raise Fault(f"{text!r} is not a duration like P1DT2H30M")
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    try:
        then = now - timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    except OverflowError:
        raise Fault(f"{text!r} is too long: it leads back to a time before the year 1") from None
    return int(then.timestamp() * 1000)


def choose_reset(reset: Reset, choices: ResetChoices, now: datetime) -> dict[Partition, int]:
    """The targets of the one chosen way; raises `Fault` if none or several are chosen."""
    ways: dict[str, Callable[[], dict[Partition, int]]] = {
        "to_earliest": lambda: reset.to_earliest(),
        "to_latest": lambda: reset.to_latest(),
        "to_current": lambda: reset.to_current(),
        "to_offset": lambda: reset.to_offset(_given(choices["to_offset"])),
        "shift_by": lambda: reset.shift_by(_given(choices["shift_by"])),
        "to_datetime": lambda: reset.to_time(parse_datetime(_given(choices["to_datetime"]))),
        "by_duration": lambda: reset.to_time(parse_duration(_given(choices["by_duration"]), now)),
        "from_file": lambda: reset.from_file(read_reset_file(_given(choices["from_file"]), reset.group)),
    }
    given: Mapping[str, object] = choices
    # Compared by identity, because the offset 0 equals False but is a choice.
    made = [name for name in ways if given.get(name) is not None and given.get(name) is not False]
    if len(made) != 1:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in ways)
        raise Fault(f"choose exactly one of {options}")
    return ways[made[0]]()


def _given(value: T | None) -> T:
    assert value is not None, "only called for the chosen option"
    return value


def reset_choices(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options for choosing new offsets, with the names of Kafka's tool."""
    for add in reversed(
        [
            click.option("--to-earliest", is_flag=True, help="To the first offset."),
            click.option("--to-latest", is_flag=True, help="To the end."),
            click.option("--to-current", is_flag=True, help="To the current offsets (to export them)."),
            click.option("--to-offset", type=int, help="To this offset."),
            click.option("--shift-by", type=int, help="By this many records; negative: backwards."),
            click.option(
                "--to-datetime", metavar="TIME", help="To the first record at 2026-11-20T10:00:00.000."
            ),
            click.option(
                "--by-duration",
                metavar="PnDTnHnMnS",
                help="To the first record after now minus this duration.",
            ),
            click.option(
                "--from-file",
                type=click.Path(exists=True, dir_okay=False, path_type=Path),
                help="To the offsets in a CSV file: topic,partition,offset, or group,topic,partition,offset.",
            ),
            click.option("--dry-run", is_flag=True, help="Only show the new offsets (the default)."),
            click.option("--execute", is_flag=True, help="Apply the new offsets."),
        ]
    ):
        command = add(command)
    return command


def reset_offsets(
    admin: AdminClient,
    group: str,
    partitions: Sequence[Partition],
    choices: ResetChoices,
    *,
    execute: bool,
) -> dict[Partition, int]:
    """Computes the chosen offsets and, if asked to execute, commits them."""
    targets = choose_reset(Reset(admin, group, partitions), choices, datetime.now(UTC))
    if execute:
        require_inactive(admin, group)
        set_offsets(admin, group, targets)
    return targets


@click.group(cls=CommandGroup)
def groups() -> None:
    """List and describe consumer groups, and reset their offsets.

    \b
    felice groups describe billing
    felice groups reset-offsets billing --topic flights --to-earliest --execute
    """


@groups.command("list")
@connection_options
@json_option
def list_command(bootstrap: str, command_config: Path | None, as_json: bool) -> None:
    """Show all groups and their states.

    \b
    felice groups list
    """
    show(list_groups(admin_client(bootstrap, command_config)), as_json, empty="There are no groups.")


@groups.command("describe")
@click.argument("name")
@connection_options
@json_option
def describe_command(name: str, bootstrap: str, command_config: Path | None, as_json: bool) -> None:
    """Show a group's offsets, lag and members.

    \b
    felice groups describe billing
    """
    found = describe_group(admin_client(bootstrap, command_config), name)
    if found["state"] == "Dead":
        raise Fault(f"Consumer group '{name}' does not exist; see: felice groups list")
    if as_json:
        from felice.cli.output import show_json

        show_json(found)
        return
    facts = [
        name,
        found["type"],
        found["state"],
        f"coordinator {found['coordinator']}",
        found["assignment_strategy"],
        "" if found["group_epoch"] is None else f"group epoch {found['group_epoch']}",
        ""
        if found["target_assignment_epoch"] is None
        else f"target epoch {found['target_assignment_epoch']}",
    ]
    click.echo("  ".join(filter(None, facts)))
    rows = [
        {key: value for key, value in row.items() if key not in ("group", "host", "leader_epoch")}
        for row in found["offsets"]
    ]
    show(rows, False, empty="The group has committed nothing and owns nothing.")


@groups.command("reset-offsets")
@click.argument("name")
@connection_options
@click.option(
    "--topic",
    "names",
    multiple=True,
    metavar="NAME[:0,1]",
    help="Topic, or some of its partitions; may be repeated.",
)
@click.option("--all-topics", is_flag=True, help="Every topic that the group has offsets for.")
@reset_choices
@json_option
def reset_command(
    name: str,
    bootstrap: str,
    command_config: Path | None,
    names: tuple[str, ...],
    all_topics: bool,
    as_json: bool,
    dry_run: bool,
    execute: bool,
    **choices: Unpack[ResetChoices],
) -> None:
    """Reset a group's offsets. Shows the new offsets; --execute applies them.

    \b
    felice groups reset-offsets billing --topic flights --to-earliest --execute
    """
    admin = admin_client(bootstrap, command_config)
    targets = reset_offsets(
        admin,
        name,
        selected_partitions(admin, name, names, all_topics, choices.get("from_file")),
        choices,
        execute=execute and not dry_run,
    )
    rows = [
        {"group": name, "topic": t, "partition": p, "new_offset": offset}
        for (t, p), offset in targets.items()
    ]
    show(rows, as_json)
    if not execute and not as_json:
        click.echo("Nothing was changed; add --execute to do it.", err=True)


def selected_partitions(
    admin: AdminClient, group: str, names: Sequence[str], all_topics: bool, file: Path | None = None
) -> list[Partition]:
    """The partitions that the options name: all that the group has committed, those of the topics, or of the file."""
    if all_topics and names:
        raise Fault("--topic and --all-topics cannot be given together")
    if file is not None and not names and not all_topics:
        wanted = list(read_reset_file(file, group))
        known = set(partitions_of(admin, existing(admin, sorted({topic for topic, _ in wanted}))))
        for topic, number in wanted:
            if (topic, number) not in known:
                raise Fault(f"topic {topic} has no partition {number}")
        return wanted
    if all_topics:
        return sorted(committed_offsets(admin, group))
    if not names:
        raise Fault("say which topics: --topic NAME, or --all-topics")
    return parse_partitions(admin, names)


@groups.command("delete")
@click.argument("names", nargs=-1, required=True)
@connection_options
def delete_command(names: tuple[str, ...], bootstrap: str, command_config: Path | None) -> None:
    """Delete groups without members, and their offsets.

    \b
    felice groups delete billing
    """
    delete_groups(admin_client(bootstrap, command_config), names)
    for name in names:
        click.echo(f"Deleted group {name}.")
