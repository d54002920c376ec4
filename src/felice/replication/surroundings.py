"""What a partition needs to know of the world around it, and the one thing that it asks of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from felice.env import Clock
from felice.replication.leader import BrokerEpochOf, IsrProposal

if TYPE_CHECKING:
    from felice.replication.partition import Partition


def _nobody(broker_id: int) -> int | None:
    return None


def _refuse(partition: Partition, proposal: IsrProposal) -> None:
    partition.on_proposal_refused(proposal)


@dataclass(slots=True)
class Surroundings:
    """Shared by all partitions of a broker. As made, it is that of a broker without others."""

    clock: Clock
    lag_time_max_ms: Callable[[], int] = lambda: 30_000
    broker_epoch_of: BrokerEpochOf = _nobody
    propose: Callable[[Partition, IsrProposal], None] = _refuse

    def monotonic_ms(self) -> int:
        return int(self.clock.monotonic() * 1000)
