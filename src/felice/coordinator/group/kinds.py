"""The kinds of groups: the interface by which a shard calls a group of any protocol.

Each protocol has a module `kind` with one object that implements `Kind` for its class of groups.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias, TypeVar
from uuid import UUID

from felice.coordinator.group.records import Record
from felice.coordinator.group.turn import Turn
from felice.coordinator.shard import Sendable
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.describe_groups import DescribedGroup
from felice.protocol.messages.list_groups import ListedGroup
from felice.protocol.messages.offset_commit import OffsetCommitRequest
from felice.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest

G_contra = TypeVar("G_contra", contravariant=True)

CommitCheck: TypeAlias = ErrorCode | Callable[[UUID, int], ErrorCode]
"""One result for the whole request, or a function with a result for each partition (KIP-1251)."""


class Kind(Protocol[G_contra]):
    """The rules of one kind of groups."""

    def on_loaded(self, group: G_contra, turn: Turn) -> None:
        """Restarts the sessions after the log was loaded."""
        ...

    def on_unloaded(self, group: G_contra, error: ErrorCode) -> list[Sendable]:
        """The replies to waiting requests, when another broker coordinates the group now."""
        ...

    def on_time(self, group: G_contra, turn: Turn) -> None:
        """Applies the deadlines that have passed, and sets the next alarm."""
        ...

    def is_idle(self, group: G_contra) -> bool:
        """Whether the group has no members, and no member is joining."""
        ...

    def describe(self, group: G_contra, version: int) -> DescribedGroup:
        """The group in a DescribeGroups response."""
        ...

    def listed(self, group: G_contra) -> ListedGroup:
        """The group in a ListGroups response."""
        ...

    def check_delete(self, group: G_contra) -> ErrorCode:
        """NONE if the group may be deleted."""
        ...

    def tombstones(self, group: G_contra) -> Sequence[Record]:
        """The records that remove the group, without its offsets."""
        ...

    def check_commit(self, group: G_contra, request: OffsetCommitRequest, version: int) -> CommitCheck:
        """Whether the sender may commit these offsets."""
        ...

    def check_transactional_commit(self, group: G_contra, request: TxnOffsetCommitRequest) -> CommitCheck:
        """Whether the sender may commit these offsets in a transaction."""
        ...

    def check_fetch(self, group: G_contra, member_id: str | None, epoch: int) -> ErrorCode:
        """Whether a member with this epoch may read the group's offsets; NONE for a request without a member."""
        ...

    def on_commit(self, group: G_contra, member_id: str, turn: Turn) -> None:
        """A member has committed, so it is alive."""
        ...

    def check_offset_delete(self, group: G_contra) -> ErrorCode:
        """Whether offsets of the group may be deleted at all."""
        ...

    def is_in_use(self, group: G_contra, topic: str) -> bool:
        """Whether members read the topic, so that its offsets stay."""
        ...
