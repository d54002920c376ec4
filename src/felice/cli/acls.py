"""Access rules (ACLs): list, add and remove them. `kafka-acls` has the same functions under Kafka's options."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypedDict, TypeVar, Unpack

import click

from felice.cli.command_group import CommandGroup
from felice.cli.faults import Fault
from felice.cli.options import admin_client, connection_options, json_option, wait_all
from felice.cli.output import show
from felice.security.principal import USER

if TYPE_CHECKING:
    from felice.client.admin import (
        AclBinding,
        AclBindingFilter,
        AclOperation,
        AclPermissionType,
        AdminClient,
        ResourceType,
    )

_Resource: TypeAlias = "tuple[ResourceType, str]"
_Operations: TypeAlias = "dict[_Resource, list[AclOperation]]"
_Entry: TypeAlias = "tuple[str | None, str | None, AclOperation, AclPermissionType]"
F = TypeVar("F", bound=Callable[..., object])

CLUSTER_NAME = "kafka-cluster"
_ANYWHERE = "*"

# The option of each kind of resource, and the name of its resource type.
_RESOURCE_OPTIONS = (
    ("topics", "--topic", "TOPIC", "Topic; * is every topic. May be repeated."),
    ("groups", "--group", "GROUP", "Consumer group; * is every group. May be repeated."),
    ("transactional_ids", "--transactional-id", "TRANSACTIONAL_ID", "Transactional id. May be repeated."),
    ("delegation_tokens", "--delegation-token", "DELEGATION_TOKEN", "Delegation token. May be repeated."),
    ("user_principals", "--user-principal", "USER", "User whose tokens are meant. May be repeated."),
)


class Resources(TypedDict):
    """The resources that a command names, and how their names are meant."""

    topics: tuple[str, ...]
    groups: tuple[str, ...]
    transactional_ids: tuple[str, ...]
    delegation_tokens: tuple[str, ...]
    user_principals: tuple[str, ...]
    cluster: bool
    pattern: str


class Principals(TypedDict):
    """The principals and hosts that are allowed or denied."""

    allow_principals: tuple[str, ...]
    deny_principals: tuple[str, ...]
    allow_hosts: tuple[str, ...]
    deny_hosts: tuple[str, ...]


class Rules(Resources, Principals):
    """Everything that describes rules: `producer` and `consumer` stand for the operations of these roles."""

    operations: tuple[str, ...]
    producer: bool
    consumer: bool
    idempotent: bool


class AclRow(TypedDict):
    """One access rule."""

    resource: str
    name: str
    pattern: str
    principal: str
    host: str
    operation: str
    permission: str


def resource_options(command: F) -> F:
    """Adds the options that name resources."""
    adders = [
        click.option(option, attribute, multiple=True, metavar="NAME", help=text)
        for attribute, option, _, text in _RESOURCE_OPTIONS
    ]
    adders.append(click.option("--cluster", is_flag=True, help="The cluster itself."))
    return functools.reduce(lambda wrapped, add: add(wrapped), reversed(adders), command)


def principal_options(command: F) -> F:
    """Adds the options that name principals, hosts and operations."""
    adders = [
        click.option(
            "--allow-principal",
            "allow_principals",
            multiple=True,
            metavar="TYPE:NAME",
            help="Principal to allow, such as User:alice; User:* is everyone. May be repeated.",
        ),
        click.option(
            "--deny-principal",
            "deny_principals",
            multiple=True,
            metavar="TYPE:NAME",
            help="Principal to deny, even if other rules allow it. May be repeated.",
        ),
        click.option(
            "--allow-host",
            "allow_hosts",
            multiple=True,
            metavar="ADDRESS",
            help="IP address of the allowed principals; every address by default. May be repeated.",
        ),
        click.option(
            "--deny-host",
            "deny_hosts",
            multiple=True,
            metavar="ADDRESS",
            help="IP address of the denied principals; every address by default. May be repeated.",
        ),
        click.option(
            "--operation",
            "operations",
            multiple=True,
            metavar="NAME",
            help="Operation, such as Read or DescribeConfigs; All by default. May be repeated.",
        ),
        click.option("--producer", is_flag=True, help="The rules of a producer: Write, Describe, Create."),
        click.option(
            "--consumer", is_flag=True, help="The rules of a consumer: Read, Describe; Read of the group."
        ),
        click.option(
            "--idempotent", is_flag=True, help="With --producer: IdempotentWrite of the cluster too."
        ),
    ]
    return functools.reduce(lambda wrapped, add: add(wrapped), reversed(adders), command)


# What the options mean


def rules_of(asked: Rules) -> list[AclBinding]:
    """The rules to add. Raises `Fault` where the options do not describe rules."""
    from felice.client.admin import AclBinding, ResourcePatternType

    if asked["pattern"].upper() in ("ANY", "MATCH"):
        raise Fault(
            f"A '--resource-pattern-type' value of '{asked['pattern']}' is not valid when adding acls."
        )
    for principal in (*asked["allow_principals"], *asked["deny_principals"]):
        _check_can_match(principal)
    rules = [
        AclBinding(kind, name, ResourcePatternType[asked["pattern"].upper()], *entry)
        for (kind, name), entries in _entries_by_resource(asked).items()
        for entry in entries
    ]
    if not rules:
        raise Fault("You must specify one of: --allow-principal, --deny-principal when trying to add ACLs.")
    return list(dict.fromkeys(rules))


def filters_of(asked: Rules) -> list[AclBindingFilter]:
    """The filters of the rules to remove: of all rules of a resource if no principal is named."""
    from felice.client.admin import (
        AclBindingFilter,
        AclOperation,
        AclPermissionType,
        ResourcePatternType,
    )

    pattern = ResourcePatternType[asked["pattern"].upper()]
    found = []
    for (kind, name), entries in _entries_by_resource(asked).items():
        # No entry: every rule of the resource.
        for principal, host, operation, permission in entries or [
            (None, None, AclOperation.ANY, AclPermissionType.ANY)
        ]:
            found.append(AclBindingFilter(kind, name, pattern, principal, host, operation, permission))
    return list(dict.fromkeys(found))


def selections_of(asked: Resources, principals: Sequence[str] = ()) -> list[AclBindingFilter]:
    """The filters of the rules to list, for each principal: everything if no resource is named."""
    from felice.client.admin import (
        AclBindingFilter,
        AclOperation,
        AclPermissionType,
        ResourcePatternType,
        ResourceType,
    )

    pattern = ResourcePatternType[asked["pattern"].upper()]
    everything = AclOperation.ANY, AclPermissionType.ANY
    resources: list[tuple[ResourceType, str | None, ResourcePatternType]] = [
        (kind, name, pattern) for kind, name in _named(asked)
    ]
    if not resources:
        resources = [(ResourceType.ANY, None, ResourcePatternType.ANY)]
    return [
        AclBindingFilter(kind, name, pattern_type, principal, None, *everything)
        for principal in principals or (None,)
        for kind, name, pattern_type in resources
    ]


def _entries_by_resource(asked: Rules) -> dict[_Resource, list[_Entry]]:
    """Principal, host, operation and permission of each rule, by resource."""
    resources = _named(asked)
    if not resources:
        options = ", ".join(["--cluster", *(option for _, option, _, _ in _RESOURCE_OPTIONS)])
        raise Fault(f"You must specify at least one resource: {options}")
    operations = _operations_by_resource(asked, resources)
    return {
        resource: [
            (principal, host, operation, permission)
            for operation in chosen
            for principal, host, permission in _who(asked)
        ]
        for resource, chosen in operations.items()
    }


def _named(asked: Resources) -> list[_Resource]:
    from felice.client.admin import ResourceType

    values: Mapping[str, object] = asked
    found: list[tuple[ResourceType, str]] = []
    for attribute, _, kind, _ in _RESOURCE_OPTIONS:
        names = values[attribute]
        assert isinstance(names, tuple)
        found += [(ResourceType[kind], name) for name in names]
    if asked["cluster"]:
        found.append((ResourceType.BROKER, CLUSTER_NAME))
    return found


def _operations_by_resource(asked: Rules, resources: Sequence[_Resource]) -> _Operations:
    from felice.client.admin import AclOperation

    if asked["producer"] or asked["consumer"]:
        return _operations_of_roles(asked, resources)
    chosen = [_operation(name) for name in asked["operations"]] or [AclOperation.ALL]
    for kind, _ in resources:
        _check_supported(kind, chosen)
    return dict.fromkeys(resources, chosen)


def _operations_of_roles(asked: Rules, resources: Sequence[_Resource]) -> _Operations:
    from felice.client.admin import AclOperation, ResourceType

    _check_roles(asked)
    found: _Operations = {}

    def add(kind: ResourceType, *operations: AclOperation) -> None:
        for resource in resources:
            if resource[0] is kind:
                found.setdefault(resource, []).extend(
                    operation for operation in operations if operation not in found.get(resource, ())
                )

    if asked["producer"]:
        add(ResourceType.TOPIC, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.CREATE)
        add(ResourceType.TRANSACTIONAL_ID, AclOperation.WRITE, AclOperation.DESCRIBE)
        if asked["idempotent"]:
            found[ResourceType.BROKER, CLUSTER_NAME] = [AclOperation.IDEMPOTENT_WRITE]
    if asked["consumer"]:
        add(ResourceType.TOPIC, AclOperation.READ, AclOperation.DESCRIBE)
        add(ResourceType.GROUP, AclOperation.READ)
    return found


def _check_roles(asked: Rules) -> None:
    if asked["operations"]:
        role = "producer" if asked["producer"] else "consumer"
        raise Fault(f'Option "[{role}]" can\'t be used with option "[operation]"')
    if asked["producer"] and not asked["topics"]:
        raise Fault("With --producer you must specify a --topic")
    if asked["idempotent"] and not asked["producer"]:
        raise Fault("The --idempotent option is only available if --producer is set")
    lacks_target = not (asked["topics"] and asked["groups"])
    is_mixed = not asked["producer"] and (asked["cluster"] or asked["transactional_ids"])
    if asked["consumer"] and (lacks_target or is_mixed):
        raise Fault(
            "With --consumer you must specify a --topic and a --group and no --cluster or --transactional-id option "
            "should be specified."
        )


def _operation(name: str) -> AclOperation:
    from felice.client.admin import AclOperation

    wanted = name.replace("_", "").replace("-", "").lower()
    for operation in AclOperation:
        if operation.name.replace("_", "").lower() == wanted and operation.value > AclOperation.ANY.value:
            return operation
    names = ", ".join(operation_text(one.value) for one in AclOperation if one.value > AclOperation.ANY.value)
    raise Fault(f"there is no operation {name}; there are {names}")


def operation_text(number: int) -> str:
    """The name of an operation as options take it, such as `DescribeConfigs`."""
    from felice.security.acl import Operation

    return Operation(number).text


def _check_supported(kind: ResourceType, operations: Iterable[AclOperation]) -> None:
    from felice.security import acl

    known = acl.ResourceType(kind.value)
    supported = (*acl.SUPPORTED_OPERATIONS[known], acl.Operation.ALL)
    if any(operation.value not in supported for operation in operations):
        names = ", ".join(operation.text for operation in sorted(supported))
        raise Fault(f"ResourceType {known.name} only supports operations {names}")


def _check_can_match(principal: str) -> None:
    """Refuses `user:alice`. Kafka stores such a rule, but compares it exactly with `User:alice`: it never applies."""
    kind, colon, name = principal.partition(":")
    if kind != USER and kind.casefold() == USER.casefold():
        raise Fault(f"a rule for {principal} would never apply; did you mean {USER}{colon}{name}?")


def _who(asked: Principals) -> list[tuple[str, str, AclPermissionType]]:
    """Principal, host and permission of every rule for one operation."""
    from felice.client.admin import AclPermissionType

    for allowed, hosts in (("allow", asked["allow_hosts"]), ("deny", asked["deny_hosts"])):
        principals = asked["allow_principals"] if allowed == "allow" else asked["deny_principals"]
        if hosts and not principals:
            raise Fault(f"--{allowed}-host needs --{allowed}-principal")
    for principal in (*asked["allow_principals"], *asked["deny_principals"]):
        kind, colon, name = principal.partition(":")
        if not (kind and colon and name):
            raise Fault(f"expected a string in format principalType:principalName but got {principal}")
    return [
        (principal, host, permission)
        for permission, principals, hosts in (
            (AclPermissionType.ALLOW, asked["allow_principals"], asked["allow_hosts"]),
            (AclPermissionType.DENY, asked["deny_principals"], asked["deny_hosts"]),
        )
        for principal in principals
        for host in hosts or (_ANYWHERE,)
    ]


# Requests


def find(admin: AdminClient, filters: Iterable[AclBindingFilter]) -> list[AclBinding]:
    """The rules that any of the filters selects, each once, in the order of their resources."""
    found: dict[AclBinding, None] = {}
    for wanted in filters:
        found.update(dict.fromkeys(admin.describe_acls(wanted).result()))
    return sorted(found, key=_sort_key)


def add(admin: AdminClient, rules: list[AclBinding]) -> None:
    """Creates rules. Raises the first error."""
    wait_all(admin.create_acls(rules))


def remove(admin: AdminClient, filters: list[AclBindingFilter]) -> list[AclBinding]:
    """Deletes the rules that the filters select, and returns them."""
    found: dict[AclBinding, None] = {}
    for rules in wait_all(admin.delete_acls(filters)).values():
        found.update(dict.fromkeys(rules))
    return sorted(found, key=_sort_key)


def _sort_key(rule: AclBinding) -> tuple[object, ...]:
    return (
        rule.restype,
        rule.name,
        rule.resource_pattern_type,
        rule.principal,
        rule.host,
        rule.operation,
        rule.permission_type,
    )


def resource_name(kind: int) -> str:
    """The name of a resource type. (confluent_kafka calls the cluster a broker.)"""
    from felice.security.acl import ResourceType

    return ResourceType(kind).name


def _row(rule: AclBinding) -> AclRow:
    return {
        "resource": resource_name(rule.restype.value),
        "name": rule.name or "",
        "pattern": rule.resource_pattern_type.name,
        "principal": rule.principal or "",
        "host": rule.host or "",
        "operation": rule.operation.name,
        "permission": rule.permission_type.name,
    }


# Commands


_pattern_option = click.option(
    "--pattern",
    type=click.Choice(["any", "match", "literal", "prefixed"], case_sensitive=False),
    default="literal",
    show_default=True,
    help="How names are meant. With list and remove, match selects every rule that applies to the name.",
)


@click.group(cls=CommandGroup)
def acls() -> None:
    """List, add and remove access rules. The broker needs an authorizer (authorizer.class.name).

    \b
    felice acls add --allow-principal User:alice --consumer --topic flights --group reports
    felice acls list --topic flights --pattern match
    felice acls remove --allow-principal User:alice --operation Read --topic flights
    """


@acls.command("list")
@connection_options
@resource_options
@click.option(
    "--principal", "principals", multiple=True, help="Only rules of this principal. May be repeated."
)
@_pattern_option
@json_option
def list_command(
    bootstrap: str,
    command_config: Path | None,
    principals: tuple[str, ...],
    as_json: bool,
    **asked: Unpack[Resources],
) -> None:
    """List rules: all, or those of resources and principals.

    \b
    felice acls list
    felice acls list --topic flights --pattern match --json
    """
    filters = selections_of(asked, principals)
    rules = find(admin_client(bootstrap, command_config), filters)
    show([_row(rule) for rule in rules], as_json, empty="There are no such rules.")


@acls.command("add")
@connection_options
@resource_options
@principal_options
@_pattern_option
@json_option
def add_command(bootstrap: str, command_config: Path | None, as_json: bool, **asked: Unpack[Rules]) -> None:
    """Add rules. A rule that exists stays as it is.

    \b
    felice acls add --allow-principal User:bob --operation Write --topic flights
    felice acls add --allow-principal User:bob --producer --topic logs- --pattern prefixed
    felice acls add --deny-principal User:eve --deny-host 10.0.0.7 --topic '*'
    """
    rules = rules_of(asked)
    add(admin_client(bootstrap, command_config), rules)
    show([_row(rule) for rule in rules], as_json)


@acls.command("remove")
@connection_options
@resource_options
@principal_options
@_pattern_option
@json_option
def remove_command(
    bootstrap: str, command_config: Path | None, as_json: bool, **asked: Unpack[Rules]
) -> None:
    """Remove rules: those described, or without a principal all rules of the resources.

    \b
    felice acls remove --allow-principal User:bob --operation Write --topic flights
    felice acls remove --topic flights
    """
    filters = filters_of(asked)
    rules = remove(admin_client(bootstrap, command_config), filters)
    show([_row(rule) for rule in rules], as_json, empty="There were no such rules.")
