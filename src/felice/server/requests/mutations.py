"""The quota of partitions that one request creates and deletes (KIP-599).

Keeps true: in versions that have THROTTLING_QUOTA_EXCEEDED, a client above its quota gets it for each topic; the topic
            that exceeds the quota is still accepted. In older versions every topic is accepted, and the client waits
            after its request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from felice.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from felice.server.context import RequestContext


class Mutations:
    """What one request spends; `strict_from` is the first version whose clients understand the error, if any does."""

    def __init__(self, context: RequestContext, strict_from: int | None) -> None:
        self.throttle_s = 0.0
        self._quotas = context.services.quotas
        self._client = context.principal.name, context.client_id or ""
        self._is_strict = strict_from is not None and context.version >= strict_from

    @property
    def throttle_time_ms(self) -> int:
        """How long the client should wait."""
        return round(self.throttle_s * 1000)

    def check(self) -> None:
        """Raises THROTTLING_QUOTA_EXCEEDED if the client is in debt."""
        if not self._is_strict:
            return
        wait_s = self._quotas.mutations_exceeded_s(*self._client)
        if wait_s > 0:
            self.throttle_s = max(self.throttle_s, wait_s)
            raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)

    def spend(self, partitions: int) -> None:
        """Counts partitions that were created or deleted."""
        wait_s = self._quotas.record_mutations(*self._client, partitions)
        if not self._is_strict:
            # A strict client learns it from the error of the next topic.
            self.throttle_s = max(self.throttle_s, wait_s)
