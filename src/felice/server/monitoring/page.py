"""The pages that Prometheus reads.

Keeps true: each page is computed at most once a second, and once at a time, however many clients ask for it: later
            ones get the same page. So no client can make the broker spend much on it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from felice.config import BrokerConfig
from felice.env import Clock
from felice.server.lifecycle import Lifecycle
from felice.server.metrics.exposition import render
from felice.server.metrics.families import Families
from felice.server.metrics.loop_watch import LoopWatch
from felice.server.metrics.names import Dialect
from felice.server.metrics.process import process
from felice.server.monitoring import cluster, coordinators, quotas, replicas, requests, traffic
from felice.server.monitoring.sources import Sources

_log = logging.getLogger("felice.server")

MIN_INTERVAL_S = 1.0

COLLECTORS: dict[str, Callable[[Sources], Families]] = {
    "requests": requests.requests,
    "connections": requests.connections,
    "replicas": replicas.totals,
    "controller": cluster.controller,
    "store": cluster.store,
    "directories": cluster.directories,
    "groups": coordinators.groups,
    "transactions": coordinators.transactions,
    "quotas": quotas.quotas,
    "topics": traffic.topics,
    "partitions": replicas.partitions,
    "logs": replicas.logs,
    "lag": coordinators.lag,
}
"""By their names in `felice.metrics.families`. The long ones come last."""


class Page:
    """A page of one collector."""

    def __init__(
        self, clock: Clock, config: Callable[[], BrokerConfig], collect: Callable[[], Families]
    ) -> None:
        self._clock = clock
        self._config = config
        self._collect = collect
        self._pieces: list[bytes] = []
        self._made_s = float("-inf")
        self._making: asyncio.Task[None] | None = None

    async def pieces(self) -> list[bytes]:
        """The page, not older than a second."""
        if self._making is None and self._clock.monotonic() - self._made_s >= MIN_INTERVAL_S:
            self._making = asyncio.create_task(self._make())
        if self._making is not None:
            # Other clients wait for the same page.
            await asyncio.shield(self._making)
        return self._pieces

    async def finish(self) -> None:
        """Returns when no computation reads the broker's components."""
        if self._making is not None:
            await asyncio.wait([self._making])

    async def _make(self) -> None:
        try:
            dialect = Dialect(self._config().felice_metrics_names)
            self._pieces = await render(self._collect(), dialect, self._clock)
            self._made_s = self._clock.monotonic()
        finally:
            self._making = None


class MetricsPages:
    """The metrics of the broker, and those that clients pushed.

    Without `sources`, while the broker recovers its logs, the first page has the metrics of the process only, and the
    second one none.
    """

    def __init__(
        self, clock: Clock, config: Callable[[], BrokerConfig], lifecycle: Lifecycle, watch: LoopWatch
    ) -> None:
        self.sources: Sources | None = None
        self.broker = Page(clock, config, self._of_broker)
        self.clients = Page(clock, config, self._of_clients)
        self._config = config
        self._lifecycle = lifecycle
        self._watch = watch

    async def finish(self) -> None:
        """Returns when no computation reads the broker's components."""
        await self.broker.finish()
        await self.clients.finish()

    def _of_broker(self) -> Families:
        yield from process(self._lifecycle, self._watch)
        for name, collect in COLLECTORS.items():
            # The components may have been stopped while the last collector paused.
            if self.sources is not None and name in self._config().felice_metrics_families:
                yield from collect(self.sources)
        if self.sources is not None:
            self.sources.remote_offsets.refresh()

    def _of_clients(self) -> Families:
        if self.sources is not None:
            yield from self.sources.services.telemetry.series.families()
