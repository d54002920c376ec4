"""`kafka-client-metrics`."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from felice.cli.faults import Fault
from felice.cli.kafka_tools import bootstrap_server_option, chosen_action, kafka_tool
from felice.cli.options import admin_client, command_config_option

if TYPE_CHECKING:
    from felice.client.admin import AdminClient

_CONFIGS = ("interval.ms", "match", "metrics")
# Each action with the options that it takes.
_ACTIONS: Mapping[str, frozenset[str]] = {
    "alter": frozenset(("name", "generate_name", "metrics", "interval", "match")),
    "delete": frozenset(("name",)),
    "describe": frozenset(("name",)),
    "list": frozenset(),
}


class _Options(TypedDict):
    """The options of the tool besides those of the connection."""

    alter: bool
    delete: bool
    describe: bool
    do_list: bool
    name: str | None
    generate_name: bool
    metrics: str | None
    interval: str | None
    match: str | None


@kafka_tool("kafka-client-metrics")
@bootstrap_server_option
@command_config_option
@click.option("--alter", is_flag=True, help="Set configurations of a resource.")
@click.option("--delete", is_flag=True, help="Delete a resource.")
@click.option("--describe", is_flag=True, help="Print the configurations of a resource, or of all.")
@click.option("--list", "do_list", is_flag=True, help="Print the names of the resources.")
@click.option("--name", help="The name of the resource.")
@click.option("--generate-name", is_flag=True, help="With --alter: choose a name.")
@click.option("--metrics", metavar="M1,M2", help="Prefixes of the metrics' names; * is every metric.")
@click.option("--interval", help="How often clients push, in milliseconds; empty: the default.")
@click.option("--match", metavar="K1=V1,K2=V2", help="Which clients: regular expressions by selector.")
def kafka_client_metrics(
    bootstrap_server: str, command_config: Path | None, **asked: Unpack[_Options]
) -> None:
    """Say which metrics clients push to the brokers, and how often.

    \b
    kafka-client-metrics --bootstrap-server localhost:9092 --alter --name producers \\
      --metrics org.apache.kafka.producer. --interval 30000 --match client_id=app.*
    kafka-client-metrics --bootstrap-server localhost:9092 --describe
    """
    chosen_action(_ACTIONS)
    name = _name(asked)
    admin = admin_client(bootstrap_server, command_config)
    if asked["alter"]:
        admin.alter_client_metrics(name, _changes(asked)).result()
        click.echo(f"Altered client metrics config for {name}.")
    elif asked["delete"]:
        set_before = admin.describe_client_metrics(name).result()
        admin.alter_client_metrics(name, dict.fromkeys(set_before)).result()
        click.echo(f"Deleted client metrics config for {name}.")
    elif asked["describe"]:
        _describe(admin, name)
    else:
        for found in admin.list_client_metrics_resources().result():
            click.echo(found)


def _name(asked: _Options) -> str:
    """The name of the resource; empty if --describe or --list needs none."""
    if asked["alter"] and bool(asked["name"]) == asked["generate_name"]:
        raise Fault("One of --name or --generate-name must be specified with --alter.")
    if asked["delete"] and not asked["name"]:
        raise Fault("A client metrics resource name must be specified with --delete.")
    return asked["name"] or (str(uuid.uuid4()) if asked["alter"] else "")


def _changes(asked: _Options) -> dict[str, str | None]:
    interval = asked["interval"]
    if interval and not interval.isdecimal():
        raise Fault("Invalid interval value. Enter an integer, or leave empty to reset.")
    given = {"metrics": asked["metrics"], "interval.ms": interval, "match": asked["match"]}
    return {key: text or None for key, text in given.items() if text is not None}


def _describe(admin: AdminClient, name: str) -> None:
    for found in [name] if name else admin.list_client_metrics_resources().result():
        configs = admin.describe_client_metrics(found).result()
        click.echo(f"Client metrics configs for {found} are:")
        for key in _CONFIGS:
            click.echo(f"  {key}={configs[key]}")
