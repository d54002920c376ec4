"""Arguments and results of a log: small values without behaviour."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from felice.log.retention import Reason


class AppendOrigin(Enum):
    """Where appended batches come from. It determines the checks."""

    CLIENT = "client"
    """A producer sends exactly one batch. All checks apply."""
    COORDINATOR = "coordinator"
    """The broker writes one batch, which may be a control batch. Sequences are not checked."""
    REPLICATION = "replication"
    """A leader sends any number of batches, with their offsets and epochs."""


class AppendInfo(NamedTuple):
    """Result of an append. `log_append_time_ms` is -1 if the producer's timestamps stay.

    With `duplicate` nothing was appended: the offsets and the time are those of the batch that was stored before.
    """

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool = False


class TimestampOffset(NamedTuple):
    """A record found by its timestamp (in milliseconds), with the leader epoch of its batch."""

    timestamp: int
    offset: int
    leader_epoch: int


class DeletedSegment(NamedTuple):
    """A segment that retention deleted."""

    base_offset: int
    size_bytes: int
    reason: Reason
