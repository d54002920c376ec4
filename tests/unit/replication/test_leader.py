"""The leader's decisions one by one; `tests/scenarios/replication` shows them together."""

from __future__ import annotations

import pytest

from felice.metadata.image import PartitionImage
from felice.protocol.errors import ApiError, ErrorCode
from felice.replication.leader import FollowerProgress, Leader, SessionLiveness

LAG_MS = 1000
REGISTERED = {1: 10, 2: 20, 3: 30}


def image(*isr: int, partition_epoch: int = 0, replicas: tuple[int, ...] = (1, 2, 3)) -> PartitionImage:
    return PartitionImage(0, replicas, leader=1, leader_epoch=4, isr=isr, partition_epoch=partition_epoch)


def leader(*isr: int, epoch_start_offset: int = 0) -> Leader:
    return Leader(1, image(*isr), epoch_start_offset=epoch_start_offset, now_ms=0)


def fetch(of: Leader, replica: int, offset: int, *, end: int = 10, now_ms: int = 0, epoch: int = -2) -> None:
    of.on_follower_fetch(
        replica,
        offset,
        log_start_offset=0,
        log_end_offset=end,
        current_leader_epoch=4,
        now_ms=now_ms,
        broker_epoch=REGISTERED[replica] if epoch == -2 else epoch,
        registered_epoch=REGISTERED[replica],
    )


def watermark(of: Leader, known: int = 0, *, end: int = 10, now_ms: int = 0, min_isr: int = 1) -> int:
    return of.next_high_watermark(
        known,
        committable_offset=end,
        log_end_offset=end,
        min_insync_replicas=min_isr,
        lag_time_max_ms=LAG_MS,
        broker_epoch_of=REGISTERED.get,
        now_ms=now_ms,
    )


def shrunk(of: Leader, now_ms: int, end: int = 10) -> tuple[int, ...] | None:
    proposal = of.propose_shrinkage(
        0, log_end_offset=end, lag_time_max_ms=LAG_MS, broker_epoch_of=REGISTERED.get, now_ms=now_ms
    )
    return proposal.isr if proposal else None


def test_a_follower_with_all_records_is_caught_up_now() -> None:
    progress = FollowerProgress()
    progress.on_fetch(10, 0, 10, 500)
    assert progress.caught_up_ms == 500
    # The follower lags again, also behind the leader's end at its last fetch.
    progress.on_fetch(10, 0, 30, 900)
    assert progress.caught_up_ms == 500
    progress.on_fetch(20, 0, 40, 950)
    assert progress.caught_up_ms == 500
    progress.on_fetch(40, 0, 60, 990)
    assert progress.caught_up_ms == 950


def test_the_watermark_is_the_least_of_the_maximal_isr() -> None:
    led = leader(1, 2)
    fetch(led, 2, 7)
    assert watermark(led, now_ms=5000) == 7
    fetch(led, 3, 7)
    assert led.propose_expansion(3, 7, REGISTERED.get) is not None
    fetch(led, 2, 10)
    # The expansion may have been written, even if the replica lags by now.
    assert watermark(led, 7, now_ms=5000) == 7


def test_the_watermark_waits_for_a_replica_that_is_about_to_join_and_never_falls() -> None:
    led = leader(1)
    fetch(led, 2, 5, end=5)
    assert watermark(led, 5, now_ms=LAG_MS) == 5
    assert watermark(led, 8, now_ms=LAG_MS) == 8
    assert watermark(led, 5, now_ms=LAG_MS + 1) == 10
    # A broker that is not registered as it was when it fetched cannot join.
    led = leader(1)
    fetch(led, 2, 5, end=5, epoch=21)
    assert watermark(led, 5) == 10


def test_a_joining_replica_has_all_committed_records_and_reaches_the_start_of_the_epoch() -> None:
    led = leader(1, epoch_start_offset=6)
    for offset, high_watermark, joins in ((5, 3, False), (6, 3, True), (6, 7, False), (7, 7, True)):
        fetch(led, 2, offset)
        proposal = led.propose_expansion(2, high_watermark, REGISTERED.get)
        assert (proposal is not None) == joins
        if proposal is not None:
            assert (proposal.isr, proposal.joining) == ((1, 2), {2: 20})
            led.on_proposal_refused(proposal)


@pytest.mark.parametrize(("fetched_under", "joins"), [(20, True), (-1, True), (21, False)])
def test_a_replica_joins_under_the_registration_with_which_it_fetched(
    fetched_under: int, joins: bool
) -> None:
    led = leader(1)
    fetch(led, 2, 10, epoch=fetched_under)
    assert (led.propose_expansion(2, 10, REGISTERED.get) is not None) == joins


def test_a_replica_of_a_broker_that_is_away_does_not_join() -> None:
    led = leader(1)
    fetch(led, 2, 10)
    assert led.propose_expansion(2, 10, lambda broker: None) is None


def test_one_isr_change_is_under_way_at_a_time() -> None:
    led = leader(1, 2)
    fetch(led, 3, 10)
    proposal = led.propose_expansion(3, 10, REGISTERED.get)
    assert proposal is not None
    assert shrunk(led, 10_000) is None
    assert led.propose_expansion(3, 10, REGISTERED.get) is None
    assert led.on_proposal_committed(proposal, 1)
    assert led.isr == (1, 2, 3)
    assert shrunk(led, 10_000) == (1, 3)


def test_a_newer_state_replaces_a_proposal() -> None:
    led = leader(1, 2)
    fetch(led, 3, 10)
    proposal = led.propose_expansion(3, 10, REGISTERED.get)
    assert proposal is not None
    led.follow(image(1, partition_epoch=2))
    assert not led.on_proposal_committed(proposal, 1)
    assert (led.isr, led.partition_epoch, led.proposal) == ((1,), 2, None)
    # An image that is older than the written state changes nothing.
    led.follow(image(1, 2, 3, partition_epoch=1))
    assert led.isr == (1,)


def test_a_proposal_that_an_image_brought_is_not_taken_twice() -> None:
    led = leader(1, 2)
    fetch(led, 3, 10)
    proposal = led.propose_expansion(3, 10, REGISTERED.get)
    assert proposal is not None
    led.proposal = proposal
    led.partition_epoch = 5
    assert not led.on_proposal_committed(proposal, 5)


def test_a_member_with_all_records_stays_even_if_its_last_fetch_is_long_ago() -> None:
    led = leader(1, 2, 3)
    fetch(led, 2, 10)
    fetch(led, 3, 9)
    assert shrunk(led, LAG_MS) is None
    assert shrunk(led, LAG_MS + 1) == (1, 2)


def test_a_member_that_registered_again_leaves_the_isr_until_it_fetches() -> None:
    led = leader(1, 2)
    fetch(led, 2, 10, epoch=20)
    assert led.propose_shrinkage(
        0, log_end_offset=10, lag_time_max_ms=LAG_MS, broker_epoch_of={2: 25}.get, now_ms=0
    )


def test_a_member_that_fetches_earlier_offsets_again_leaves_the_isr() -> None:
    led = leader(1, 2, 3)
    fetch(led, 2, 7)
    fetch(led, 3, 8)
    proposal = led.propose_shrinkage(
        8, log_end_offset=10, lag_time_max_ms=LAG_MS, broker_epoch_of=REGISTERED.get, now_ms=0
    )
    assert proposal is not None
    assert proposal.isr == (1, 3)


def test_a_broker_without_a_replica_gets_an_error() -> None:
    led = Leader(1, image(1, 2, replicas=(1, 2)), epoch_start_offset=0, now_ms=0)
    for epoch, code in ((4, ErrorCode.UNKNOWN_LEADER_EPOCH), (-1, ErrorCode.NOT_LEADER_OR_FOLLOWER)):
        with pytest.raises(ApiError) as error:
            led.check_follower(3, epoch)
        assert error.value.code == code


def test_a_replica_that_was_added_is_followed_and_one_that_was_removed_is_forgotten() -> None:
    led = Leader(1, image(1, 2, replicas=(1, 2)), epoch_start_offset=0, now_ms=0)
    fetch(led, 2, 10)
    led.follow(image(1, 2, replicas=(1, 2, 3)))
    assert led.followers[2].log_end_offset == 10
    fetch(led, 3, 4)
    led.follow(image(1, partition_epoch=1, replicas=(1, 3)))
    assert list(led.followers) == [3]


def test_dead_replicas_do_not_hold_up_the_low_watermark() -> None:
    led = leader(1, 2, 3)
    led.followers[2].log_start_offset = 5
    assert led.low_watermark(8, {2: 20}.get) == 5
    assert led.low_watermark(8, {3: 30}.get) == -1
    assert led.low_watermark(8, lambda broker: None) == 8


def test_an_idle_follower_is_caught_up_while_its_session_is_alive() -> None:
    led, liveness = leader(1, 2), SessionLiveness()
    fetch(led, 2, 10)
    resting = led.begin_idle(2, 10, 10, liveness)
    assert resting is not None
    liveness.last_fetch_ms = 5000
    # After an append the lag counts from the session's last fetch.
    assert shrunk(led, 5000 + LAG_MS, end=11) is None
    resting.end_idle(liveness)
    liveness.last_fetch_ms = 9000
    assert resting.caught_up_ms == 5000
    assert shrunk(led, 5001 + LAG_MS, end=11) == (1,)


def test_only_a_member_rests_that_has_all_there_is_and_all_that_is_committed() -> None:
    led = leader(1, 2)
    fetch(led, 2, 9)
    fetch(led, 3, 10)
    assert led.begin_idle(3, 10, 10, SessionLiveness()) is None
    assert led.begin_idle(2, 10, 10, SessionLiveness()) is None
    fetch(led, 2, 10)
    assert led.begin_idle(2, 10, 9, SessionLiveness()) is None
    assert led.begin_idle(2, 10, 10, SessionLiveness()) is not None


def test_a_session_that_ends_late_leaves_the_liveness_of_the_next() -> None:
    led, old, new = leader(1, 2), SessionLiveness(), SessionLiveness(7000)
    fetch(led, 2, 10)
    led.begin_idle(2, 10, 10, old)
    progress = led.begin_idle(2, 10, 10, new)
    assert progress is not None
    progress.end_idle(old)
    assert progress.is_caught_up(11, 7000 + LAG_MS, LAG_MS)
