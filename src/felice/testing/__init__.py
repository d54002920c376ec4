"""A durable broker inside your tests, with faults on demand: for Kafka clients in this process or another.

    from felice.testing import ErrorCode, felice_broker

    with felice_broker() as broker:
        broker.create_topic("orders", partitions=3)
        broker.faults.fail("Produce", ErrorCode.NOT_LEADER_OR_FOLLOWER, topic="orders", times=3)
        Producer({"bootstrap.servers": broker.bootstrap}).produce("orders", b"...")

Keeps true: importing this package imports no broker. Each name is loaded at its first use, so that the pytest
            plugin (`felice.testing.plugin`) costs nothing where its fixtures are not used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from felice.late_names import late_names

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

if not TYPE_CHECKING:
    __getattr__, __dir__ = late_names(
        __name__,
        {
            "felice.testing.aio": ("AsyncBroker",),
            "felice.testing.broker": (
                "Broker",
                "Record",
            ),
            "felice.testing.cluster": ("Cluster",),
            "felice.protocol.errors": ("ErrorCode",),
            "felice.testing.faults": (
                "Fault",
                "FaultKind",
                "FaultNotFired",
                "Faults",
                "Injection",
            ),
            "felice.testing.opening": ("felice_broker",),
        },
    )
