"""Why a broker could not start, or had to stop, in one line that a person can act on."""

from __future__ import annotations


class StartupError(Exception):
    """The message is the whole story: what was tried, and what stood in the way."""


class BrokerFailed(StartupError):
    """The broker was serving and could not go on."""
