"""The leader's view of one partition, for one leader epoch: follower progress, in-sync replicas, high watermark.

Keeps true:  R1  high watermark <= log end offset of every member of the maximal ISR, and it never falls
                 within one leader epoch.
             R3  the watermark does not pass a record while fewer replicas than min.insync.replicas are in sync.
             R4  one change of the ISR is under way at a time. Until its outcome is known, the high watermark
                 and acknowledgements count with the larger of the two sets.
Decides only. `partition.py` appends, wakes waiting requests and hands proposals to `isr.py`, which writes them.
Pure: times are arguments, in milliseconds of a clock that never goes back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field

from felice.dataclass import dataclass
from felice.metadata.image import PartitionImage
from felice.metadata.layout import NO_LEADER, StateNode
from felice.protocol.errors import ApiError, ErrorCode

UNKNOWN = -1
NEVER_MS = -(2**62)

# The registered epoch of a broker that may be in sync; None while it is away or shutting down.
BrokerEpochOf = Callable[[int], int | None]


@dataclass(slots=True)
class SessionLiveness:
    """When a follower last fetched in one fetch session. It holds for all idle partitions of that session."""

    last_fetch_ms: int = NEVER_MS


@dataclass(slots=True)
class FollowerProgress:
    """What a follower's fetches of one partition said.

    While the partition is idle, each fetch would say the same again: only the session's liveness is noted.
    """

    log_end_offset: int = UNKNOWN
    log_start_offset: int = UNKNOWN
    broker_epoch: int = UNKNOWN
    last_fetch_ms: int = NEVER_MS
    caught_up_ms: int = NEVER_MS
    leader_end_at_last_fetch: int = UNKNOWN
    liveness: SessionLiveness | None = None

    def on_fetch(self, offset: int, log_start_offset: int, leader_end_offset: int, now_ms: int) -> None:
        """Notes a fetch from `offset`, and whether the follower had all records at this fetch or the one before."""
        if offset >= leader_end_offset:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif offset >= self.leader_end_at_last_fetch:
            # It has reached the leader's end at its previous fetch: under constant load no follower has everything.
            self.caught_up_ms = max(self.caught_up_ms, self.last_fetch_ms)
        self.log_end_offset = offset
        self.log_start_offset = max(self.log_start_offset, log_start_offset)
        self.leader_end_at_last_fetch = leader_end_offset
        self.last_fetch_ms = max(self.last_fetch_ms, now_ms)

    def is_caught_up(self, leader_end_offset: int, now_ms: int, lag_time_max_ms: int) -> bool:
        """Whether the follower has all records, or had them within the last `lag_time_max_ms` (KIP-16)."""
        caught_up_ms = self.caught_up_ms
        if self.liveness is not None:
            caught_up_ms = max(caught_up_ms, self.liveness.last_fetch_ms)
        return self.log_end_offset == leader_end_offset or now_ms - caught_up_ms <= lag_time_max_ms

    def end_idle(self, liveness: SessionLiveness) -> None:
        """The partition becomes active: until now the follower had everything at each of the session's fetches."""
        if self.liveness is liveness:
            self.last_fetch_ms = max(self.last_fetch_ms, liveness.last_fetch_ms)
            self.caught_up_ms = max(self.caught_up_ms, liveness.last_fetch_ms)
            self.liveness = None


@dataclass(frozen=True, slots=True)
class IsrProposal:
    """The in-sync replicas that the leader wants, based on one partition epoch."""

    isr: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int
    # Replicas that join, and the broker epoch under which each of them fetched (KIP-903).
    joining: Mapping[int, int] = field(default_factory=dict)


class Leader:
    """The leader for one leader epoch. The next epoch gets a new object."""

    def __init__(
        self, broker_id: int, image: PartitionImage, *, epoch_start_offset: int, now_ms: int
    ) -> None:
        self.broker_id = broker_id
        self.epoch = image.leader_epoch
        self.epoch_start_offset = epoch_start_offset
        # The largest high watermark of this leader epoch, in which the high watermark never falls.
        self.high_watermark = UNKNOWN
        self.followers: dict[int, FollowerProgress] = {}
        self.proposal: IsrProposal | None = None
        self.isr = image.isr
        self.partition_epoch = image.partition_epoch
        self.replicas = image.replicas
        self.follow(image)
        for replica in self.isr:
            if replica in self.followers:
                # A grace period: the replica was in sync under the previous leader.
                self.followers[replica].caught_up_ms = now_ms

    # Facts

    @property
    def is_alone(self) -> bool:
        """Whether the partition has no other replica."""
        return not self.followers

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        """The ISR, and the replicas that a proposal under way would add to it."""
        if self.proposal is None:
            return self.isr
        joining = tuple(replica for replica in self.proposal.isr if replica not in self.isr)
        return self.isr + joining

    def is_under_min_isr(self, min_insync_replicas: int) -> bool:
        """Whether fewer replicas are in sync than acks=all needs; a topic with fewer replicas needs all of them."""
        return len(self.isr) < min(min_insync_replicas, len(self.replicas))

    def may_show_latest(self, high_watermark: int) -> bool:
        """Whether clients may see the latest offset (KIP-207).

        A new leader's watermark may be below the offset that its predecessor has already shown to consumers.
        """
        return high_watermark >= self.epoch_start_offset

    def low_watermark(self, own_start: int, broker_epoch_of: BrokerEpochOf) -> int:
        """The smallest log start of the live replicas."""
        starts = [
            follower.log_start_offset
            for replica, follower in self.followers.items()
            if broker_epoch_of(replica) is not None
        ]
        return min([own_start, *starts])

    # Changes made by others

    def follow(self, image: PartitionImage) -> None:
        """Takes a newer state of this epoch: an ISR that another broker wrote, or another set of replicas."""
        if image.partition_epoch > self.partition_epoch:
            self.isr = image.isr
            self.partition_epoch = image.partition_epoch
            self.proposal = None
        self.replicas = image.replicas
        others = [replica for replica in image.replicas if replica != self.broker_id]
        self.followers = {replica: self.followers.get(replica) or FollowerProgress() for replica in others}

    # Followers

    def check_follower(self, replica: int, current_leader_epoch: int) -> FollowerProgress:
        """The progress of a follower. Raises `ApiError` if the broker has no replica, as far as this leader knows."""
        follower = self.followers.get(replica)
        if follower is None:
            # The follower or this broker has an old image; which of the two is unknown.
            known = current_leader_epoch >= 0
            code = ErrorCode.UNKNOWN_LEADER_EPOCH if known else ErrorCode.NOT_LEADER_OR_FOLLOWER
            raise ApiError(code, f"broker {replica} is no replica of this partition")
        return follower

    def on_follower_fetch(
        self,
        replica: int,
        offset: int,
        *,
        log_start_offset: int,
        log_end_offset: int,
        broker_epoch: int,
        current_leader_epoch: int,
        registered_epoch: int | None,
        now_ms: int,
    ) -> None:
        """The follower has everything below `offset`. Raises `ApiError` if it cannot be believed."""
        follower = self.check_follower(replica, current_leader_epoch)
        if 0 <= broker_epoch < (registered_epoch if registered_epoch is not None else UNKNOWN):
            # Sent before the follower's restart: it may have lost records since (KIP-903).
            raise ApiError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {replica} was registered again since it asked"
            )
        follower.broker_epoch = broker_epoch
        follower.on_fetch(offset, log_start_offset, log_end_offset, now_ms)

    def begin_idle(
        self, replica: int, offset: int, high_watermark: int, liveness: SessionLiveness
    ) -> FollowerProgress | None:
        """The follower's progress if its fetches from `offset`, our log's end, say nothing new until something changes
        here; None if they may.
        """
        follower = self.followers.get(replica)
        if follower is None or replica not in self.isr:
            return None
        if follower.log_end_offset != offset or high_watermark != offset:
            return None
        follower.liveness = liveness
        return follower

    # High watermark

    def next_high_watermark(
        self,
        high_watermark: int,
        *,
        committable_offset: int,
        log_end_offset: int,
        min_insync_replicas: int,
        lag_time_max_ms: int,
        broker_epoch_of: BrokerEpochOf,
        now_ms: int,
    ) -> int:
        """The new high watermark. `committable_offset`: how far the leader's own log counts."""
        if self.is_under_min_isr(min_insync_replicas):
            # Otherwise acknowledged records would be on fewer replicas than the topic demands.
            return high_watermark
        lowest = committable_offset
        maximal_isr = self.maximal_isr
        for replica, follower in self.followers.items():
            if follower.log_end_offset < lowest and (
                replica in maximal_isr
                or self._is_about_to_join(replica, log_end_offset, lag_time_max_ms, broker_epoch_of, now_ms)
            ):
                lowest = follower.log_end_offset
        return max(high_watermark, lowest)

    def is_held_by_all(self, offset: int) -> bool:
        """R1: whether every other member of the maximal ISR has reported a log end offset of at least `offset`."""
        maximal_isr = self.isr if self.proposal is None else self.maximal_isr
        for replica, follower in self.followers.items():
            if follower.log_end_offset < offset and replica in maximal_isr:
                return False
        return True

    def _is_about_to_join(
        self,
        replica: int,
        log_end_offset: int,
        lag_time_max_ms: int,
        broker_epoch_of: BrokerEpochOf,
        now_ms: int,
    ) -> bool:
        """Without waiting for such a follower, the watermark would always stay ahead of it."""
        return self._is_eligible(replica, broker_epoch_of) and self.followers[replica].is_caught_up(
            log_end_offset, now_ms, lag_time_max_ms
        )

    # In-sync replicas

    def propose_expansion(
        self, replica: int, high_watermark: int, broker_epoch_of: BrokerEpochOf
    ) -> IsrProposal | None:
        """After a fetch of `replica`: proposes that it joins, if it has all records that a member must have."""
        follower = self.followers.get(replica)
        if self.proposal is not None or follower is None or replica in self.isr:
            return None
        has_all = follower.log_end_offset >= max(high_watermark, self.epoch_start_offset)
        if not has_all or not self._is_eligible(replica, broker_epoch_of):
            return None
        return self._propose((*self.isr, replica), {replica: follower.broker_epoch})

    def propose_shrinkage(
        self,
        high_watermark: int,
        *,
        log_end_offset: int,
        lag_time_max_ms: int,
        broker_epoch_of: BrokerEpochOf,
        now_ms: int,
    ) -> IsrProposal | None:
        """Proposes to remove the members that lag for too long, or may have lost records."""
        if self.proposal is not None:
            return None
        kept = tuple(
            replica
            for replica in self.isr
            if replica == self.broker_id
            or (
                replica in self.followers
                and self.followers[replica].is_caught_up(log_end_offset, now_ms, lag_time_max_ms)
                and not self._has_bounced(replica, high_watermark, broker_epoch_of)
            )
        )
        return self._propose(kept) if len(kept) < len(self.isr) else None

    def _has_bounced(self, replica: int, high_watermark: int, broker_epoch_of: BrokerEpochOf) -> bool:
        """Whether the replica's broker registered again since it fetched, or fetches from below the high watermark.

        The write that lets a replica join checks that its broker is registered, but the store cannot check that it is
        the same registration: before that write the broker may restart with fewer records.
        """
        follower, registered = self.followers[replica], broker_epoch_of(replica)
        if UNKNOWN < follower.log_end_offset < high_watermark:
            return True
        return (
            follower.broker_epoch != UNKNOWN
            and registered is not None
            and follower.broker_epoch != registered
        )

    def _is_eligible(self, replica: int, broker_epoch_of: BrokerEpochOf) -> bool:
        registered = broker_epoch_of(replica)
        fetched_under = self.followers[replica].broker_epoch
        return registered is not None and fetched_under in (UNKNOWN, registered)

    def _propose(self, isr: tuple[int, ...], joining: Mapping[int, int] | None = None) -> IsrProposal:
        ordered = tuple(replica for replica in self.replicas if replica in isr)
        self.proposal = IsrProposal(ordered, self.epoch, self.partition_epoch, joining or {})
        return self.proposal

    def on_proposal_committed(self, proposal: IsrProposal, partition_epoch: int) -> bool:
        """Returns False if a newer state came first."""
        if self.proposal is not proposal or partition_epoch <= self.partition_epoch:
            return False
        self.isr, self.partition_epoch, self.proposal = proposal.isr, partition_epoch, None
        return True

    def on_proposal_refused(self, proposal: IsrProposal) -> None:
        """The proposal was certainly not written: the current ISR stays."""
        if self.proposal is proposal:
            self.proposal = None


# Resigning, when the replica's disk failed


def without(
    broker_id: int, state: StateNode, replicas: tuple[int, ...], fallbacks: tuple[int, ...] = ()
) -> StateNode | None:
    """The state in which `broker_id` neither leads nor is in sync; None if it cannot, or need not, leave.

    The last member of the ISR stays: no other replica is known to have all committed records. If the topic allows
    an unclean election, the first of the `fallbacks` takes over with the records that it has.
    """
    rest = tuple(one for one in state.isr if one != broker_id and one in replicas) or fallbacks[:1]
    if not rest or (broker_id not in state.isr and state.leader != broker_id):
        return None
    if state.leader != broker_id:
        return StateNode(state.leader, state.leader_epoch, state.controller_epoch, rest)
    ranked = [replica for replica in replicas if replica in rest]
    successor = ranked[0] if ranked else NO_LEADER
    return StateNode(successor, state.leader_epoch + 1, state.controller_epoch, rest)
