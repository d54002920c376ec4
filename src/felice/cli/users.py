"""The file of users that log in at Felice's HTTP servers: add, list and delete users."""

from __future__ import annotations

from pathlib import Path

import click

from felice.cli.command_group import CommandGroup
from felice.cli.faults import Fault
from felice.cli.options import json_option
from felice.cli.output import show
from felice.cli.passwords import ask_password

users_option = click.option(
    "--users",
    "path",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="File with the users and their hashed passwords.",
)


@click.group(cls=CommandGroup)
def users() -> None:
    """Add, list and delete the users of an HTTP server, in a file.

    \b
    felice users add alice --users registry.users
    felice users list --users registry.users
    felice users delete alice --users registry.users
    """


@users.command("add")
@click.argument("name")
@users_option
def add_command(name: str, path: Path) -> None:
    """Add a user, or give a user another password: asked for, or the first line of standard input.

    \b
    felice users add alice --users registry.users
    felice users add alice --users registry.users < password.txt
    """
    from felice.web.users import PasswordHash, check_name, read_users, write_users

    try:
        check_name(name)
    except ValueError as error:
        raise Fault(str(error)) from None
    known = read_users(path) if path.exists() else {}
    write_users(path, {**known, name: PasswordHash.of(ask_password())})
    click.echo(f"{name} {'has another password' if name in known else 'was added'}")


@users.command("list")
@users_option
@json_option
def list_command(path: Path, as_json: bool) -> None:
    """Print the names of the users.

    \b
    felice users list --users registry.users
    """
    from felice.web.users import read_users

    show([{"user": name} for name in sorted(read_users(path))], as_json, empty="There are no users.")


@users.command("delete")
@click.argument("name")
@users_option
def delete_command(name: str, path: Path) -> None:
    """Delete a user. A server stops accepting the password within a minute.

    \b
    felice users delete alice --users registry.users
    """
    from felice.web.users import read_users, write_users

    known = read_users(path)
    if name not in known:
        raise Fault(f"{path} has no user {name}")
    write_users(path, {user: found for user, found in known.items() if user != name})
    click.echo(f"{name} was deleted")
