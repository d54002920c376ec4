"""Passwords of the command line: new ones, and those of a log in. A terminal does not show them."""

from __future__ import annotations

import sys

import click

from felice.cli.faults import Fault


def login_of(user: str | None, password: str | None, variable: str) -> tuple[str, str] | None:
    """The user and password of `--user` and `--password`; None without them.

    A terminal is asked for a password that is missing. `variable` is the environment variable of `--password`. Raises
    `Fault` and `click.UsageError`.
    """
    if user is None:
        if password is not None:
            raise click.UsageError("--password needs --user")
        return None
    if password is not None:
        return user, password
    if not sys.stdin.isatty():
        raise Fault(f"--user needs a password: set --password or {variable}")
    return user, click.prompt("Password", hide_input=True)


def ask_password() -> str:
    """A new password that is not empty, of the terminal or the first line of standard input. Raises `Fault`."""
    if sys.stdin.isatty():
        password: str = click.prompt("Password", hide_input=True, confirmation_prompt=True)
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise Fault("the password is empty")
    return password
