"""DescribeCluster (key 60): the cluster id, the controller and the brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from felice.protocol.errors import ErrorCode
from felice.protocol.messages.describe_cluster import (
    BROKER_ENDPOINT,
    CONTROLLER_ENDPOINT,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from felice.server.handlers.metadata import reachable
from felice.server.security.access_control import cluster_operations, in_handler

if TYPE_CHECKING:
    from felice.server.context import RequestContext

guard = in_handler  # only for its bit field of authorised operations


async def handle(request: DescribeClusterRequest, context: RequestContext) -> DescribeClusterResponse:
    """Lists the brokers with an endpoint on the client's listener.

    Endpoints of controllers are refused: there are none.
    """
    if request.endpoint_type == CONTROLLER_ENDPOINT:
        return _refused(ErrorCode.MISMATCHED_ENDPOINT_TYPE, "This is a broker, not a controller.")
    if request.endpoint_type != BROKER_ENDPOINT:
        return _refused(
            ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unknown endpoint type {request.endpoint_type}."
        )
    image, listener = context.services.image, context.listener_name
    response = DescribeClusterResponse(
        cluster_id=image.cluster_id or "",
        controller_id=image.controller_id,
        brokers=[
            DescribeClusterBroker(
                broker_id=broker.broker_id,
                host=broker.endpoints[listener].host,
                port=broker.endpoints[listener].port,
                rack=broker.rack,
            )
            for broker in reachable(image, listener)
        ],
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = cluster_operations(context)
    return response


def _refused(code: ErrorCode, message: str) -> DescribeClusterResponse:
    return DescribeClusterResponse(error_code=code, error_message=message)
