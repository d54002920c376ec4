"""The parts of a broker that its partitions use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Protocol
from uuid import UUID

from felice.dataclass import dataclass
from felice.env import Clock
from felice.replication.leader import BrokerEpochOf, IsrProposal
from felice.replication.traffic import BrokerTraffic


class ProposingPartition(Protocol):
    """A partition, as the writer of its in-sync set sees it."""

    @property
    def name(self) -> str:
        """`topic-partition`, for log lines."""
        ...

    @property
    def topic(self) -> str:
        """The topic's name, a part of the state node's path."""
        ...

    @property
    def partition(self) -> int:
        """The partition's number within its topic."""
        ...

    @property
    def topic_id(self) -> UUID:
        """The topic's id: a write is refused if the name belongs to another topic by now."""
        ...

    def awaits(self, proposal: IsrProposal) -> bool:
        """Whether the outcome still matters to the leader."""
        ...

    def on_proposal_committed(self, proposal: IsrProposal, partition_epoch: int) -> None:
        """The proposal was written; the state node's new version is `partition_epoch`."""
        ...

    def on_proposal_refused(self, proposal: IsrProposal) -> None:
        """The proposal was certainly not written: a joining broker is no longer registered as it was."""
        ...


def _no_brokers(broker_id: int) -> int | None:
    return None


def _refuse(partition: ProposingPartition, proposal: IsrProposal) -> None:
    partition.on_proposal_refused(proposal)


@dataclass(slots=True)
class PartitionDependencies:
    """The parts of a broker that its partitions use. The defaults are those of a broker without a cluster."""

    clock: Clock
    lag_time_max_ms: Callable[[], int] = lambda: 30_000
    broker_epoch_of: BrokerEpochOf = _no_brokers
    propose: Callable[[ProposingPartition, IsrProposal], None] = _refuse
    traffic: BrokerTraffic = field(default_factory=BrokerTraffic)

    def monotonic_ms(self) -> int:
        """The monotonic clock in whole milliseconds, as `Leader` counts time."""
        return int(self.clock.monotonic() * 1000)
