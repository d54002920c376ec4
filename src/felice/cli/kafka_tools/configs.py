"""`kafka-configs`."""

from __future__ import annotations

from pathlib import Path
from typing import TypedDict, Unpack

import click

from felice.cli.configs import ENTITY_TYPES, OptionRow, alter_entity, describe_entity, parse_added
from felice.cli.kafka_tools import bootstrap_server_option, kafka_tool, run_tool
from felice.cli.options import admin_client, command_config_option, read_properties


class _Options(TypedDict):
    """The options of the tool besides those of the connection."""

    describe: bool
    alter: bool
    everything: bool
    entity_type: str | None
    entity_name: str | None
    entity_default: bool
    topic: str | None
    broker: str | None
    add_config: str | None
    add_config_file: Path | None
    delete_config: str | None


@kafka_tool("kafka-configs")
@bootstrap_server_option
@command_config_option
@click.option("--describe", is_flag=True, help="List the configuration of one entity.")
@click.option("--alter", is_flag=True, help="Change the configuration of one entity.")
@click.option("--all", "everything", is_flag=True, help="With --describe: include options at their defaults.")
@click.option("--entity-type", type=click.Choice(list(ENTITY_TYPES)), help="Kind of entity.")
@click.option("--entity-name", help="Topic name or broker id.")
@click.option("--entity-default", is_flag=True, help="The default for all brokers.")
@click.option("--topic", help="Short for --entity-type topics --entity-name.")
@click.option("--broker", help="Short for --entity-type brokers --entity-name.")
@click.option(
    "--add-config", metavar="K1=V1,K2=[V1,V2]", help="Options to set; a value with commas goes in brackets."
)
@click.option(
    "--add-config-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A properties file of options to set.",
)
@click.option("--delete-config", metavar="K1,K2", help="Options to reset.")
def kafka_configs(bootstrap_server: str, command_config: Path | None, **asked: Unpack[_Options]) -> None:
    """Describe or alter the configuration of a topic or a broker.

    \b
    kafka-configs --bootstrap-server localhost:9092 --describe --topic flights
    kafka-configs --bootstrap-server localhost:9092 --alter --topic flights --add-config retention.ms=60000
    kafka-configs --bootstrap-server localhost:9092 --alter --entity-type brokers --entity-default \\
        --add-config log.retention.hours=24
    """
    if asked["describe"] == asked["alter"]:
        raise click.UsageError("Command must include exactly one action: --describe, --alter")
    entity_type, name = _entity(asked)
    admin = admin_client(bootstrap_server, command_config)
    if asked["describe"]:
        _describe(
            describe_entity(admin, entity_type, name), entity_type, name, everything=asked["everything"]
        )
        return
    added = parse_added(asked["add_config"]) if asked["add_config"] else {}
    if asked["add_config_file"]:
        added.update(read_properties(asked["add_config_file"]))
    removed = [key.strip() for key in asked["delete_config"].split(",")] if asked["delete_config"] else []
    if not added and not removed:
        raise click.UsageError(
            "At least one of --add-config, --add-config-file, or --delete-config must be specified"
        )
    alter_entity(admin, entity_type, name, added, removed)
    click.echo(_completed(entity_type, name))


def _entity(asked: _Options) -> tuple[str, str]:
    """The type and name of the entity. The empty name means the defaults of all brokers."""
    if asked["topic"]:
        return "topics", asked["topic"]
    if asked["broker"]:
        return "brokers", asked["broker"]
    if not asked["entity_type"]:
        raise click.UsageError("At least one of --entity-type, --topic, --broker must be specified")
    if asked["entity_default"]:
        if asked["entity_type"] != "brokers":
            raise click.UsageError("--entity-default is for brokers")
        return "brokers", ""
    if not asked["entity_name"]:
        raise click.UsageError("--entity-name or --entity-default must be specified with --entity-type")
    return asked["entity_type"], asked["entity_name"]


def _completed(entity_type: str, name: str) -> str:
    if not name:
        return f"Completed updating default config for {entity_type} in the cluster."
    return f"Completed updating config for {entity_type.removesuffix('s')} {name}."


def _describe(rows: list[OptionRow], entity_type: str, name: str, *, everything: bool) -> None:
    if name:
        extent = "All" if everything else "Dynamic"
        click.echo(f"{extent} configs for {entity_type.removesuffix('s')} {name} are:")
    else:
        click.echo(f"Default configs for {entity_type} in the cluster are:")
    for row in rows:
        if not everything and not row["source"].startswith("DYNAMIC"):
            continue
        synonyms = ", ".join(row["synonyms"])
        click.echo(
            f"  {row['name']}={row['value']} sensitive={str(row['sensitive']).lower()} synonyms={{{synonyms}}}"
        )


def main() -> None:
    """The entry point of `kafka-configs`."""
    run_tool(kafka_configs)
