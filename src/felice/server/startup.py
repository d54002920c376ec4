"""Errors that tell an operator in one line why a broker could not start, or had to stop."""

from __future__ import annotations


class StartupError(Exception):
    """The broker could not start. The message says what failed and why."""


class BrokerFailed(StartupError):
    """The broker was serving and could not continue."""
