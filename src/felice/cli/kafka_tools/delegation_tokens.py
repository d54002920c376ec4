"""`kafka-delegation-tokens`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, TypeVar, Unpack

import click

from felice.cli.faults import Fault
from felice.cli.kafka_tools import bootstrap_server_option, chosen_action, kafka_tool
from felice.cli.options import admin_client
from felice.cli.tokens import check_principals, parse_hmac

if TYPE_CHECKING:
    from felice.client.admin import AdminClient, DelegationToken

T = TypeVar("T")

_ROW = "\n{:<15} {:<30} {:<15} {:<15} {:<25} {:<15} {:<15} {:<15}"
_HEADER = ("TOKENID", "HMAC", "OWNER", "REQUESTER", "RENEWERS", "ISSUEDATE", "EXPIRYDATE", "MAXDATE")


# Each action with the options that it takes.
_ACTIONS: Mapping[str, frozenset[str]] = {
    "create": frozenset(("owner_principal", "renewer_principal", "max_life_time_period")),
    "renew": frozenset(("hmac", "renew_time_period")),
    "expire": frozenset(("hmac", "expiry_time_period")),
    "describe": frozenset(("owner_principal",)),
}


class _Options(TypedDict):
    """The options of the tool besides those of the connection."""

    create: bool
    renew: bool
    expire: bool
    describe: bool
    owner_principal: tuple[str, ...]
    renewer_principal: tuple[str, ...]
    max_life_time_period: int | None
    renew_time_period: int | None
    expiry_time_period: int | None
    hmac: str | None


@kafka_tool("kafka-delegation-tokens")
@bootstrap_server_option
@click.option(
    "--command-config",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Properties of the login. Tokens need a connection whose client has proved its identity.",
)
@click.option("--create", is_flag=True, help="Create a token.")
@click.option("--renew", is_flag=True, help="Renew the token of --hmac.")
@click.option("--expire", is_flag=True, help="Expire the token of --hmac.")
@click.option("--describe", is_flag=True, help="Describe tokens.")
@click.option("--owner-principal", multiple=True, metavar="TYPE:NAME", help="An owner.")
@click.option("--renewer-principal", multiple=True, metavar="TYPE:NAME", help="A renewer of the new token.")
@click.option("--max-life-time-period", type=int, help="With --create: milliseconds; -1 for the broker's.")
@click.option("--renew-time-period", type=int, help="With --renew: milliseconds; -1 for the broker's.")
@click.option("--expiry-time-period", type=int, help="With --expire: milliseconds; -1 for now.")
@click.option("--hmac", help="The HMAC of the token.")
def kafka_delegation_tokens(bootstrap_server: str, command_config: Path, **asked: Unpack[_Options]) -> None:
    """Create, renew, expire or describe delegation tokens.

    \b
    kafka-delegation-tokens --bootstrap-server localhost:9093 --command-config admin.properties \\
      --create --max-life-time-period -1 --renewer-principal User:scheduler
    kafka-delegation-tokens --bootstrap-server localhost:9093 --command-config admin.properties --describe
    """
    chosen_action(_ACTIONS)
    check_principals((*asked["owner_principal"], *asked["renewer_principal"]))
    admin = admin_client(bootstrap_server, command_config)
    if asked["create"]:
        _create(admin, asked)
    elif asked["renew"]:
        _renew(admin, asked)
    elif asked["expire"]:
        _expire(admin, asked)
    else:
        _describe(admin, asked)


def _create(admin: AdminClient, asked: _Options) -> None:
    period_ms = _needed(asked["max_life_time_period"], "max-life-time-period")
    owners, renewers = asked["owner_principal"], asked["renewer_principal"]
    click.echo(
        f"Calling create token operation with renewers :{_listed(renewers)} , max-life-time-period :{period_ms}"
    )
    token = admin.create_delegation_token(
        renewers, owner=owners[0] if owners else None, max_lifetime_ms=period_ms
    ).result()
    click.echo(f"Created delegation token with tokenId : {token.token_id}")
    _print([token])


def _renew(admin: AdminClient, asked: _Options) -> None:
    period_ms = _needed(asked["renew_time_period"], "renew-time-period")
    hmac = _hmac(asked)
    click.echo(f"Calling renew token operation with hmac :{asked['hmac']} , renew-time-period :{period_ms}")
    expiry_ms = admin.renew_delegation_token(hmac, period_ms).result()
    click.echo(f"Completed renew operation. New expiry date : {_date(expiry_ms)}")


def _expire(admin: AdminClient, asked: _Options) -> None:
    period_ms = _needed(asked["expiry_time_period"], "expiry-time-period")
    hmac = _hmac(asked)
    click.echo(f"Calling expire token operation with hmac :{asked['hmac']} , expire-time-period :{period_ms}")
    expiry_ms = admin.expire_delegation_token(hmac, period_ms).result()
    click.echo(f"Completed expire operation. New expiry date : {_date(expiry_ms)}")


def _describe(admin: AdminClient, asked: _Options) -> None:
    owners = asked["owner_principal"]
    if owners:
        click.echo(f"Calling describe token operation for owners: {_listed(owners)}")
    else:
        click.echo("Calling describe token operation for current user.")
    found = admin.describe_delegation_tokens(owners or None).result()
    click.echo(f"Total number of tokens : {len(found)}", nl=False)
    _print(found)


def _print(tokens: Iterable[DelegationToken]) -> None:
    click.echo(_ROW.format(*_HEADER))
    for token in tokens:
        times = (token.issue_timestamp, token.expiry_timestamp, token.max_timestamp)
        names = (token.token_id, token.password, token.owner, token.requester, _listed(token.renewers))
        click.echo(_ROW.format(*names, *map(_date, times)))


def _listed(names: Iterable[str]) -> str:
    return f"[{', '.join(names)}]"


def _date(time_ms: int) -> str:
    return f"{datetime.fromtimestamp(time_ms / 1000):%Y-%m-%dT%H:%M}"


def _hmac(asked: _Options) -> bytes:
    return parse_hmac(_needed(asked["hmac"], "hmac"))


def _needed(value: T | None, option: str) -> T:
    if value is None:
        raise Fault(f'Missing required argument "[{option}]"')
    return value
