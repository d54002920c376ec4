"""Delegation tokens: create, list, renew and delete them."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from felice.cli.command_group import CommandGroup
from felice.cli.faults import Fault
from felice.cli.options import admin_client, connection_options, json_option
from felice.cli.output import Row, show_fields, show_json

if TYPE_CHECKING:
    from felice.client.admin import DelegationToken

NO_PERIOD = -1

hmac_argument = click.argument("hmac")
period_option = click.option(
    "--period-ms",
    type=int,
    default=NO_PERIOD,
    help="Milliseconds from now until it expires.  [default: the broker's]",
)


@click.group(cls=CommandGroup)
def tokens() -> None:
    """Create, list, renew and delete delegation tokens: short-lived logins for programs.

    \b
    felice tokens create --command-config admin.properties
    felice tokens list --command-config admin.properties
    """


@tokens.command("create")
@click.option(
    "--owner", metavar="TYPE:NAME", help="Principal that owns the token.  [default: the user that logs in]"
)
@click.option(
    "--renewer",
    "renewers",
    multiple=True,
    metavar="TYPE:NAME",
    help="Principal that may renew the token; may be repeated.",
)
@click.option(
    "--max-lifetime-ms",
    type=int,
    default=NO_PERIOD,
    help="Milliseconds until it expires for good.  [default: the broker's]",
)
@json_option
@connection_options
def create_command(
    owner: str | None,
    renewers: tuple[str, ...],
    max_lifetime_ms: int,
    as_json: bool,
    bootstrap: str,
    command_config: Path | None,
) -> None:
    """Create a token, and print it with its secret, the HMAC.

    \b
    felice tokens create --renewer User:scheduler --command-config admin.properties
    felice tokens create --owner User:etl --max-lifetime-ms 3600000 --json --command-config admin.properties

    A program logs in with SCRAM and this sasl.jaas.config:
    org.apache.kafka.common.security.scram.ScramLoginModule required username="TOKEN" password="HMAC" tokenauth="true";
    """
    check_principals(renewers if owner is None else (owner, *renewers))
    admin = admin_client(bootstrap, command_config)
    found = admin.create_delegation_token(renewers, owner=owner, max_lifetime_ms=max_lifetime_ms).result()
    if as_json:
        show_json(row_of(found))
    else:
        show_fields(row_of(found))


@tokens.command("list")
@click.option("--owner", "owners", multiple=True, metavar="TYPE:NAME", help="Only tokens of this principal.")
@json_option
@connection_options
def list_command(owners: tuple[str, ...], as_json: bool, bootstrap: str, command_config: Path | None) -> None:
    """List your tokens, and those that you may describe, with their secrets.

    \b
    felice tokens list --command-config admin.properties
    felice tokens list --owner User:etl --json --command-config admin.properties
    """
    check_principals(owners)
    admin = admin_client(bootstrap, command_config)
    found = admin.describe_delegation_tokens(owners or None).result()
    rows = [row_of(token) for token in sorted(found, key=lambda token: token.issue_timestamp)]
    if as_json:
        show_json(rows)
    elif not rows:
        click.echo("There are no tokens that you may see.", err=True)
    for number, row in enumerate(() if as_json else rows):
        if number:
            click.echo()
        show_fields(row)


@tokens.command("renew")
@hmac_argument
@period_option
@connection_options
def renew_command(hmac: str, period_ms: int, bootstrap: str, command_config: Path | None) -> None:
    """Let the token with this HMAC expire later, at the end of its lifetime at the latest.

    \b
    felice tokens renew HMAC --command-config admin.properties
    felice tokens renew HMAC --period-ms 3600000 --command-config admin.properties
    """
    admin = admin_client(bootstrap, command_config)
    expiry_ms = admin.renew_delegation_token(parse_hmac(hmac), period_ms).result()
    click.echo(f"The token expires at {date(expiry_ms)}.")


@tokens.command("delete")
@hmac_argument
@connection_options
def delete_command(hmac: str, bootstrap: str, command_config: Path | None) -> None:
    """Delete the token with this HMAC. Open connections that use it stay open until it would have expired.

    \b
    felice tokens delete HMAC --command-config admin.properties
    """
    admin_client(bootstrap, command_config).expire_delegation_token(parse_hmac(hmac)).result()
    click.echo("Deleted the token.")


def row_of(token: DelegationToken) -> Row:
    """A token as a row of a table."""
    return {
        "token": token.token_id,
        "hmac": token.password,
        "owner": token.owner,
        "requester": token.requester,
        "renewers": ",".join(token.renewers),
        "issued": date(token.issue_timestamp),
        "expires": date(token.expiry_timestamp),
        "ends": date(token.max_timestamp),
    }


def date(time_ms: int) -> str:
    """A time in UTC, to the second."""
    return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"


def parse_hmac(text: str) -> bytes:
    """The HMAC in a base64 text. Raises `Fault`."""
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:  # binascii.Error, or characters outside ASCII
        raise Fault("the HMAC is not base64; copy it from the output of `create` or `list`") from None


def check_principals(names: tuple[str, ...]) -> None:
    """Raises `Fault` for a name that is no principal."""
    from felice.security.principal import Principal

    for name in names:
        try:
            Principal.parse(name)
        except ValueError as error:
            raise Fault(str(error)) from None
