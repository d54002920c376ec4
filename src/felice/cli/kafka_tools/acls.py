"""`kafka-acls`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import click

from felice.cli.acls import (
    Resources,
    Rules,
    add,
    filters_of,
    find,
    principal_options,
    remove,
    resource_name,
    resource_options,
    rules_of,
    selections_of,
)
from felice.cli.faults import Fault
from felice.cli.kafka_tools import bootstrap_server_option, chosen_action, kafka_tool
from felice.cli.options import admin_client, command_config_option

if TYPE_CHECKING:
    from felice.client.admin import AclBinding, AclBindingFilter, AdminClient

_NOT_WITH_ROLES = ("operations", "deny_principals", "deny_hosts")
_ALWAYS = frozenset((*Resources.__annotations__, "force"))
# Each action with the options that it takes.
_ACTIONS: Mapping[str, frozenset[str]] = {
    "list": _ALWAYS | {"principals"},
    "add": _ALWAYS | Rules.__annotations__.keys(),
    "remove": _ALWAYS | Rules.__annotations__.keys(),
}


class _Options(Rules):
    """The options of the tool besides those of the connection."""

    do_add: bool
    do_remove: bool
    do_list: bool
    principals: tuple[str, ...]
    force: bool


@kafka_tool("kafka-acls")
@bootstrap_server_option
@command_config_option
@click.option("--add", "do_add", is_flag=True, help="Add rules.")
@click.option("--remove", "do_remove", is_flag=True, help="Remove rules.")
@click.option("--list", "do_list", is_flag=True, help="List the rules of the named resources, or all rules.")
@resource_options
@principal_options
@click.option(
    "--principal",
    "principals",
    multiple=True,
    metavar="TYPE:NAME",
    help="With --list: of this principal only.",
)
@click.option(
    "--resource-pattern-type",
    "pattern",
    type=click.Choice(["any", "match", "literal", "prefixed"], case_sensitive=False),
    default="literal",
    show_default=True,
    help="How names are meant. With --list and --remove, match selects every rule that applies to the name.",
)
@click.option("--force", is_flag=True, help="Remove without asking.")
@click.option(
    "--bootstrap-controller",
    hidden=True,
    expose_value=False,
    is_eager=True,
    callback=lambda context, option, value: _refuse_controller(value),
)
def kafka_acls(bootstrap_server: str, command_config: Path | None, **asked: Unpack[_Options]) -> None:
    """Add, remove or list access rules.

    \b
    kafka-acls --bootstrap-server localhost:9092 --add --allow-principal User:bob --operation Read --topic flights
    kafka-acls --bootstrap-server localhost:9092 --list --topic flights --resource-pattern-type match
    kafka-acls --bootstrap-server localhost:9092 --remove --topic flights --force
    """
    action = chosen_action(_ACTIONS)
    _check_roles(asked)
    if action == "list":
        filters = selections_of(asked, asked["principals"])
        _list(admin_client(bootstrap_server, command_config), filters, asked["principals"])
    elif action == "add":
        rules = rules_of(asked)
        _add(admin_client(bootstrap_server, command_config), rules)
    else:
        filters = filters_of(asked)
        if asked["force"] or _is_confirmed(filters):
            remove(admin_client(bootstrap_server, command_config), filters)


def _refuse_controller(address: str | None) -> None:
    if address is not None:
        raise Fault(
            "--bootstrap-controller is for KRaft's controllers, which Felice does not have; use --bootstrap-server: "
            "any broker changes the rules"
        )


def _check_roles(asked: _Options) -> None:
    """Refuses what contradicts a role. (`felice acls` can also deny the operations of a role.)"""
    values: Mapping[str, object] = asked
    for role in ("producer", "consumer"):
        for name in _NOT_WITH_ROLES if values[role] else ():
            if values[name]:
                option = name.removesuffix("s").replace("_", "-")
                raise Fault(f"Option --{option} cannot be used with --{role}")
    if asked["producer"] and not asked["topics"]:
        raise Fault("With --producer you must specify a --topic")
    if asked["idempotent"] and not asked["producer"]:
        raise Fault("The --idempotent option is only available if --producer is set")


def _add(admin: AdminClient, rules: list[AclBinding]) -> None:
    from felice.client.admin import AclBindingFilter, AclOperation, AclPermissionType

    resources = dict.fromkeys((rule.restype, rule.name, rule.resource_pattern_type) for rule in rules)
    filters = [
        AclBindingFilter(*resource, None, None, AclOperation.ANY, AclPermissionType.ANY)
        for resource in resources
    ]
    existing = set(find(admin, filters))
    for rule in rules:
        if rule in existing:
            click.echo(f"Acl (pattern={_resource(rule)}, entry={_entry(rule)}) already exists.")
    new = [rule for rule in rules if rule not in existing]
    for resource, entries in _by_resource(new):
        click.echo(f"Adding ACLs for resource `{resource}`: \n {_lines(entries)}")
    if new:
        add(admin, new)


def _is_confirmed(filters: Sequence[AclBindingFilter]) -> bool:
    for resource, entries in _by_resource(filters):
        if entries == [None]:
            question = f"Are you sure you want to delete all ACLs for resource filter `{resource}`? (y/n)"
        else:
            question = f"Are you sure you want to remove ACLs: \n {_lines(entries)} from resource filter "
            question += f"`{resource}`? (y/n)"
        click.echo(question)
        if sys.stdin.readline().strip().lower() != "y":
            return False
    return True


def _list(admin: AdminClient, filters: Sequence[AclBindingFilter], principals: Sequence[str]) -> None:
    for principal in principals or (None,):
        if principal is not None:
            click.echo(f"ACLs for principal `{principal}`")
        rules = find(admin, [wanted for wanted in filters if wanted.principal == principal])
        for resource, entries in _by_resource(rules):
            click.echo(f"Current ACLs for resource `{resource}`:\n{_lines(entries)}")


def _by_resource(rules: Iterable[AclBinding]) -> list[tuple[str, list[str | None]]]:
    """The texts of the rules of each resource; None for a filter of all rules."""
    return [(resource, [_entry(rule) for rule in group]) for resource, group in groupby(rules, key=_resource)]


def _resource(rule: AclBinding) -> str:
    kind, pattern = resource_name(rule.restype.value), rule.resource_pattern_type.name
    return f"ResourcePattern(resourceType={kind}, name={rule.name}, patternType={pattern})"


def _entry(rule: AclBinding) -> str | None:
    if rule.principal is None:
        return None
    return (
        f"(principal={rule.principal}, host={rule.host}, operation={rule.operation.name}, "
        f"permissionType={rule.permission_type.name})"
    )


def _lines(entries: Iterable[str | None]) -> str:
    return "".join(f"\t{entry}\n" for entry in entries)
