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
    from felice.protocol.errors import ErrorCode as ErrorCode
    from felice.testing.aio import AsyncBroker as AsyncBroker
    from felice.testing.broker import Broker as Broker
    from felice.testing.broker import Record as Record
    from felice.testing.cluster import Cluster as Cluster
    from felice.testing.faults import Fault as Fault
    from felice.testing.faults import FaultKind as FaultKind
    from felice.testing.faults import FaultNotFired as FaultNotFired
    from felice.testing.faults import Faults as Faults
    from felice.testing.faults import Injection as Injection
    from felice.testing.opening import felice_broker as felice_broker


if not TYPE_CHECKING:
    __getattr__, __dir__, __all__ = late_names(
        __name__,
        {
            "felice.testing.aio": "AsyncBroker",
            "felice.testing.broker": "Broker Record",
            "felice.testing.cluster": "Cluster",
            "felice.protocol.errors": "ErrorCode",
            "felice.testing.faults": "Fault FaultKind FaultNotFired Faults Injection",
            "felice.testing.opening": "felice_broker",
        },
    )
