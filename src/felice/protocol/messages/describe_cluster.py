"""DescribeCluster (key 60): cluster id, controller and brokers."""

from __future__ import annotations

from felice.protocol.messages.metadata import OPERATIONS_NOT_REQUESTED
from felice.protocol.schema import array, boolean, int8, int16, int32, request, response, string, struct

BROKER_ENDPOINT = 1
CONTROLLER_ENDPOINT = 2


@request(api_key=60, versions="0-2", flexible="0+")
class DescribeClusterRequest:
    """From version 2 a client may request fenced brokers, too."""

    include_cluster_authorized_operations: bool = boolean()
    endpoint_type: int = int8(versions="1+", default=BROKER_ENDPOINT)
    include_fenced_brokers: bool = boolean(versions="2+")


@struct
class DescribeClusterBroker:
    """The address of a broker."""

    broker_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable="0+", default=None)
    is_fenced: bool = boolean(versions="2+")


@response(api_key=60, versions="0-2", flexible="0+")
class DescribeClusterResponse:
    """The cluster."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    endpoint_type: int = int8(versions="1+", default=BROKER_ENDPOINT)
    cluster_id: str = string()
    controller_id: int = int32(default=-1)
    brokers: list[DescribeClusterBroker] = array(DescribeClusterBroker)
    cluster_authorized_operations: int = int32(default=OPERATIONS_NOT_REQUESTED)
