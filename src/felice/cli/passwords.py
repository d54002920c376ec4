"""Asks for a new password: on the terminal, without showing it, or the first line of standard input."""

from __future__ import annotations

import sys

import click

from felice.cli.faults import Fault


def ask_password() -> str:
    """A password that is not empty. Raises `Fault`."""
    if sys.stdin.isatty():
        password: str = click.prompt("Password", hide_input=True, confirmation_prompt=True)
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise Fault("the password is empty")
    return password
