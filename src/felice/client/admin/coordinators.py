"""Requests to the coordinator of a group or of a transactional id, which is looked up again after it moved."""

from __future__ import annotations

import asyncio
from typing import Any

from felice.client.error import KafkaException, failure
from felice.client.net.cluster import Cluster
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.find_coordinator import GROUP_KEY_TYPE

_MOVED = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)


async def ask_coordinator(
    cluster: Cluster, key: str, request: object, timeout_s: float, key_type: int = GROUP_KEY_TYPE
) -> Any:
    """Return the coordinator's response. After a failed or late one, the next one looks the coordinator up again."""
    node_id = await cluster.coordinator(key, timeout_s, key_type, waits_for_brokers=False)
    try:
        return await cluster.call(node_id, request)
    except (KafkaException, asyncio.CancelledError):
        cluster.forget_coordinator(key, key_type)
        raise


def raise_if_moved(cluster: Cluster, key: str, code: int, key_type: int = GROUP_KEY_TYPE) -> None:
    """Raise a retriable error if the code says that the coordinator moved; the next request looks it up again."""
    if code in _MOVED:
        cluster.forget_coordinator(key, key_type)
        raise failure(code, key, retriable=True)
