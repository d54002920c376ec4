"""`kafka-configs`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from felice.cli.configs import ENTITY_TYPES, OptionRow, alter_entity, describe_entity, parse_added
from felice.cli.faults import Fault
from felice.cli.groups import list_groups
from felice.cli.kafka_tools import bootstrap_server_option, chosen_action, kafka_tool
from felice.cli.options import admin_client, command_config_option, read_properties
from felice.cli.quotas import alter_quotas, quotas_of
from felice.cli.scram_credentials import alter_credentials, credentials_of, is_credential
from felice.cli.topics import list_topics

if TYPE_CHECKING:
    from felice.client.admin import AdminClient


_QUOTA_TYPES = {"users": "user", "clients": "client-id", "ips": "ip"}
_PRINCIPALS = {"user": "user-principal", "client-id": "client-id", "ip": "ip"}
# No name of an entity: what --entity-default stands for among the names.
_DEFAULT = "\0"


# Each action with the options that it takes.
_SHORT = ("topic", "broker", "group", "user", "client", "ip")
_DEFAULTS = ("broker_defaults", "user_defaults", "client_defaults", "ip_defaults")
_ENTITIES = frozenset(("entity_type", "entity_names", *_SHORT, *_DEFAULTS))
_ACTIONS: Mapping[str, frozenset[str]] = {
    "describe": _ENTITIES | {"everything"},
    "alter": _ENTITIES | {"add_config", "add_config_file", "delete_config"},
}
_SOURCES = {
    "topics": "DYNAMIC_TOPIC_CONFIG",
    "brokers": "DYNAMIC_BROKER_CONFIG",
    "groups": "DYNAMIC_GROUP_CONFIG",
}


class _Options(TypedDict):
    """The options of the tool besides those of the connection."""

    describe: bool
    alter: bool
    everything: bool
    entity_type: tuple[str, ...]
    entity_names: tuple[str, ...]
    topic: str | None
    broker: str | None
    group: str | None
    user: str | None
    client: str | None
    ip: str | None
    broker_defaults: bool
    user_defaults: bool
    client_defaults: bool
    ip_defaults: bool
    add_config: str | None
    add_config_file: Path | None
    delete_config: str | None


@kafka_tool("kafka-configs")
@bootstrap_server_option
@command_config_option
@click.option("--describe", is_flag=True, help="List the configuration of one entity.")
@click.option("--alter", is_flag=True, help="Change the configuration of one entity.")
@click.option("--all", "everything", is_flag=True, help="With --describe: include options at their defaults.")
@click.option(
    "--entity-type",
    type=click.Choice([*ENTITY_TYPES, *_QUOTA_TYPES]),
    multiple=True,
    help="Kind of entity; users and clients may be named together.",
)
# Names and defaults belong to the types in the order in which they are given.
@click.option("--entity-name", "entity_names", multiple=True, help="Name of the entity.")
@click.option(
    "--entity-default", "entity_names", flag_value=_DEFAULT, multiple=True, help="The default of the type."
)
@click.option("--topic", help="Short for --entity-type topics --entity-name.")
@click.option("--broker", help="Short for --entity-type brokers --entity-name.")
@click.option("--group", help="Short for --entity-type groups --entity-name.")
@click.option("--user", help="Short for --entity-type users --entity-name.")
@click.option("--client", help="Short for --entity-type clients --entity-name.")
@click.option("--ip", help="Short for --entity-type ips --entity-name.")
@click.option("--broker-defaults", is_flag=True, help="Short for --entity-type brokers --entity-default.")
@click.option("--user-defaults", is_flag=True, help="Short for --entity-type users --entity-default.")
@click.option("--client-defaults", is_flag=True, help="Short for --entity-type clients --entity-default.")
@click.option("--ip-defaults", is_flag=True, help="Short for --entity-type ips --entity-default.")
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
    """Describe or alter the configuration of a topic, a broker or a group, quotas, or SCRAM credentials of users.

    \b
    kafka-configs --bootstrap-server localhost:9092 --describe --topic flights
    kafka-configs --bootstrap-server localhost:9092 --alter --topic flights --add-config retention.ms=60000
    kafka-configs --bootstrap-server localhost:9092 --alter --entity-type brokers --entity-default \\
        --add-config log.retention.hours=24
    kafka-configs --bootstrap-server localhost:9092 --alter --entity-type users --entity-name alice \\
        --add-config producer_byte_rate=1048576
    kafka-configs --bootstrap-server localhost:9092 --alter --entity-type users --entity-name alice \\
        --add-config 'SCRAM-SHA-512=[iterations=8192,password=alices-password]'
    """
    chosen_action(_ACTIONS)
    entities = _entities(asked)
    if len(entities) > 1 and entities.keys() != {"users", "clients"}:
        raise Fault("Only 'users' and 'clients' entity types may be specified together")
    if asked["alter"] and None in entities.values():
        raise Fault("--entity-name or --entity-default must be specified with --alter")
    _check_broker(entities.get("brokers"))
    changes = _changes(asked) if asked["alter"] else None
    admin = admin_client(bootstrap_server, command_config)
    if entities.keys() <= _QUOTA_TYPES.keys():
        _quotas(admin, entities, changes)
        return
    ((entity_type, chosen),) = entities.items()
    if chosen == _DEFAULT and entity_type != "brokers":
        raise Fault(f"--entity-default is not for {entity_type}, whose name must not be empty")
    if changes is None:
        names = _names_of(admin, entity_type) if chosen is None else [_plain(chosen)]
        if entity_type == "groups" and chosen is not None and chosen not in _names_of(admin, "groups"):
            click.echo(f"The group '{chosen}' doesn't exist and doesn't have dynamic config.")
            return
        for name in names:
            rows = describe_entity(admin, entity_type, name)
            _describe(rows, entity_type, name, everything=asked["everything"])
        return
    assert chosen is not None, "checked before the client was made"
    name = _plain(chosen)
    alter_entity(admin, entity_type, name, *changes)
    click.echo(_completed(entity_type, name))


def _check_broker(chosen: str | None) -> None:
    if chosen not in (None, "", _DEFAULT) and not chosen.isdecimal():
        raise Fault(f"The entity name for brokers must be a valid integer broker id, but it is: {chosen}")


def _plain(name: str) -> str:
    """The name in requests, where an empty one stands for the default."""
    return "" if name == _DEFAULT else name


def _names_of(admin: AdminClient, entity_type: str) -> list[str]:
    """All topics; all groups that exist or have options; or all brokers, and their default at the end."""
    if entity_type == "topics":
        return list_topics(admin)
    if entity_type == "groups":
        from felice.client.admin import ResourceType

        configured = admin.list_config_resources(ResourceType.GROUP).result()
        return sorted({*(row["group"] for row in list_groups(admin)), *configured})
    brokers = sorted(node.id for node in admin.describe_cluster().result().nodes)
    return [*map(str, brokers), ""]


def _entities(asked: _Options) -> dict[str, str | None]:
    """The name of each type of entity: `_DEFAULT`, or None where no name is given."""
    found: dict[str, str | None] = dict.fromkeys(asked["entity_type"])
    if len(found) < len(asked["entity_type"]):
        raise Fault(f"Duplicate entity type(s) specified: {', '.join(asked['entity_type'])}")
    found.update(zip(asked["entity_type"], asked["entity_names"], strict=False))
    if len(asked["entity_names"]) > len(asked["entity_type"]):
        raise Fault("There are more names than --entity-type")
    shorts: dict[str, tuple[str | None, bool]] = {
        "topics": (asked["topic"], False),
        "brokers": (asked["broker"], asked["broker_defaults"]),
        "groups": (asked["group"], False),
        "users": (asked["user"], asked["user_defaults"]),
        "clients": (asked["client"], asked["client_defaults"]),
        "ips": (asked["ip"], asked["ip_defaults"]),
    }
    for kind, (name, default) in shorts.items():
        if name is not None and default:
            raise Fault(f"give either a name or the default of {kind}, not both")
        if (name is not None or default) and kind in found:
            raise Fault(f"{kind} are named twice: by an option of their own and by --entity-type")
        if name is not None or default:
            found[kind] = _DEFAULT if default else name
    # As in Kafka's tool, an empty name is the default.
    found = {kind: _DEFAULT if name == "" else name for kind, name in found.items()}
    if not found:
        raise Fault(
            "At least one of --entity-type, --topic, --broker, --group, --user, --client, --ip must be specified"
        )
    return found


def _changes(asked: _Options) -> tuple[dict[str, str], list[str]]:
    """What to set and what to reset."""
    if asked["add_config"] is not None and asked["add_config_file"] is not None:
        raise Fault("Only one of --add-config or --add-config-file must be specified")
    added = parse_added(asked["add_config"]) if asked["add_config"] else {}
    if asked["add_config_file"]:
        added.update(read_properties(asked["add_config_file"]))
    removed = [key.strip() for key in asked["delete_config"].split(",")] if asked["delete_config"] else []
    if not added and not removed:
        raise Fault("At least one of --add-config, --add-config-file, or --delete-config must be specified")
    return added, removed


def _quotas(
    admin: AdminClient,
    entities: Mapping[str, str | None],
    changes: tuple[dict[str, str], list[str]] | None,
) -> None:
    """Describes or alters quotas, with the words of Kafka's tool."""
    names = {_QUOTA_TYPES[kind]: _quota_name(name) for kind, name in entities.items() if name is not None}
    if changes is None:
        any_name = [_QUOTA_TYPES[kind] for kind, name in entities.items() if name is None]
        for entity, values in quotas_of(admin, names, any_name, strict=True).items():
            click.echo(f"Quota configs for {_principals(entity.names)} are {_pairs(values)}")
        if entities.keys() == {"users"} and entities["users"] != _DEFAULT:
            _describe_credentials(admin, entities["users"])
        return
    added, removed = changes
    if any(is_credential(key) for key in (*added, *removed)):
        _alter_credentials(admin, entities, added, removed)
        return
    alter_quotas(admin, names, added, removed)
    kind, name = next(iter(entities.items()))
    click.echo(_completed(kind, "" if name == _DEFAULT else name or ""))


def _describe_credentials(admin: AdminClient, user: str | None) -> None:
    for name, credentials in credentials_of(admin, user).items():
        pairs = ", ".join(f"{mechanism}=iterations={count}" for mechanism, count in credentials.items())
        click.echo(f"SCRAM credential configs for user-principal '{name}' are {pairs}")


def _alter_credentials(
    admin: AdminClient, entities: Mapping[str, str | None], added: Mapping[str, str], removed: list[str]
) -> None:
    user = entities.get("users")
    if len(entities) > 1 or user is None or user == _DEFAULT:
        raise Fault("SCRAM credentials belong to one user: give --entity-type users --entity-name")
    if not all(is_credential(key) for key in (*added, *removed)):
        raise Fault("SCRAM credentials and quotas cannot be changed with one command")
    alter_credentials(admin, user, added, removed)
    click.echo(_completed("users", user))


def _quota_name(name: str) -> str | None:
    return None if name == _DEFAULT else name


def _principals(names: Mapping[str, str | None]) -> str:
    return ", ".join(
        f"the default {word}" if names[kind] is None else f"{word} '{names[kind]}'"
        for kind, word in _PRINCIPALS.items()
        if kind in names
    )


def _pairs(values: Mapping[str, float]) -> str:
    return ", ".join(f"{key}={value}" for key, value in values.items())


def _completed(entity_type: str, name: str) -> str:
    if not name:
        return f"Completed updating default config for {entity_type} in the cluster."
    return f"Completed updating config for {entity_type.removesuffix('s')} {name}."


def _describe(rows: list[OptionRow], entity_type: str, name: str, *, everything: bool) -> None:
    # A broker's own values: those for all brokers are shown with the default.
    source = _SOURCES[entity_type] if name else "DYNAMIC_DEFAULT_BROKER_CONFIG"
    if name:
        extent = "All" if everything else "Dynamic"
        click.echo(f"{extent} configs for {entity_type.removesuffix('s')} {name} are:")
    else:
        click.echo(f"Default configs for {entity_type} in the cluster are:")
    for row in rows:
        if not everything and row["source"] != source:
            continue
        synonyms = ", ".join(row["synonyms"])
        click.echo(
            f"  {row['name']}={row['value']} sensitive={str(row['sensitive']).lower()} synonyms={{{synonyms}}}"
        )
