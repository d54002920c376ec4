"""Checks whether an advertised address leads to this broker."""

from __future__ import annotations

import asyncio

from felice.env import Clock, Network
from felice.metadata.layout import Endpoint
from felice.protocol.api import API
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    ResourceType,
)
from felice.protocol.messages.metadata import MetadataRequest
from felice.replication.peers import Destination, Peers, PeerSecurity, PeerUnavailable

_TIMEOUT_S = 5.0


class NotAllowed(Exception):
    """The broker is not authorised to ask at the address which broker answers there."""


async def why_not_reached(
    network: Network,
    clock: Clock,
    endpoint: Endpoint,
    broker_id: int,
    cluster_id: str | None,
    security: PeerSecurity,
) -> str | None:
    """Returns the reason why a client does not reach this broker at `endpoint`, or None if it does.

    Raises `NotAllowed` if a broker of this cluster refuses to say which it is.
    """
    peers = Peers(
        network, clock, broker_id, lambda _: Destination(endpoint.host, endpoint.port, epoch=0), security
    )
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            return await _other_answerer(peers, broker_id, cluster_id)
    except TimeoutError:
        return f"no answer in {_TIMEOUT_S:g} s"
    except PeerUnavailable as error:
        return str(error)
    finally:
        await peers.close()


async def _other_answerer(peers: Peers, broker_id: int, cluster_id: str | None) -> str | None:
    metadata = await peers.call(broker_id, API.METADATA, MetadataRequest(topics=[]), _TIMEOUT_S)
    if metadata.cluster_id != cluster_id:
        return f"a broker of cluster {metadata.cluster_id} answers there"
    # As in Kafka, a broker returns only its own configuration. No other request reveals the id of the responder.
    asked = DescribeConfigsResource(
        resource_type=ResourceType.BROKER, resource_name=str(broker_id), configuration_keys=["node.id"]
    )
    request = DescribeConfigsRequest(resources=[asked])
    answer = await peers.call(broker_id, API.DESCRIBE_CONFIGS, request, _TIMEOUT_S)
    [result] = answer.results
    if result.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        raise NotAllowed(result.error_message)
    return (
        f"another broker of this cluster answers there: {result.error_message}" if result.error_code else None
    )
