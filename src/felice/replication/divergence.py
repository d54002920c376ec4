"""Where the log of a fetching replica diverged from this one (KIP-595).

Keeps true: R5 a follower that has other records than its leader learns of it with its next fetch, and truncates first.
"""

from __future__ import annotations

from felice.dataclass import dataclass
from felice.log.log import Log
from felice.protocol.errors import ApiError, ErrorCode


@dataclass(frozen=True, slots=True)
class Divergence:
    """The largest common epoch of two logs, and the offset at which it ends in this log."""

    epoch: int
    end_offset: int


def between(log: Log, offset: int, last_fetched_epoch: int) -> Divergence | None:
    """Compares `log` with a log whose end is `offset` and whose last record has the epoch `last_fetched_epoch`.

    Returns None if the other log is a prefix of `log`. Raises `ApiError` (OFFSET_OUT_OF_RANGE) if `log` has no epochs,
    or only epochs before `last_fetched_epoch`.
    """
    found = log.epochs.end_offset_for(last_fetched_epoch, log.log_end_offset)
    if found.epoch < 0:
        raise ApiError(
            ErrorCode.OFFSET_OUT_OF_RANGE, f"{log.name} has no epoch {last_fetched_epoch} or newer"
        )
    if found.epoch < last_fetched_epoch or found.end_offset < offset:
        return Divergence(found.epoch, found.end_offset)
    return None
