"""Which broker serves a consumer: a partition's leader, or the replica that the leader named (KIP-392). Pure.

Keeps true:  A leader names a replica if the request has a rack. The consumer then fetches from that replica for
             `metadata.max.age.ms`, as Java's consumer does, and then asks the leader again. It returns to the leader at
             once if the leader or its epoch changes, and if the replica fails, is offline or is not in the metadata.
             After a failure its requests name no rack for a while, so that the leader sends the records itself: until
             the leader notices that a replica is gone, it would name that replica again. The time doubles with each
             failure until a replica answers, because each attempt to reach a replica behind a firewall lasts until the
             connection times out.
Times are in seconds, all of one clock.
"""

from __future__ import annotations

from collections.abc import Iterable

from felice.client.model import Partition
from felice.client.net.topology import Topology
from felice.dataclass import dataclass

_WITHOUT_RACK_S = 30.0
"""By then a leader has removed a dead replica from the ISR (the default of `replica.lag.time.max.ms`)."""
_MOST_WITHOUT_RACK_S = 600.0


@dataclass(frozen=True, slots=True)
class _Named:
    """A replica, the leader that named it, and until when it is used."""

    node_id: int
    leader_id: int
    leader_epoch: int
    until: float


class ReadReplicas:
    """The replicas that leaders named to one consumer. `rack` is `client.rack`, empty if it is not set."""

    def __init__(self, topology: Topology, rack: str, max_age_s: float) -> None:
        self._topology = topology
        self._rack = rack
        self._max_age_s = max_age_s
        self._named: dict[Partition, _Named] = {}
        self._without_rack_until: dict[Partition, float] = {}
        self._next_pause_s: dict[Partition, float] = {}

    def node_of(self, partition: Partition, now: float) -> int:
        """Return the broker to fetch from; NO_LEADER if the partition has no leader or is unknown."""
        named = self._named.get(partition)
        if named is not None:
            if now < named.until and self._is_valid(partition, named):
                return named.node_id
            del self._named[partition]
        return self._topology.leader(*partition)

    def _is_valid(self, partition: Partition, named: _Named) -> bool:
        known = self._topology.partition(*partition)
        return (
            known is not None
            and (known.leader_id, known.leader_epoch) == (named.leader_id, named.leader_epoch)
            and named.node_id in self._topology.brokers
            and named.node_id in known.replicas
            and named.node_id not in known.offline
        )

    def follow(self, partition: Partition, node_id: int, now: float) -> bool:
        """Fetch from the replica that the leader named; False if the metadata does not have it or it is offline."""
        leader_id, epoch = self._topology.leader(*partition), self._topology.leader_epoch(*partition)
        named = _Named(node_id, leader_id, epoch, now + self._max_age_s)
        if self._is_valid(partition, named):
            self._named[partition] = named
            return True
        self.leave(partition, now)
        return False

    def leave(self, partition: Partition, now: float) -> None:
        """Return to the leader, because the replica failed."""
        self._named.pop(partition, None)
        pause_s = self._next_pause_s.get(partition, _WITHOUT_RACK_S)
        self._without_rack_until[partition] = now + pause_s
        self._next_pause_s[partition] = min(2 * pause_s, _MOST_WITHOUT_RACK_S)

    def answered(self, partition: Partition) -> None:
        """Forget the failures, because a replica answered without an error."""
        self._next_pause_s.pop(partition, None)

    def rack_for(self, partitions: Iterable[Partition], now: float) -> str:
        """Return the rack for a Fetch request of these partitions; empty if the leader must serve one of them."""
        until = self._without_rack_until
        for partition in [key for key, end in until.items() if end <= now]:
            del until[partition]
        return "" if any(partition in until for partition in partitions) else self._rack
