"""Quotas of users, client ids and addresses: what they are, and changes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, TypeVar, Unpack

import click

from felice.cli.command_group import CommandGroup
from felice.cli.faults import Fault
from felice.cli.options import admin_client, connection_options, json_option, key_values, wait_all
from felice.cli.output import show

if TYPE_CHECKING:
    from felice.client.admin import AdminClient, ClientQuotaEntity

F = TypeVar("F", bound=Callable[..., object])

_CLIENT_KEYS = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
)
_ADDRESS_KEYS = ("connection_creation_rate",)
KEYS = (*_CLIENT_KEYS, *_ADDRESS_KEYS)
_WORDS = {"user": "user", "client-id": "client id", "ip": "address"}


class EntityOptions(TypedDict):
    """The options that name an entity."""

    user: str | None
    client_id: str | None
    ip: str | None
    user_default: bool
    client_default: bool
    ip_default: bool


def entity_options(command: F) -> F:
    """Adds the options that name an entity."""
    options = (
        click.option("--user", help="A user."),
        click.option("--client-id", help="A client id; with --user, of this user."),
        click.option("--ip", metavar="ADDRESS", help="An address."),
        click.option("--user-default", is_flag=True, help="Each user without quotas of its own."),
        click.option("--client-default", is_flag=True, help="Each client id without quotas of its own."),
        click.option("--ip-default", is_flag=True, help="Each address without a quota of its own."),
    )
    return reduce(lambda wrapped, add: add(wrapped), reversed(options), command)


def named(asked: EntityOptions) -> dict[str, str | None]:
    """The entity's names by type; None is the default. Raises `Fault` if a name and the default are both given."""
    found: dict[str, str | None] = {}
    for kind, name, is_default in (
        ("user", asked["user"], asked["user_default"]),
        ("client-id", asked["client_id"], asked["client_default"]),
        ("ip", asked["ip"], asked["ip_default"]),
    ):
        if name is not None and is_default:
            raise Fault(f"give either a name or the default of the {_WORDS[kind]}, not both")
        if name == "":
            raise Fault(f"the {_WORDS[kind]} must not be empty; the default has an option of its own")
        if name is not None or is_default:
            found[kind] = name
    return found


def in_words(names: Mapping[str, str | None]) -> str:
    """Such as `user alice, client id app`, or `each other user`."""
    return ", ".join(
        f"each other {word}" if names[kind] is None else f"{word} {names[kind]}"
        for kind, word in _WORDS.items()
        if kind in names
    )


def quotas_of(
    admin: AdminClient, names: Mapping[str, str | None], any_name: Iterable[str] = (), *, strict: bool = False
) -> dict[ClientQuotaEntity, dict[str, float]]:
    """The quotas that match, in the order of the entities."""
    from felice.client.admin import ClientQuotaFilter

    wanted = ClientQuotaFilter(tuple(names.items()), tuple(any_name), strict)
    found = admin.describe_client_quotas(wanted).result()
    return dict(
        sorted(found.items(), key=lambda item: [(kind, name or "") for kind, name in item[0].entries])
    )


def alter_quotas(
    admin: AdminClient, names: Mapping[str, str | None], added: Mapping[str, str], removed: Iterable[str]
) -> None:
    """Sets and removes quotas of one entity. Raises `Fault` for a value that is no number, and for a removed quota that
    is not set."""
    from felice.client.admin import ClientQuotaAlteration, ClientQuotaEntity

    entity, removed = ClientQuotaEntity.of(names), list(removed)
    if removed:
        there = quotas_of(admin, names, strict=True).get(entity, {})
        if unset := [key for key in removed if key not in there]:
            raise Fault(f"Invalid config(s): {', '.join(unset)}; {in_words(names)} has no such quota")

    changes: dict[str, float | None] = {key: _number(key, text) for key, text in added.items()}
    changes.update(dict.fromkeys(removed))
    wait_all(admin.alter_client_quotas([ClientQuotaAlteration(entity, changes)]))


def _check_keys(names: Mapping[str, str | None], keys: Iterable[str]) -> None:
    """Raises `Fault` for a key that the entity cannot have."""
    valid = _ADDRESS_KEYS if "ip" in names else _CLIENT_KEYS
    for key in keys:
        if key not in valid:
            raise Fault(f"{in_words(names)} cannot have a quota {key!r}; valid keys: {', '.join(valid)}")


def _number(key: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise Fault(f"{key} must be a number, not {text!r}") from None


@click.group(cls=CommandGroup)
def quotas() -> None:
    """Show and change the quotas of users, client ids and addresses.

    \b
    felice quotas alter --user alice --set producer_byte_rate=1048576
    felice quotas describe
    """


@quotas.command("describe")
@entity_options
@json_option
@connection_options
def describe_command(
    as_json: bool, bootstrap: str, command_config: Path | None, **asked: Unpack[EntityOptions]
) -> None:
    """Show quotas: all of them, or those of one user, client id or address.

    \b
    felice quotas describe
    felice quotas describe --user alice --json
    felice quotas describe --client-default
    """
    found = quotas_of(admin_client(bootstrap, command_config), named(asked))
    rows = [
        {"entity": entity.names if as_json else in_words(entity.names), "quota": key, "value": value}
        for entity, values in found.items()
        for key, value in sorted(values.items())
    ]
    show(rows, as_json, empty="There are no quotas.")


@quotas.command("alter")
@entity_options
@click.option("--set", "added", multiple=True, metavar="KEY=VALUE", help="Set a quota; may be repeated.")
@click.option("--unset", "removed", multiple=True, metavar="KEY", help="Remove a quota; may be repeated.")
@connection_options
def alter_command(
    added: tuple[str, ...],
    removed: tuple[str, ...],
    bootstrap: str,
    command_config: Path | None,
    **asked: Unpack[EntityOptions],
) -> None:
    """Change the quotas of one user, client id or address; they apply at once.

    \b
    felice quotas alter --user alice --set producer_byte_rate=1048576
    felice quotas alter --user alice --client-id app --set request_percentage=50
    felice quotas alter --client-default --unset consumer_byte_rate
    felice quotas alter --ip 10.0.0.7 --set connection_creation_rate=20

    Keys: producer_byte_rate, consumer_byte_rate (bytes per second), request_percentage (of
    the event loop), controller_mutation_rate (partitions per second), and for addresses
    connection_creation_rate (connections per second). Each broker applies them by itself.
    """
    names = named(asked)
    if not names:
        raise Fault("name a user, a client id or an address, or one of their defaults")
    if not added and not removed:
        raise Fault("say what to change: --set KEY=VALUE or --unset KEY")
    values = key_values(added)
    _check_keys(names, (*values, *removed))
    alter_quotas(admin_client(bootstrap, command_config), names, values, removed)
    click.echo(f"Changed the quotas of {in_words(names)}.")
