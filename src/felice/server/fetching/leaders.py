"""The leaders that a response names for partitions that are not led here, and their endpoints (KIP-951)."""

from __future__ import annotations

from typing import Protocol

from felice.metadata.image import BrokerImage, PartitionImage
from felice.protocol.messages.fetch import NodeEndpoint
from felice.server.fetching.finding import Metadata


class Client(Protocol):
    """The client of a request; the request's context is one."""

    @property
    def listener_name(self) -> str:
        """The listener of the client's connection. Responses name the brokers' endpoints of this listener."""
        ...


class Leaders:
    """The leaders that one response names."""

    __slots__ = ("_client", "_metadata", "_named")

    def __init__(self, metadata: Metadata, client: Client) -> None:
        self._metadata = metadata
        self._client = client
        self._named: set[int] = set()

    def name(self, topic: str, partition: int) -> PartitionImage | None:
        """The partition with its leader and epoch, if it exists. The response names this leader's endpoint."""
        known = self._metadata.image.partition(topic, partition)
        if known is not None:
            self._named.add(known.leader)
        return known

    def endpoints(self) -> list[NodeEndpoint]:
        """The endpoints of the leaders that are alive, by broker id."""
        brokers = self._metadata.image.brokers
        alive = (brokers[leader] for leader in sorted(self._named) if leader in brokers)
        found = (endpoint_of(broker, self._client.listener_name) for broker in alive)
        return [endpoint for endpoint in found if endpoint is not None]


def endpoint_of(broker: BrokerImage, listener_name: str) -> NodeEndpoint | None:
    """The address of a broker at a listener, or None if the broker does not have the listener."""
    endpoint = broker.endpoints.get(listener_name)
    if endpoint is None:
        return None
    return NodeEndpoint(node_id=broker.broker_id, host=endpoint.host, port=endpoint.port, rack=broker.rack)
