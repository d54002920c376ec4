"""The environment as an argument: clock, disk, network and randomness.

Keeps true: everything above this package is a function of its arguments, so that a
            whole broker can run on virtual time, a simulated disk and one seed.
            No other package of the broker imports `time`, `os`, `socket` or
            `random`; a test checks the imports.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from dataclasses import field
from random import Random, SystemRandom

from felice.dataclass import dataclass
from felice.env.clock import Clock, SystemClock
from felice.env.disk import Buffer, Disk, DiskLocked, File, FileSlice, Lock, SystemDisk, Volume
from felice.env.network import Network, SystemNetwork


@dataclass(frozen=True, slots=True)
class Environment:
    """What a broker may access. `Environment.system()` is the real machine."""

    clock: Clock
    disk: Disk
    network: Network
    random: Random = field(default_factory=SystemRandom)

    @classmethod
    def system(cls, listening: Iterable[socket.socket] = ()) -> Environment:
        """The real machine's clock, disk and network. `listening`: as in `SystemNetwork`."""
        return cls(clock=SystemClock(), disk=SystemDisk(), network=SystemNetwork(listening))


__all__ = [
    "Buffer",
    "Clock",
    "Disk",
    "DiskLocked",
    "Environment",
    "File",
    "FileSlice",
    "Lock",
    "Network",
    "Random",
    "SystemClock",
    "SystemDisk",
    "SystemNetwork",
    "Volume",
]
