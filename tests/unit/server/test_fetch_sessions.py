"""Fetch sessions (KIP-227): what a consumer says once, and what a reply must repeat."""

from __future__ import annotations

import random
from uuid import UUID

import pytest

from felice.protocol.errors import ApiError, ErrorCode
from felice.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from felice.replication.leader import FollowerProgress
from felice.replication.replica import Listeners
from felice.server.fetching.fetch_sessions import EVICTION_MS, FetchPlan, FetchSessions

TOPIC_ID = UUID(int=3)


def asked(*partitions: int, offset: int = 0) -> list[FetchTopic]:
    rows = [FetchPartition(partition=p, fetch_offset=offset, partition_max_bytes=100) for p in partitions]
    return [FetchTopic(topic="t", topic_id=TOPIC_ID, partitions=rows)] if rows else []


def request(session_id: int, epoch: int, *partitions: int, offset: int = 0) -> FetchRequest:
    return FetchRequest(session_id=session_id, session_epoch=epoch, topics=asked(*partitions, offset=offset))


def row(partition: int, high_watermark: int = 5, *, records: bytes = b"", **facts: int) -> PartitionData:
    return PartitionData(
        partition_index=partition, high_watermark=high_watermark, log_start_offset=0, records=records, **facts
    )


def told(plan: FetchPlan, *rows: PartitionData) -> list[int]:
    by_number = {data.partition_index: data for data in rows}
    served = [(partition, by_number[partition.partition]) for partition in plan.partitions]
    return [data.partition_index for partition, data in served if plan.reports(partition, data)]


def sessions(slots: int = 10) -> FetchSessions:
    return FetchSessions(slots, random.Random(1))


def order(plan: FetchPlan) -> list[int]:
    return [partition.partition for partition in plan.partitions]


def at_rest(plan: FetchPlan, number: int) -> Listeners:
    """Lets a partition of the plan rest; what is returned wakes it."""
    assert plan.session is not None
    changes = Listeners()
    asked = next(asked for asked in plan.partitions if asked.partition == number)
    plan.session.reading.begin_idle(asked, FollowerProgress(liveness=plan.session.reading.liveness), changes)
    return changes


def test_what_rests_is_not_read_until_it_is_woken() -> None:
    cache = sessions()
    full = cache.open(request(0, 0, 0, 1, 2), 11, 0)
    changes = at_rest(full, 1)
    assert order(cache.open(request(full.session_id, 1), 11, 0)) == [0, 2]
    for wake in list(changes):
        wake()
    assert order(cache.open(request(full.session_id, 2), 11, 0)) == [0, 2, 1]


def test_what_the_request_names_rests_no_more() -> None:
    cache = sessions()
    full = cache.open(request(0, 0, 0, 1), 11, 0)
    at_rest(full, 1)
    assert order(cache.open(request(full.session_id, 1, 1, offset=4), 11, 0)) == [0, 1]


def test_a_session_of_which_all_rests_is_not_empty() -> None:
    cache = sessions()
    full = cache.open(request(0, 0, 0), 11, 0)
    at_rest(full, 0)
    plan = cache.open(request(full.session_id, 1), 11, 0)
    assert (order(plan), plan.is_empty) == ([], False)


def test_who_waits_hears_of_every_change_of_what_rested() -> None:
    cache, heard = sessions(), []
    full = cache.open(request(0, 0, 0), 11, 0)
    changes = at_rest(full, 0)
    full.call_on_wake(heard.append, full.partitions)
    for _ in range(2):
        for wake in list(changes):
            wake()
    assert [asked.partition for asked in heard] == [0, 0]


def test_the_newest_request_that_waits_hears_of_what_it_does_not_know() -> None:
    cache = sessions()
    first, second = [], []
    full = cache.open(request(0, 0, 0, 1), 11, 0)
    full.call_on_wake(wake_first := first.append, full.partitions[:1])
    assert [asked.partition for asked in first] == [1]
    later = cache.open(request(full.session_id, 1, 2), 11, 0)
    later.call_on_wake(wake_second := second.append, later.partitions)
    full.end_calls(wake_first)
    cache.open(request(full.session_id, 2, 0), 11, 0)
    later.end_calls(wake_second)
    cache.open(request(full.session_id, 3, 0), 11, 0)
    assert ([asked.partition for asked in first], [asked.partition for asked in second]) == ([1], [0])


def test_what_is_forgotten_and_what_is_closed_listens_no_more_and_has_no_liveness() -> None:
    cache = sessions()
    full = cache.open(request(0, 0, 0, 1), 11, 0)
    assert full.session is not None
    first, second = at_rest(full, 0), at_rest(full, 1)
    progress = list(full.session.reading.idle.values())
    forgetting = request(full.session_id, 1)
    forgetting.forgotten_topics_data = [ForgottenTopic(topic="t", partitions=[0])]
    cache.open(forgetting, 11, 0)
    assert (len(first), len(second), [one.liveness is None for one in progress]) == (0, 1, [True, False])
    cache.open(request(full.session_id, -1), 11, 0)
    assert (len(second), progress[1].liveness) == (0, None)


def test_what_is_forgotten_and_what_is_closed_may_not_rest() -> None:
    """A request that waited may still hold such a partition or session."""
    cache = sessions()
    full = cache.open(request(0, 0, 0, 1), 11, 0)
    assert full.session is not None
    may_rest = [full.session.reading.may_begin_idle(asked) for asked in full.partitions]
    forgetting = request(full.session_id, 1)
    forgetting.forgotten_topics_data = [ForgottenTopic(topic="t", partitions=[0])]
    cache.open(forgetting, 11, 0)
    may_rest += [full.session.reading.may_begin_idle(asked) for asked in full.partitions]
    cache.open(request(full.session_id, -1), 11, 0)
    assert may_rest == [True, True, False, True]
    assert [len(at_rest(full, number)) for number in (0, 1)] == [0, 0]
    assert not full.session.reading.idle


def test_a_request_without_session_gets_none_and_every_row() -> None:
    cache = sessions()
    plan = cache.open(request(0, -1, 0, 1), 11, 0)
    assert (plan.session_id, len(cache)) == (0, 0)
    assert told(plan, row(0), row(1)) == [0, 1]


def test_an_incremental_reply_names_what_changed_and_nothing_else() -> None:
    cache = sessions()
    full = cache.open(request(0, 0, 0, 1, 2), 11, 0)
    assert full.session_id > 0
    assert told(full, row(0), row(1), row(2)) == [0, 1, 2]
    second = cache.open(request(full.session_id, 1), 11, 0)
    assert order(second) == [0, 1, 2]
    assert told(second, row(0), row(1, 6), row(2, records=b"x")) == [1, 2]
    third = cache.open(request(full.session_id, 2), 11, 0)
    assert told(third, row(0), row(1, 6), row(2)) == []


def test_a_moved_log_start_is_told() -> None:
    cache = sessions()
    full = cache.open(request(0, 0, 0), 11, 0)
    told(full, row(0))
    moved = row(0)
    moved.log_start_offset = 3
    assert told(cache.open(request(full.session_id, 1), 11, 0), moved) == [0]


def test_the_end_of_an_error_is_told() -> None:
    cache = sessions()
    full = cache.open(request(0, 0, 0), 11, 0)
    told(full, row(0))
    assert told(cache.open(request(full.session_id, 1), 11, 0), row(0, error_code=6)) == [0]
    assert told(cache.open(request(full.session_id, 2), 11, 0), row(0)) == [0]
    assert told(cache.open(request(full.session_id, 3), 11, 0), row(0)) == []


def test_partitions_that_gave_records_move_to_the_end_of_the_order() -> None:
    cache = sessions()
    full = cache.open(request(0, 0, 0, 1, 2), 11, 0)
    told(full, row(0), row(1), row(2))
    plan = cache.open(request(full.session_id, 1), 11, 0)
    told(plan, row(0, records=b"x"), row(1), row(2))
    assert order(cache.open(request(full.session_id, 2), 11, 0)) == [1, 2, 0]


def test_partitions_are_added_changed_and_forgotten() -> None:
    cache = sessions()
    full = cache.open(request(0, 0, 0, 1), 11, 0)
    change = request(full.session_id, 1, 1, 2, offset=9)
    change.forgotten_topics_data = [ForgottenTopic(topic="t", partitions=[0])]
    plan = cache.open(change, 11, 0)
    assert [(p.partition, p.fetch_offset) for p in plan.partitions] == [(1, 9), (2, 9)]


def test_forgetting_everything_ends_the_session() -> None:
    cache = sessions()
    full = cache.open(request(0, 0, 0), 11, 0)
    last = request(full.session_id, 1)
    last.forgotten_topics_data = [ForgottenTopic(topic="t", partitions=[0])]
    plan = cache.open(last, 11, 0)
    assert (plan.session_id, order(plan), len(cache)) == (0, [], 0)


@pytest.mark.parametrize(
    ("session_offset", "epoch", "version", "code"),
    [
        (1, 1, 11, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (0, 2, 11, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (0, 1, 13, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
    ],
)
def test_a_session_that_is_not_as_the_client_thinks(
    session_offset: int, epoch: int, version: int, code: ErrorCode
) -> None:
    cache = sessions()
    full = cache.open(request(0, 0, 0), 11, 0)
    with pytest.raises(ApiError) as error:
        cache.open(request(full.session_id + session_offset, epoch), version, 0)
    assert error.value.code == code


def test_epochs_wrap_to_one() -> None:
    cache = sessions()
    full = cache.open(request(0, 0, 0), 11, 0)
    cache._sessions[full.session_id].epoch = 2**31 - 1
    cache.open(request(full.session_id, 2**31 - 1), 11, 0)
    cache.open(request(full.session_id, 1), 11, 0)


@pytest.mark.parametrize("epoch", [0, -1])
def test_a_full_request_closes_the_session_it_names(epoch: int) -> None:
    cache = sessions()
    full = cache.open(request(0, 0, 0), 11, 0)
    plan = cache.open(request(full.session_id, epoch, 0), 11, 0)
    assert plan.session_id != full.session_id
    with pytest.raises(ApiError):
        cache.open(request(full.session_id, 1), 11, 0)


def test_topics_may_be_named_by_id() -> None:
    cache = sessions()
    full = cache.open(request(0, 0, 0), 13, 0)
    assert [partition.topic for partition in full.partitions] == [TOPIC_ID]
    gone = request(full.session_id, 1)
    gone.forgotten_topics_data = [ForgottenTopic(topic_id=TOPIC_ID, partitions=[0])]
    assert order(cache.open(gone, 13, 0)) == []


def test_a_full_cache_gives_no_session_until_one_is_unused_for_long() -> None:
    cache = sessions(slots=1)
    first = cache.open(request(0, 0, 0), 11, 0)
    assert cache.open(request(0, 0, 0), 11, EVICTION_MS).session_id == 0
    assert cache.open(request(0, 0, 0), 11, EVICTION_MS + 1).session_id > 0
    with pytest.raises(ApiError):
        cache.open(request(first.session_id, 1), 11, EVICTION_MS + 1)
    assert len(cache) == 1


def test_a_larger_session_takes_the_place_of_an_old_smaller_one() -> None:
    cache = sessions(slots=1)
    first = cache.open(request(0, 0, 0), 11, 0)
    cache.open(request(first.session_id, 1), 11, EVICTION_MS)  # used, so not idle
    assert cache.open(request(0, 0, 0), 11, EVICTION_MS + 1).session_id == 0
    assert cache.open(request(0, 0, 0, 1), 11, EVICTION_MS + 1).session_id > 0


def test_a_follower_takes_the_place_of_a_consumer_at_once() -> None:
    cache = sessions(slots=1)
    cache.open(request(0, 0, 0, 1), 11, 0)
    follower = request(0, 0, 0)
    follower.replica_id = 2
    assert cache.open(follower, 11, 0).session_id > 0
    assert cache.open(request(0, 0, 0, 1, 2), 11, 0).session_id == 0


def test_sessions_remember_only_so_many_partitions() -> None:
    """A client may name as many as a request holds, in as many sessions as there are slots."""
    cache = FetchSessions(10, random.Random(1), max_partitions=5)
    assert cache.open(request(0, 0, *range(6)), 11, 0).session_id == 0
    first = cache.open(request(0, 0, 0, 1, 2), 11, 0)
    assert first.session_id > 0
    assert cache.open(request(0, 0, 0, 1, 2), 11, 0).session_id == 0
    second = cache.open(request(0, 0, 0, 1), 11, 0)
    assert second.session_id > 0
    assert len(cache.open(request(first.session_id, 1, 0, 1), 11, 0).partitions) == 3
    # One that outgrows the rest is ended: its client makes a full request, and gets none.
    with pytest.raises(ApiError) as error:
        cache.open(request(second.session_id, 1, 7), 11, 0)
    assert error.value.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(cache) == 1
    cache.open(request(0, 0, 5, 6, 7, 8), 11, EVICTION_MS + 1)
    with pytest.raises(ApiError):
        cache.open(request(first.session_id, 2), 11, EVICTION_MS + 1)
