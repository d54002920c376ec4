"""`kafka-groups`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypedDict, Unpack

import click

from felice.cli.faults import Fault
from felice.cli.groups import GroupListing, list_groups
from felice.cli.kafka_tools import bootstrap_server_option, chosen_action, kafka_tool
from felice.cli.options import admin_client, command_config_option
from felice.cli.output import padded

_FILTERS = ("group_type", "protocol", "consumer", "share", "streams")
# Each action with the options that it takes.
_ACTIONS: Mapping[str, frozenset[str]] = {"list": frozenset(_FILTERS)}
_TYPES = ("classic", "consumer", "share", "streams")


class _Options(TypedDict):
    """The options of the tool besides those of the connection."""

    do_list: bool
    group_type: str | None
    protocol: str | None
    consumer: bool
    share: bool
    streams: bool


@kafka_tool("kafka-groups")
@bootstrap_server_option
@command_config_option
@click.option("--list", "do_list", is_flag=True, help="List the groups.")
@click.option("--group-type", help=f"Only groups of this type: {', '.join(_TYPES)}.")
@click.option("--protocol", help="Only groups with this protocol type.")
@click.option(
    "--consumer",
    is_flag=True,
    help="Only groups of consumers, of the classic protocol or the consumer protocol.",
)
@click.option("--share", is_flag=True, help="Only share groups.")
@click.option("--streams", is_flag=True, help="Only streams groups.")
def kafka_groups(bootstrap_server: str, command_config: Path | None, **asked: Unpack[_Options]) -> None:
    """List groups of all types.

    \b
    kafka-groups --bootstrap-server localhost:9092 --list
    kafka-groups --bootstrap-server localhost:9092 --list --group-type consumer
    """
    chosen_action(_ACTIONS)
    kind = (asked["group_type"] or "").lower()
    if kind and kind not in _TYPES:
        raise Fault(f"Unknown group type '{asked['group_type']}'; the types are {', '.join(_TYPES)}")
    selected = [name for name in ("consumer", "share", "streams") if asked[name]]
    others = [name for name in ("group_type", "protocol") if asked[name] is not None]
    if selected and len(selected) + len(others) > 1:
        named = " and ".join(f"--{name.replace('_', '-')}" for name in (*selected, *others))
        raise Fault(f"The options {named} cannot be given together")
    rows = [
        row for row in list_groups(admin_client(bootstrap_server, command_config)) if _is_wanted(row, asked)
    ]
    cells = [(row["group"], row["type"].capitalize(), row["protocol"]) for row in rows]
    widths = [max([20, *(len(row[number]) for row in cells)]) for number in range(3)]
    for line in padded(("GROUP", "TYPE", "PROTOCOL"), cells, widths):
        click.echo(line)


def _is_wanted(row: GroupListing, asked: _Options) -> bool:
    wanted = [
        asked["group_type"] is None or row["type"] == asked["group_type"].lower(),
        asked["protocol"] is None or row["protocol"] == asked["protocol"],
        not asked["consumer"]
        or row["type"] == "consumer"
        or (row["type"] == "classic" and row["protocol"] in ("consumer", "")),
        not asked["share"] or row["type"] == "share",
        not asked["streams"] or row["type"] == "streams",
    ]
    return all(wanted)
