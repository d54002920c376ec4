"""Which part of the log of a partition of `__share_group_state` is still needed. Pure.

Keeps true:  Q4  the states can be replayed from `first_needed` on: for each state its last snapshot lies there, and the
                 updates behind it.
"""

from __future__ import annotations

from collections import OrderedDict

from felice.coordinator.share_state.records import ShareRecord, SnapshotRecord
from felice.coordinator.share_state.states import ShareKey


class NeededLog:
    """Follows the records with their offsets: while the log is loaded, and whenever some are committed."""

    def __init__(self) -> None:
        # The offset of each state's last snapshot, the lowest first: a new one is always the highest.
        self._snapshots: OrderedDict[ShareKey, int] = OrderedDict()
        self._next_offset = 0

    def on_record(self, record: ShareRecord, offset: int) -> None:
        """The record lies at this offset, behind all others before."""
        self._next_offset = offset + 1
        if isinstance(record, SnapshotRecord):
            self._snapshots.pop(record.key, None)
            if record.state is not None:
                self._snapshots[record.key] = offset

    @property
    def first_needed(self) -> int:
        """Everything before this offset may be deleted ("redundant offset" in Kafka)."""
        return next(iter(self._snapshots.values()), self._next_offset)
