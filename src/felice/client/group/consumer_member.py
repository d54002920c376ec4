"""A consumer as the member of a classic group: its subscription, its assignment, and what it owns. Pure.

Keeps true:  Commits carry the generation of the last completed join. A rebalance revokes the partitions that were owned
             and are no longer assigned; an eager member owns nothing while it joins.
Leaves:      the protocol that all groups share to `member`, requests, waiting and callbacks to `consumer_membership`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from felice.assignment import ASSIGNORS, RebalanceProtocol
from felice.assignment import Subscription as MemberSubscription
from felice.assignment import TopicPartition as AssignorPartition
from felice.client.group.member import GroupSettings, Member
from felice.client.group.requests import Committer
from felice.client.model import Partition
from felice.client.net.requests import by_topic
from felice.dataclass import dataclass
from felice.protocol.codec import decode_data, encode_data
from felice.protocol.messages.consumer_protocol import (
    AssignedTopic,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from felice.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse

_SUBSCRIPTION_VERSION = 3
_ASSIGNMENT_VERSION = 0


@dataclass(frozen=True, slots=True)
class Change:
    """How a rebalance changes the partitions of this member."""

    assigned: tuple[Partition, ...]
    added: tuple[Partition, ...]
    revoked: tuple[Partition, ...]


class ConsumerMember(Member):
    """The state of one consumer in its group; every method is one step of the protocol."""

    def __init__(
        self, settings: GroupSettings, assignors: tuple[str, ...], rack_id: str | None = None
    ) -> None:
        super().__init__(settings)
        self.owned: frozenset[Partition] = frozenset()
        self._assignors = assignors
        self._rack_id = rack_id
        self._last_generation = -1
        self._last_assigned: tuple[Partition, ...] = ()

    @property
    def cooperative(self) -> bool:
        """True if the member rebalances cooperatively (KIP-429); all assignors of a group have one kind."""
        return all(ASSIGNORS[name].protocol is RebalanceProtocol.COOPERATIVE for name in self._assignors)

    @property
    def committer(self) -> Committer:
        """The identity with which this member commits."""
        return Committer(self.generation, self.member_id, self.settings.instance_id)

    def join_request(self, topics: Iterable[str], reason: str) -> JoinGroupRequest:
        """A JoinGroup request with the member's subscription under each assignor."""
        wanted = sorted(topics)
        return self.join([(name, self._metadata(name, wanted)) for name in self._assignors], reason)

    def _metadata(self, assignor: str, topics: list[str]) -> bytes:
        last = [AssignorPartition(*partition) for partition in self._last_assigned]
        owned = sorted(self.owned) if self.cooperative else []
        subscription = ConsumerProtocolSubscription(
            topics=topics,
            user_data=ASSIGNORS[assignor].user_data(last, self._last_generation),
            owned_partitions=_to_wire(owned),
            generation_id=self._last_generation,
            rack_id=self._rack_id,
        )
        return encode_data(subscription, _SUBSCRIPTION_VERSION)

    @staticmethod
    def subscriptions(response: JoinGroupResponse) -> dict[str, MemberSubscription]:
        """Return the subscription of every member; only the leader receives them."""
        members: dict[str, MemberSubscription] = {}
        for row in response.members:
            asked = decode_data(ConsumerProtocolSubscription, row.metadata)
            members[row.member_id] = MemberSubscription(
                topics=tuple(asked.topics),
                owned=tuple(
                    AssignorPartition(*partition) for partition in _from_wire(asked.owned_partitions)
                ),
                generation=asked.generation_id,
                instance_id=row.group_instance_id,
                rack_id=asked.rack_id,
                user_data=asked.user_data,
            )
        return members

    def assignments(
        self, subscriptions: Mapping[str, MemberSubscription], partition_counts: Mapping[str, int]
    ) -> dict[str, bytes]:
        """As the leader, assign partitions to every member, with the assignor that the group chose."""
        assert self.protocol_name is not None
        chosen = ASSIGNORS[self.protocol_name].assign(subscriptions, partition_counts)
        return {
            member_id: encode_data(
                ConsumerProtocolAssignment(assigned_partitions=_to_wire(sorted(partitions))),
                _ASSIGNMENT_VERSION,
            )
            for member_id, partitions in chosen.items()
        }

    def on_assignment(self, data: bytes) -> Change:
        """Compare the assignment with the owned partitions; the caller then revokes, adds and calls `own`."""
        rows = decode_data(ConsumerProtocolAssignment, data).assigned_partitions if data else []
        assigned = tuple(_from_wire(rows))
        self._last_generation = self.generation
        self._last_assigned = assigned
        return Change(
            assigned,
            tuple(partition for partition in assigned if partition not in self.owned),
            tuple(sorted(self.owned.difference(assigned))),
        )

    def own(self, partitions: Iterable[Partition]) -> None:
        """Note the partitions that the member owns from now on."""
        self.owned = frozenset(partitions)


def _to_wire(partitions: Iterable[Partition]) -> list[AssignedTopic]:
    return [AssignedTopic(topic=topic, partitions=numbers) for topic, numbers in by_topic(partitions).items()]


def _from_wire(rows: Iterable[AssignedTopic]) -> list[Partition]:
    return [(row.topic, number) for row in rows for number in row.partitions]
