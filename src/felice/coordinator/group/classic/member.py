"""One member of a classic group."""

from __future__ import annotations

from felice.coordinator.shard import NEVER_MS, Waiter
from felice.dataclass import dataclass
from felice.protocol.messages.join_group import JoinGroupResponse
from felice.protocol.messages.sync_group import SyncGroupResponse


@dataclass(slots=True)
class Member:
    """`protocols` are (name, metadata) in the member's order of preference.

    `joining` and `syncing` are its parked requests: JoinGroup and SyncGroup wait for the other members. While a request
    is parked the member cannot send heartbeats, so its session deadline does not count. Exception: a member that never
    got an answer (`is_new`), because a client that gave up would otherwise stay a member for ever.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes = b""
    is_new: bool = False
    joining: Waiter[JoinGroupResponse] | None = None
    syncing: Waiter[SyncGroupResponse] | None = None
    session_deadline_ms: int = NEVER_MS

    def metadata(self, protocol: str) -> bytes:
        """The member's metadata for a protocol; empty if it does not support it."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def vote(self, candidates: frozenset[str]) -> str:
        """The first of its protocols that all members support."""
        return next(name for name, _ in self.protocols if name in candidates)

    @property
    def expires(self) -> bool:
        """Whether the member is removed if nothing is heard of it until the deadline."""
        return self.is_new or (self.joining is None and self.syncing is None)
