"""Snapshots of many share group states do not come all at once."""

from __future__ import annotations

from uuid import UUID

from felice.coordinator.shard import NEVER_MS, Instant
from felice.coordinator.share_state.records import SnapshotRecord, UpdateRecord
from felice.coordinator.share_state.settings import ShareStateSettings
from felice.coordinator.share_state.shard import NEXT_SNAPSHOTS_MS, SNAPSHOT_BATCHES_AT_ONCE, ShareStateShard
from felice.coordinator.share_state.states import ShareKey, ShareState, ShareUpdate
from felice.replication.share.states import StateBatch

INTERVAL_MS = 1000
BATCHES = tuple(StateBatch(offset, offset, offset % 2 * 2, 1) for offset in range(1980))


def shard_with(states: int) -> ShareStateShard:
    shard = ShareStateShard(
        ShareStateSettings(snapshot_interval_ms=INTERVAL_MS), lambda topic_id, partition: True
    )
    shard.on_loaded(Instant(0, 0))
    for partition in range(states):
        key = ShareKey("g", UUID(int=1), partition)
        shard.replay(SnapshotRecord(key, ShareState(0, 1, start_offset=0, written_ms=0)))
        shard.replay(UpdateRecord(key, ShareUpdate(0, 0, 0, 990, BATCHES)))
    return shard


def test_the_others_follow_soon() -> None:
    shard = shard_with(7)
    now_ms, rounds = INTERVAL_MS, []
    while (shard.next_deadline_ms()) < 2 * INTERVAL_MS:
        now_ms = shard.next_deadline_ms()
        outcome = shard.on_time(Instant(now_ms, now_ms))
        rounds.append(len(outcome.records))
        for record in outcome.records:
            shard.replay(record)
    assert rounds == [3, 3, 1], f"{SNAPSHOT_BATCHES_AT_ONCE} batches, and what began below it"
    assert now_ms == INTERVAL_MS + 2 * NEXT_SNAPSHOTS_MS
    assert all(state.updates == 0 and state.snapshot_epoch == 1 for state in shard.states.values())


def test_nothing_is_due_before_the_interval_or_without_states() -> None:
    shard = shard_with(1)
    assert not shard.on_time(Instant(INTERVAL_MS * 5, INTERVAL_MS - 1)).records
    assert not shard.on_time(Instant(INTERVAL_MS - 1, INTERVAL_MS)).records, "the snapshot is younger"
    assert shard_with(0).next_deadline_ms() == NEVER_MS
