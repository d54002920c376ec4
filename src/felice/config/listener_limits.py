"""Limits that a broker has, and that each listener may have for itself, with the prefix `listener.name.NAME.`."""

from __future__ import annotations

from typing import Final

from felice.config.option import INT_MAX, Kind, Option, Scope

CREATION_RATE: Final = Option(
    "max.connection.creation.rate",
    Kind.INT,
    INT_MAX,
    "Connections per second that the broker accepts, and with the prefix of a listener that this listener accepts. "
    "Over it the broker waits before it accepts the next. The inter-broker listener is exempt from the limit of all "
    "listeners together, unless it is the only one.",
    scope=Scope.CLUSTER_WIDE,
    minimum=1,
)
MAX_CONNECTIONS: Final = Option(
    "max.connections",
    Kind.INT,
    INT_MAX,
    "Connections that may be open at once, and with the prefix of a listener those of this listener. Further ones wait "
    "until others close. The inter-broker listener is exempt from the limit of all listeners together, unless it is "
    "the only one: above it the connection of another listener that was idle longest is closed. Those that were idle "
    "longest are also closed when the limit of all listeners together is lowered below the number of open ones.",
    scope=Scope.CLUSTER_WIDE,
    # At 0 nobody could connect to set it back.
    minimum=1,
)
LISTENER_LIMITS: Final = {limit.name: limit for limit in (CREATION_RATE, MAX_CONNECTIONS)}
"""These options by the name without a prefix."""
