"""Free ports for servers that keep their port when they start again."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack
from errno import EADDRINUSE
from pathlib import Path

# Below are the usual ports of many servers.
_LOWEST = 10_000
_EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_USUAL_LOWEST_EPHEMERAL = 32_768
_ATTEMPTS = 100
# Processes with the same seed must not try the same ports.
_random = random.SystemRandom()


def free_ports(count: int) -> list[int]:
    """Different TCP ports that are free now at all IPv4 addresses, below the system's ephemeral range.

    The system takes the local ports of connections, and port 0, from that range. While a server with such a port is
    stopped, a connection of the machine may get the port. If the system uses nearly all ports in this way, it chooses.
    """
    candidates = range(_LOWEST, _lowest_ephemeral())
    with ExitStack() as taken:
        return [_take(candidates, taken) for _ in range(count)]


def _take(candidates: range, taken: ExitStack) -> int:
    """Binds a socket, which keeps its port from the next search until `taken` is closed."""
    for _ in range(_ATTEMPTS if candidates else 0):
        try:
            return _bind(_random.choice(candidates), taken)
        except OSError as error:
            if error.errno != EADDRINUSE:
                raise
    return _bind(0, taken)


def _bind(port: int, taken: ExitStack) -> int:
    probe = taken.enter_context(socket.socket())
    probe.bind(("", port))
    return int(probe.getsockname()[1])


def _lowest_ephemeral() -> int:
    try:
        return int(_EPHEMERAL_RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):  # not on Linux
        return _USUAL_LOWEST_EPHEMERAL
