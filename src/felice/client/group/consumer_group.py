"""The interfaces between a consumer and its membership, which are the same for both group protocols.

`ConsumerMembership` implements the classic protocol, in which the leader of the group assigns the partitions, and
`EpochMembership` that of KIP-848, in which the broker assigns them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import Protocol

from felice.client.error import KafkaError, KafkaException, error_of
from felice.client.group.requests import Committer
from felice.client.model import Partition
from felice.client.net.cluster import Cluster
from felice.protocol.patterns import Pattern


class GroupMember(Protocol):
    """The state of a member, for its consumer."""

    member_id: str
    """An empty text before the member has an id."""
    expelled: bool
    """True after it lost its membership: other members may have what was assigned to it."""

    @property
    def joined(self) -> bool:
        """True while the coordinator knows the member."""

    @property
    def committer(self) -> Committer:
        """The identity with which the member commits now."""


class GroupMembership(Protocol):
    """A consumer's membership in a group. Runs on the loop from `start` to `end` and `leave`."""

    rebalance_count: int

    @property
    def member(self) -> GroupMember:
        """The state of the member."""

    @property
    def stable(self) -> bool:
        """True while an assignment is in force."""

    @property
    def cooperative(self) -> bool:
        """True if a rebalance takes and gives single partitions, and leaves the others as they are."""

    @property
    def last_reason(self) -> str:
        """The reason for the last rebalance, if this member knows it."""

    @property
    def rebalance_age_ms(self) -> int:
        """Milliseconds since the last assignment came into force, or since the start."""

    def start(self) -> None:
        """Start the tasks."""

    def rejoin(self, why: str) -> None:
        """Tell the coordinator of a new subscription as soon as possible."""

    async def is_renewed(self, used: Committer) -> bool:
        """Wait for a newer identity than one that the coordinator calls stale; False if there is none."""

    async def end(self) -> None:
        """Stop rebalancing, and give everything up. `leave` may follow."""

    async def leave(self, reason: str) -> None:
        """Leave the group, after `end`."""


class Rebalances(Protocol):
    """The consumer's reactions to a rebalance: assigning, revoking, reporting errors."""

    async def on_assign(self, partitions: Sequence[Partition]) -> None:
        """Take over these partitions."""

    async def on_revoke(self, partitions: Sequence[Partition]) -> None:
        """Give these partitions up, after a commit."""

    async def on_lost(self, partitions: Sequence[Partition]) -> None:
        """Give these partitions up without a commit: other members may own them."""

    def on_group_error(self, error: KafkaError, topic: str = "") -> None:
        """Report an error of the group to the application."""

    def on_fatal_error(self, error: KafkaError) -> None:
        """Report an error after which this consumer cannot be a member again."""

    def polled_at(self) -> float:
        """Return the loop time of the application's last poll."""


class Interest(Protocol):
    """The topics that the consumer subscribes to, by name and by pattern."""

    topics: frozenset[str]
    expression: str | None
    pattern: Pattern | None

    def wanted_topics(self, existing: Iterable[str]) -> set[str]:
        """Return the subscribed topics, given the existing ones."""


class SubscribedTopics:
    """Keeps the metadata of the subscribed topics, and reports those that do not exist."""

    def __init__(self, cluster: Cluster, subscription: Interest, rebalances: Rebalances) -> None:
        self._cluster = cluster
        self._subscription = subscription
        self._rebalances = rebalances
        self._complained: set[str] = set()

    @property
    def missing(self) -> list[str]:
        """The subscribed topics without a known partition."""
        topology = self._cluster.topology
        return [name for name in self._subscription.topics if not topology.partition_count(name)]

    async def refresh(self) -> None:
        """Request metadata of the subscribed topics, or of all topics if this client resolves a pattern."""
        subscription = self._subscription
        self._cluster.interesting |= subscription.topics
        with contextlib.suppress(KafkaException):
            if subscription.pattern is not None:
                await self._cluster.refresh(None)
            else:
                names = sorted(subscription.topics)
                await self._cluster.refresh(
                    names, allow_auto_create=self._cluster.settings.allow_auto_create_topics
                )

    def report_missing(self, names: Iterable[str]) -> None:
        """Report those of these topics that the brokers do not know, each topic once."""
        for name in names:
            code = self._cluster.topology.topic_errors.get(name, 0)
            if name not in self._complained and code:
                self._complained.add(name)
                error = error_of(code, f"subscribed topic not available: {name}")
                self._rebalances.on_group_error(error, name)
