"""What a log is asked with and what it answers: small values without behaviour."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from felice.log.retention import Reason


class AppendOrigin(Enum):
    CLIENT = "client"
    """A producer: exactly one batch, every check."""
    COORDINATOR = "coordinator"
    """The broker itself: one batch, which may be a control batch; no sequences."""
    REPLICATION = "replication"
    """A leader: any number of batches, with their offsets and epochs."""


class AppendInfo(NamedTuple):
    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool = False


class TimestampOffset(NamedTuple):
    timestamp: int
    offset: int
    leader_epoch: int


class DeletedSegment(NamedTuple):
    base_offset: int
    size_bytes: int
    reason: Reason
