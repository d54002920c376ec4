"""A follower's decisions about one partition: what to fetch next, and what to do with the answer.

Keeps true:  R5  a follower's log is a prefix of its leader's, up to the point that both have compared: where the
                 epochs show that the logs diverged, the follower truncates before it appends anything.
             R6  the follower's high watermark is at most its own log end, and only records that a leader of this
                 partition called committed lie below it. It falls only where the log is truncated below it.
             R7  after every answer that cannot be appended, the log or the next request is another.
How:         every fetch names the epoch of the last record here (KIP-595). If that epoch ends earlier in the leader's
             log, the leader answers where; the follower truncates there, or at the end of their largest common
             epoch, and the next fetch compares again. This rules out the data losses of KIP-101 and KIP-279, without
             OffsetForLeaderEpoch requests: every leader here understands Fetch 12.
Decides only: `partition.py` changes the log, `fetcher.py` talks to the leader. Pure.
"""

from __future__ import annotations

from typing import TypeAlias

from felice.dataclass import dataclass
from felice.log.epochs import UNDEFINED_EPOCH, LeaderEpochs


@dataclass(frozen=True, slots=True)
class FetchPosition:
    """The fields of the next fetch request."""

    offset: int
    last_fetched_epoch: int
    current_leader_epoch: int
    log_start_offset: int


@dataclass(frozen=True, slots=True)
class TruncateTo:
    """Truncate the log at `offset`. `is_unclean`: this removes records that were committed once."""

    offset: int
    is_unclean: bool


@dataclass(frozen=True, slots=True)
class RestartAt:
    """The log is of no use: start again at `offset`."""

    offset: int


Remedy: TypeAlias = TruncateTo | RestartAt | None


def before_following(
    epochs: LeaderEpochs, *, log_start_offset: int, log_end_offset: int, high_watermark: int
) -> Remedy:
    """If the epoch of the last record is unknown, logs cannot be compared: removes records that may be uncommitted."""
    if log_end_offset > max(log_start_offset, high_watermark) and epochs.epoch_at(log_end_offset - 1) < 0:
        return TruncateTo(max(log_start_offset, high_watermark), is_unclean=False)
    return None


def next_fetch(
    epochs: LeaderEpochs,
    *,
    log_start_offset: int,
    log_end_offset: int,
    leader_epoch: int,
) -> FetchPosition:
    """Names the epoch of the last record, not of the last epoch entry: an epoch may have begun without records here."""
    last_epoch = epochs.epoch_at(log_end_offset - 1) if log_end_offset > log_start_offset else epochs.latest
    return FetchPosition(log_end_offset, last_epoch, leader_epoch, log_start_offset)


def after_divergence(
    epochs: LeaderEpochs,
    leader_epoch: int,
    leader_end_offset: int,
    *,
    log_end_offset: int,
    high_watermark: int,
) -> TruncateTo:
    """The leader's largest epoch not above ours is `leader_epoch`; in its log it ended at `leader_end_offset`."""
    ours = epochs.end_offset_for(leader_epoch, log_end_offset)
    if leader_epoch == UNDEFINED_EPOCH or ours.epoch == UNDEFINED_EPOCH:
        cut = leader_end_offset
    elif ours.epoch == leader_epoch:
        cut = min(ours.end_offset, leader_end_offset)
    else:
        # KIP-279: this log never had that epoch. Truncate to the end of the next lower one, and compare again.
        cut = ours.end_offset
    cut = min(cut, log_end_offset)
    return TruncateTo(cut, is_unclean=cut < high_watermark)


def after_out_of_range(
    *, log_end_offset: int, high_watermark: int, leader_start_offset: int, leader_end_offset: int
) -> Remedy:
    """The leader has no record at this log's end offset."""
    if leader_end_offset < log_end_offset:
        # The leader's log is shorter: only an unclean election makes such a leader.
        return TruncateTo(leader_end_offset, is_unclean=leader_end_offset < high_watermark)
    if leader_start_offset > log_end_offset:
        return RestartAt(leader_start_offset)
    return None


def after_overlap(
    *, batch_offset: int, log_end_offset: int, high_watermark: int, leader_start_offset: int
) -> TruncateTo | RestartAt:
    """The leader sent a batch that begins at `batch_offset`, below this log's end, where this log has other records.

    Comparing epochs cannot show this: the leader has forgotten the epochs of records below its log start.
    """
    if leader_start_offset >= log_end_offset:
        # The leader's log has none of the records here.
        return RestartAt(log_end_offset)
    return TruncateTo(batch_offset, is_unclean=batch_offset < high_watermark)


def next_high_watermark(own: int, leaders: int, log_end_offset: int) -> int:
    """A new leader may not know yet what its predecessor had committed: the watermark does not fall for that."""
    return max(own, min(leaders, log_end_offset))
