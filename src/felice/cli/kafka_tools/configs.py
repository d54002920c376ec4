"""`kafka-configs`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from felice.cli.configs import ENTITY_TYPES, alter_entity, describe_entity, parse_added
from felice.cli.kafka_tools import run_tool
from felice.cli.options import admin_client, command_config_option


@click.command("kafka-configs")
@click.option("--bootstrap-server", required=True)
@command_config_option
@click.option("--describe", is_flag=True)
@click.option("--alter", is_flag=True)
@click.option("--all", "everything", is_flag=True)
@click.option("--entity-type", type=click.Choice(list(ENTITY_TYPES)))
@click.option("--entity-name")
@click.option("--entity-default", is_flag=True)
@click.option("--topic")
@click.option("--broker")
@click.option("--add-config", metavar="K1=V1,K2=[V1,V2]")
@click.option("--add-config-file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--delete-config", metavar="K1,K2")
def kafka_configs(bootstrap_server: str, command_config: Path | None, **asked: Any) -> None:
    """Describe or alter the configuration of a topic or a broker."""
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
        from felice.config import parse_properties

        added.update(parse_properties(asked["add_config_file"].read_text()))
    removed = [key.strip() for key in asked["delete_config"].split(",")] if asked["delete_config"] else []
    if not added and not removed:
        raise click.UsageError(
            "At least one of --add-config, --add-config-file, or --delete-config must be specified"
        )
    alter_entity(admin, entity_type, name, added, removed)
    click.echo(f"Completed updating config for {entity_type.removesuffix('s')} {name}.")


def _entity(asked: dict[str, Any]) -> tuple[str, str]:
    """The kind and name of what is meant; an empty name is the default of all brokers."""
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


def _describe(rows: list[dict[str, Any]], entity_type: str, name: str, *, everything: bool) -> None:
    kind = entity_type.removesuffix("s")
    click.echo(f"{'All' if everything else 'Dynamic'} configs for {kind} {name or '<default>'} are:")
    for row in rows:
        if not everything and not row["source"].startswith("DYNAMIC"):
            continue
        synonyms = ", ".join(row["synonyms"])
        click.echo(
            f"  {row['name']}={row['value']} sensitive={str(row['sensitive']).lower()} synonyms={{{synonyms}}}"
        )


def main() -> None:
    run_tool(kafka_configs)
