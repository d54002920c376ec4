"""The parts of a broker that the collectors of metrics read."""

from __future__ import annotations

from collections.abc import Sequence

from felice.dataclass import dataclass
from felice.metadata import ClusterImage
from felice.server.disks.cleaning import Cleaner
from felice.server.metrics.loop_watch import LoopWatch
from felice.server.metrics.mbeans import Metrics
from felice.server.metrics.remote_offsets import RemoteOffsets
from felice.server.net.listener import Listener
from felice.server.services import Services


@dataclass(frozen=True, slots=True)
class Sources:
    """The components of one broker that runs."""

    services: Services
    cleaner: Cleaner
    listeners: Sequence[Listener]
    loop_watch: LoopWatch
    remote_offsets: RemoteOffsets

    @property
    def metrics(self) -> Metrics:
        """What the broker counts."""
        return self.services.metrics

    @property
    def image(self) -> ClusterImage:
        """The current metadata image."""
        return self.services.image
