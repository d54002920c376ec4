"""Truncates a follower's log as `follower` decides, and reports which records that removes.

Keeps true: R5 with `follower`. The caller limits the high watermark to the log afterwards.
"""

from __future__ import annotations

import logging

from felice.log.log import Log
from felice.replication import follower
from felice.replication.follower import Remedy, RestartAt, TruncateTo

_log = logging.getLogger("felice.replication")


def before_following(log: Log, high_watermark: int) -> None:
    """A leader is known: removes the records that cannot be compared with its log."""
    remedy = follower.before_following(
        log.epochs,
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
        high_watermark=high_watermark,
    )
    _carry_out(remedy, log, high_watermark)


def after_divergence(log: Log, high_watermark: int, leader_epoch: int, leader_end_offset: int) -> None:
    """The leader's log parted from this one: there `leader_epoch` ended at `leader_end_offset`."""
    remedy = follower.after_divergence(
        log.epochs,
        leader_epoch,
        leader_end_offset,
        log_end_offset=log.log_end_offset,
        high_watermark=high_watermark,
    )
    _carry_out(remedy, log, high_watermark)


def after_out_of_range(
    log: Log, high_watermark: int, leader_start_offset: int, leader_end_offset: int
) -> bool:
    """The leader's log covers the given offsets. Returns whether this log had to change to continue there."""
    remedy = follower.after_out_of_range(
        log_end_offset=log.log_end_offset,
        high_watermark=high_watermark,
        leader_start_offset=leader_start_offset,
        leader_end_offset=leader_end_offset,
    )
    _carry_out(remedy, log, high_watermark)
    return remedy is not None


def after_overlap(log: Log, high_watermark: int, batch_offset: int, leader_start_offset: int) -> None:
    """The leader's batch at `batch_offset` begins below the end of this log, which has other records there."""
    remedy = follower.after_overlap(
        batch_offset=batch_offset,
        log_end_offset=log.log_end_offset,
        high_watermark=high_watermark,
        leader_start_offset=leader_start_offset,
    )
    _carry_out(remedy, log, high_watermark)


def _carry_out(remedy: Remedy, log: Log, high_watermark: int) -> None:
    match remedy:
        case TruncateTo(offset, is_unclean):
            _report_truncation(log, offset, is_unclean, high_watermark)
            log.truncate_to(offset)
        case RestartAt(offset):
            _log.warning(
                "the log is emptied and begins at the leader's log start",
                extra={"partition": log.name, "offset": offset, "end": log.log_end_offset},
            )
            log.truncate_fully_and_start_at(offset)


def _report_truncation(log: Log, offset: int, is_unclean: bool, high_watermark: int) -> None:
    facts = {
        "partition": log.name,
        "offset": offset,
        "end": log.log_end_offset,
        "high_watermark": high_watermark,
    }
    if is_unclean:
        _log.warning("committed records are removed: the election was unclean", extra=facts)
    else:
        _log.info("the log is truncated where it diverges from the leader's", extra=facts)
