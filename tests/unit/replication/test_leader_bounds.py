"""The leader's decisions at their bounds, where one less or one more would decide otherwise."""

from __future__ import annotations

import pytest

from felice.metadata.image import PartitionImage
from felice.metadata.layout import StateNode
from felice.protocol.errors import ApiError, ErrorCode
from felice.replication.leader import FollowerProgress, IsrProposal, Leader, SessionLiveness, without

from .test_leader import LAG_MS, REGISTERED, fetch, image, leader, shrunk, watermark


def test_a_follower_is_in_sync_up_to_the_last_millisecond_of_its_lag() -> None:
    progress = FollowerProgress()
    progress.on_fetch(10, 0, 10, 500)
    assert progress.is_caught_up(11, 500 + LAG_MS, LAG_MS)
    assert not progress.is_caught_up(11, 501 + LAG_MS, LAG_MS)
    assert progress.is_caught_up(10, 10**9, LAG_MS), "it has all there is"


def test_a_follower_that_reaches_the_leader_s_end_of_its_last_fetch_was_caught_up_then() -> None:
    progress = FollowerProgress()
    progress.on_fetch(5, 0, 10, 100)
    assert progress.caught_up_ms < 0
    progress.on_fetch(9, 0, 20, 200)
    assert progress.caught_up_ms < 0
    progress.on_fetch(20, 0, 30, 300)
    assert progress.caught_up_ms == 200
    # A clock of an earlier answer does not take it back.
    progress.on_fetch(30, 3, 30, 250)
    assert (progress.caught_up_ms, progress.last_fetch_ms) == (250, 300)
    progress.on_fetch(31, 2, 31, 240)
    assert (progress.caught_up_ms, progress.log_start_offset, progress.log_end_offset) == (250, 3, 31)


def test_the_end_of_an_idle_session_keeps_its_last_fetch() -> None:
    progress, session = FollowerProgress(), SessionLiveness(700)
    progress.liveness = session
    assert progress.is_caught_up(99, 700 + LAG_MS, LAG_MS)
    progress.end_idle(SessionLiveness(900))
    assert progress.liveness is session
    progress.end_idle(session)
    assert (progress.last_fetch_ms, progress.caught_up_ms, progress.liveness) == (700, 700, None)


def test_replicas_in_sync_under_the_previous_leader_have_a_grace_period() -> None:
    of = Leader(1, image(1, 2), epoch_start_offset=0, now_ms=5000)
    assert of.followers[2].caught_up_ms == 5000 and of.followers[3].caught_up_ms < 0
    assert shrunk(of, 5000 + LAG_MS) is None
    assert shrunk(of, 5001 + LAG_MS) == (1,)


@pytest.mark.parametrize(
    ("in_sync", "replicas", "minimum", "is_under"),
    [
        ((1,), (1, 2, 3), 2, True),
        ((1, 2), (1, 2, 3), 2, False),
        ((1,), (1,), 2, False),
        ((1,), (1, 2), 3, True),
    ],
)
def test_a_topic_of_fewer_replicas_needs_all_of_them(
    in_sync: tuple[int, ...], replicas: tuple[int, ...], minimum: int, is_under: bool
) -> None:
    of = Leader(1, image(*in_sync, replicas=replicas), epoch_start_offset=0, now_ms=0)
    assert of.is_under_min_isr(minimum) == is_under
    assert of.is_alone == (replicas == (1,))


def test_the_watermark_stays_while_too_few_replicas_are_in_sync() -> None:
    of = leader(1)
    assert watermark(of, 3, min_isr=2) == 3
    assert watermark(of, 3, min_isr=1) == 10


def test_a_new_leader_shows_its_latest_offsets_from_the_start_of_its_epoch_on() -> None:
    of = leader(1, 2, epoch_start_offset=7)
    assert [of.may_show_latest(offset) for offset in (6, 7, 8)] == [False, True, True]


def test_a_replica_that_is_about_to_join_holds_the_watermark_only_while_it_keeps_up() -> None:
    of = leader(1)
    fetch(of, 2, 4, end=4, now_ms=100)
    assert watermark(of, now_ms=100 + LAG_MS) == 4
    assert watermark(of, now_ms=101 + LAG_MS) == 10
    # One that has not fetched at all holds nothing.
    assert watermark(leader(1)) == 10


def test_a_proposal_is_in_the_order_of_the_replicas_and_names_its_base() -> None:
    of = Leader(1, image(3, 1, partition_epoch=6), epoch_start_offset=0, now_ms=0)
    fetch(of, 2, 10)
    proposal = of.propose_expansion(2, 10, REGISTERED.get)
    assert proposal == IsrProposal((1, 2, 3), 4, 6, {2: 20})
    assert of.maximal_isr == (3, 1, 2)
    assert of.propose_expansion(2, 10, REGISTERED.get) is None
    assert (
        of.propose_shrinkage(
            0, log_end_offset=10, lag_time_max_ms=0, broker_epoch_of=REGISTERED.get, now_ms=10**9
        )
        is None
    )


@pytest.mark.parametrize(("offset", "joins"), [(6, False), (7, True)])
@pytest.mark.parametrize(("watermark_", "epoch_start"), [(7, 0), (0, 7)])
def test_a_replica_joins_with_all_that_is_committed_and_all_of_earlier_epochs(
    offset: int, joins: bool, watermark_: int, epoch_start: int
) -> None:
    of = leader(1, epoch_start_offset=epoch_start)
    fetch(of, 2, offset)
    assert (of.propose_expansion(2, watermark_, REGISTERED.get) is not None) == joins


def test_a_member_or_a_stranger_does_not_join() -> None:
    of = leader(1, 2)
    fetch(of, 2, 10)
    assert of.propose_expansion(2, 0, REGISTERED.get) is None
    assert of.propose_expansion(9, 0, REGISTERED.get) is None


def test_a_fetch_of_an_older_registration_is_not_believed() -> None:
    of = leader(1, 2)
    with pytest.raises(ApiError, match="registered again") as error:
        fetch(of, 2, 10, epoch=REGISTERED[2] - 1)
    assert error.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert of.followers[2].log_end_offset == -1
    for epoch in (REGISTERED[2], REGISTERED[2] + 1, -1):
        fetch(of, 2, 10, epoch=epoch)
        assert of.followers[2].broker_epoch == epoch


@pytest.mark.parametrize(
    ("epoch", "code"), [(-1, ErrorCode.NOT_LEADER_OR_FOLLOWER), (0, ErrorCode.UNKNOWN_LEADER_EPOCH)]
)
def test_a_stranger_learns_whether_its_epoch_may_be_newer(epoch: int, code: ErrorCode) -> None:
    with pytest.raises(ApiError, match="broker 9 is no replica") as error:
        leader(1).check_follower(9, epoch)
    assert error.value.code == code


def test_a_member_that_fetches_below_the_watermark_leaves() -> None:
    for offset, left in ((5, None), (4, (1,))):
        of = leader(1, 2)
        fetch(of, 2, offset)
        proposal = of.propose_shrinkage(
            5, log_end_offset=offset, lag_time_max_ms=LAG_MS, broker_epoch_of=REGISTERED.get, now_ms=0
        )
        assert (proposal.isr if proposal else None) == left


def test_a_member_that_is_no_replica_any_more_leaves() -> None:
    of = Leader(1, image(1, 2, 3), epoch_start_offset=0, now_ms=0)
    of.follow(image(1, 2, 3, partition_epoch=1, replicas=(1, 2)))
    assert sorted(of.followers) == [2]
    assert shrunk(of, 0) == (1, 2)


def test_an_older_image_changes_the_replicas_but_not_the_in_sync_set() -> None:
    of = Leader(1, image(1, 2, partition_epoch=5), epoch_start_offset=0, now_ms=0)
    of.follow(PartitionImage(0, (1, 2), 1, 4, (1, 2, 3), partition_epoch=5))
    assert (of.isr, of.partition_epoch, of.replicas) == ((1, 2), 5, (1, 2))


@pytest.mark.parametrize(("epoch", "is_taken"), [(0, False), (1, True)])
def test_a_written_proposal_is_taken_once(epoch: int, is_taken: bool) -> None:
    of = leader(1)
    fetch(of, 2, 10)
    proposal = of.propose_expansion(2, 0, REGISTERED.get)
    assert proposal is not None
    assert of.on_proposal_committed(proposal, epoch) == is_taken
    assert (of.isr, of.proposal) == (((1, 2), None) if is_taken else ((1,), proposal))
    assert of.on_proposal_committed(proposal, 9) != is_taken, "not a second time"


def test_a_refusal_of_an_earlier_proposal_leaves_the_present_one() -> None:
    of = leader(1)
    fetch(of, 2, 10)
    proposal = of.propose_expansion(2, 0, REGISTERED.get)
    assert proposal is not None
    of.on_proposal_refused(IsrProposal((1, 3), 4, 0))
    assert of.proposal is proposal
    of.on_proposal_refused(proposal)
    assert of.proposal is None


def test_the_low_watermark_is_the_least_start_of_live_replicas() -> None:
    of = leader(1, 2, 3)
    of.followers[2].log_start_offset, of.followers[3].log_start_offset = 4, 2
    assert of.low_watermark(7, REGISTERED.get) == 2
    assert of.low_watermark(7, {2: 20}.get) == 4
    assert of.low_watermark(1, REGISTERED.get) == 1
    assert of.low_watermark(7, {}.get) == 7


def test_only_an_idle_member_at_the_watermark_begins_to_be_idle() -> None:
    session = SessionLiveness()
    of = leader(1, 2)
    fetch(of, 2, 10)
    fetch(of, 3, 10)
    assert of.begin_idle(2, 10, 10, session) is of.followers[2]
    assert of.followers[2].liveness is session
    for replica, offset, known in ((9, 10, 10), (3, 10, 10), (2, 9, 9), (2, 10, 9)):
        assert of.begin_idle(replica, offset, known, SessionLiveness()) is None
    assert of.followers[2].liveness is session


@pytest.mark.parametrize(
    ("state", "fallbacks", "after"),
    [
        (StateNode(1, 4, 9, (1, 2, 3)), (), StateNode(2, 5, 9, (2, 3))),
        (StateNode(2, 4, 9, (1, 2)), (), StateNode(2, 4, 9, (2,))),
        (StateNode(1, 4, 9, (2, 3)), (), StateNode(2, 5, 9, (2, 3))),
        (StateNode(2, 4, 9, (2, 3)), (), None),
        (StateNode(1, 4, 9, (1,)), (), None),
        (StateNode(1, 4, 9, (1,)), (3, 2), StateNode(3, 5, 9, (3,))),
        # Broker 7 has no replica, so that broker 1 is the last in-sync one.
        (StateNode(1, 4, 9, (1, 7)), (), None),
        (StateNode(1, 4, 9, (1, 3, 7)), (), StateNode(3, 5, 9, (3,))),
    ],
)
def test_a_resignation(state: StateNode, fallbacks: tuple[int, ...], after: StateNode | None) -> None:
    assert without(1, state, (1, 2, 3), fallbacks) == after
