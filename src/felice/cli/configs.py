"""Configuration of topics, brokers and groups: describe, set, unset."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import click

from felice.cli.command_group import CommandGroup
from felice.cli.faults import Fault
from felice.cli.options import admin_client, connection_options, json_option, key_values, wait_all
from felice.cli.output import show
from felice.cli.topics import warn_of_min_insync

if TYPE_CHECKING:
    from felice.client.admin import AdminClient, ConfigEntry

ENTITY_TYPES = {"topics": "TOPIC", "brokers": "BROKER", "groups": "GROUP"}
# Kafka's tool names these sources differently from confluent_kafka.
_SOURCE_NAMES = {"GROUP_CONFIG": "DYNAMIC_GROUP_CONFIG"}


def entity_name(entity_type: str, name: str | None, is_default: bool) -> str:
    """The entity's name in requests. The empty name means the defaults of all brokers."""
    if is_default:
        if name:
            raise Fault(f"give either a name or the default, not both: {name!r}")
        if entity_type != "brokers":
            raise Fault(f"only brokers have defaults to configure; name one of the {entity_type}")
        return ""
    if name is None or (not name and entity_type != "brokers"):
        raise Fault(f"name one of the {entity_type}{', or give --default' * (entity_type == 'brokers')}")
    return name


def in_words(entity_type: str, name: str) -> str:
    """`topic flights`, `broker 1`, or `the default of all brokers`."""
    return f"{entity_type.removesuffix('s')} {name}" if name else f"the default of all {entity_type}"


class OptionRow(TypedDict):
    """An option in force. `synonyms` has `SOURCE:name=value` in order of precedence."""

    name: str
    value: str | None
    source: str
    read_only: bool
    sensitive: bool
    synonyms: list[str]


def describe_entity(admin: AdminClient, entity_type: str, name: str) -> list[OptionRow]:
    """One row for each option, sorted by name. `synonyms` are in order of precedence."""
    from felice.client.admin import ConfigResource, ResourceType

    resource = ConfigResource(ResourceType[ENTITY_TYPES[entity_type]], name)
    entries = wait_all(admin.describe_configs([resource]))[resource]
    return [
        {
            "name": entry.name,
            "value": entry.value,
            "source": _source(entry),
            "read_only": entry.is_read_only,
            "sensitive": entry.is_sensitive,
            "synonyms": [
                f"{_source(synonym)}:{synonym.name}={synonym.value}" for synonym in entry.all_synonyms
            ],
        }
        for entry in sorted(entries.values(), key=lambda entry: str(entry.name))
    ]


def _source(entry: ConfigEntry) -> str:
    from felice.client.admin import ConfigSource

    name = ConfigSource(entry.source).name
    return _SOURCE_NAMES.get(name, name)


def alter_entity(
    admin: AdminClient, entity_type: str, name: str, add: Mapping[str, str], remove: Iterable[str]
) -> None:
    """Changes options. Warns if `min.insync.replicas` is higher than the number of replicas."""
    from felice.client.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    changes = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in add.items()
    ]
    changes += [ConfigEntry(key, None, incremental_operation=AlterConfigOpType.DELETE) for key in remove]
    resource = ConfigResource(ResourceType[ENTITY_TYPES[entity_type]], name, incremental_configs=changes)
    wait_all(admin.incremental_alter_configs([resource]))
    if entity_type == "topics":
        warn_of_min_insync(admin, name, add)


def parse_added(text: str) -> dict[str, str]:
    """`k1=v1,k2=[a,b],k3=v3`: brackets protect the commas of a list, as in Kafka's tool."""
    parts, depth, start = [], 0, 0
    for position, character in enumerate(text):
        depth += (character == "[") - (character == "]")
        if character == "," and depth == 0:
            parts.append(text[start:position])
            start = position + 1
    parts.append(text[start:])
    return {key: value.removeprefix("[").removesuffix("]") for key, value in key_values(parts).items()}


default_option = click.option(
    "--default", "is_default", is_flag=True, help="The defaults of all brokers, instead of one broker."
)
entity_type_argument = click.argument("entity_type", type=click.Choice(list(ENTITY_TYPES)))


@click.group(cls=CommandGroup)
def configs() -> None:
    """Show and change the configuration of topics, brokers and groups.

    \b
    felice configs describe topics flights
    felice configs alter topics flights --set retention.ms=60000 --unset segment.bytes
    felice configs alter groups billing --set consumer.session.timeout.ms=60000
    """


@configs.command("describe")
@entity_type_argument
@click.argument("name", required=False)
@default_option
@connection_options
@click.option("--all", "everything", is_flag=True, help="Include options at their defaults.")
@json_option
def describe_command(
    entity_type: str,
    name: str | None,
    is_default: bool,
    bootstrap: str,
    command_config: Path | None,
    everything: bool,
    as_json: bool,
) -> None:
    """Show the options of a topic, broker or group that are set; with --all every option.

    \b
    felice configs describe topics flights
    felice configs describe brokers 1 --all
    felice configs describe brokers --default
    """
    chosen = entity_name(entity_type, name, is_default)
    rows = describe_entity(admin_client(bootstrap, command_config), entity_type, chosen)
    if not everything:
        rows = [row for row in rows if row["source"] != "DEFAULT_CONFIG"]
    brief = [{"name": row["name"], "value": row["value"], "source": row["source"]} for row in rows]
    show(rows if as_json else brief, as_json, empty=_nothing_set(entity_type, chosen))


def _nothing_set(entity_type: str, name: str) -> str:
    if not name:
        return f"No option has a default of its own for all {entity_type}."
    return f"Every option of {name} has its default; --all shows them."


@configs.command("alter")
@entity_type_argument
@click.argument("name", required=False)
@default_option
@connection_options
@click.option("--set", "added", multiple=True, metavar="KEY=VALUE", help="Set an option; may be repeated.")
@click.option(
    "--unset",
    "removed",
    multiple=True,
    metavar="KEY",
    help="Reset an option to its default; may be repeated.",
)
def alter_command(
    entity_type: str,
    name: str | None,
    is_default: bool,
    bootstrap: str,
    command_config: Path | None,
    added: tuple[str, ...],
    removed: tuple[str, ...],
) -> None:
    """Change options; they take effect at once.

    \b
    felice configs alter topics flights --set retention.ms=60000
    felice configs alter brokers --default --set log.retention.hours=24
    """
    if not added and not removed:
        raise Fault("nothing to change: give --set KEY=VALUE or --unset KEY")
    chosen = entity_name(entity_type, name, is_default)
    alter_entity(admin_client(bootstrap, command_config), entity_type, chosen, key_values(added), removed)
    click.echo(f"Completed updating config for {in_words(entity_type, chosen)}.")
