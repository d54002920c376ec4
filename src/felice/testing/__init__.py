"""A durable broker inside your tests, with faults on demand: for any Kafka client, in this process or another.

    from felice.testing import ErrorCode, felice_broker

    with felice_broker() as broker:
        broker.create_topic("orders", partitions=3)
        broker.faults.fail("Produce", ErrorCode.NOT_LEADER_OR_FOLLOWER, topic="orders", times=3)
        Producer({"bootstrap.servers": broker.bootstrap}).produce("orders", b"...")

Keeps true: importing this package imports no broker. Each name is loaded at its first use, so that the pytest
            plugin (`felice.testing.plugin`) costs nothing where its fixtures are not used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from felice.protocol.errors import ErrorCode
    from felice.testing.aio import AsyncBroker
    from felice.testing.broker import Broker, Record
    from felice.testing.cluster import Cluster
    from felice.testing.faults import Fault, FaultKind, FaultNotFired, Faults, Injection
    from felice.testing.opening import felice_broker

__all__ = [
    "AsyncBroker",
    "Broker",
    "Cluster",
    "ErrorCode",
    "Fault",
    "FaultKind",
    "FaultNotFired",
    "Faults",
    "Injection",
    "Record",
    "felice_broker",
]

_HOMES = {
    "AsyncBroker": "felice.testing.aio",
    "Broker": "felice.testing.broker",
    "Cluster": "felice.testing.cluster",
    "ErrorCode": "felice.protocol.errors",
    "Fault": "felice.testing.faults",
    "FaultKind": "felice.testing.faults",
    "FaultNotFired": "felice.testing.faults",
    "Faults": "felice.testing.faults",
    "Injection": "felice.testing.faults",
    "Record": "felice.testing.broker",
    "felice_broker": "felice.testing.opening",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return __all__
