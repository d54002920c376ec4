"""A cluster of brokers in one process that share one store on disk: for development and tests.

Keeps true: each broker has its own session, ports and directories. It knows the other brokers only from the store and
            over the network, as if they ran on other machines. A broker that stopped or died may be started again.
How:        all brokers share one event loop. The store is in `DIR/metadata`, the logs of broker N in `DIR/broker-N`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path

from felice.config import BrokerConfig, Listener, directory_text
from felice.config.kafka_only import is_kafkas, nearest, why_no_broker
from felice.config.monitoring import METRICS_LISTENER, listener_of
from felice.env import Environment
from felice.env.ports import free_ports
from felice.env.variables import SystemSources
from felice.log.meta_properties import FILE_NAME as META_PROPERTIES
from felice.metadata.embedded import EmbeddedStore
from felice.server.broker import Broker
from felice.server.membership.store_sources import STORE_DIRECTORY, SharedSource, StoreFiles
from felice.server.net.listener import check_free
from felice.server.startup import StartupError

_log = logging.getLogger("felice.server")
MAX_BROKERS = 100
_REPLICAS = 3


def local_settings(broker_count: int) -> dict[str, str]:
    """Returns options for brokers on one machine: no rebalance delay, and up to three replicas.

    There are as many replicas as brokers, if those are fewer than three.
    """
    replicas = min(_REPLICAS, broker_count)
    return {
        "group.initial.rebalance.delay.ms": "0",
        "default.replication.factor": str(replicas),
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": "2" if replicas == _REPLICAS else "1",
    }


class LocalCluster:
    """Call `start`, let the brokers serve, and call `stop`.

    Broker ids count from 1. Port 0 gives each broker a free port, which it keeps when it is started again.
    """

    def __init__(
        self,
        data_dir: str | Path,
        broker_count: int,
        host: str,
        port: int,
        properties: Mapping[str, str],
        env: Environment | None = None,
        racks: Sequence[str] = (),
    ) -> None:
        if not 1 <= broker_count <= MAX_BROKERS:
            raise StartupError(f"the number of brokers must be 1 to {MAX_BROKERS}, not {broker_count}")
        if port and port + broker_count > 65_536:
            raise StartupError(f"{broker_count} ports from {port} on would exceed 65535")
        # Absolute: an embedded cluster's process may change its working directory between two starts of a broker.
        self._directory = Path(data_dir).absolute()
        self._host = host
        # The racks of the brokers in the order of their ids. They repeat if there are more brokers than racks.
        self._racks = racks
        self.properties = {**local_settings(broker_count), **properties}
        self._env = env or Environment.system()
        self._files = StoreFiles(self._env.disk, self._directory / STORE_DIRECTORY)
        self._store: EmbeddedStore | None = None
        ids = range(1, broker_count + 1)
        ports = range(port, port + broker_count) if port else free_ports(broker_count)
        self.ports = dict(zip(ids, ports, strict=True))
        # The running brokers.
        self.brokers: dict[int, Broker] = {}

    async def start(self) -> None:
        """Starts all brokers, and returns when every one is ready.

        Raises `StartupError` and leaves nothing running if one cannot start.
        """
        if self._env.disk.exists(self._directory / META_PROPERTIES):
            raise StartupError(
                f"{self._directory} belongs to a broker that stands alone; choose another directory"
            )
        await check_free(self._env.network, self.addresses)
        self._store = self._files.open()
        try:
            starts = [self.start_broker(broker_id) for broker_id in self.ports]
            for failure in await asyncio.gather(*starts, return_exceptions=True):
                if isinstance(failure, BaseException):
                    raise failure
        except BaseException:
            await self.kill()
            raise

    @property
    def addresses(self) -> list[Listener]:
        """The addresses of all brokers, running or not."""
        return [Listener("PLAINTEXT", self._host, port) for port in self.ports.values()]

    async def start_broker(self, broker_id: int) -> Broker:
        """Starts a broker that does not run, at its previous address."""
        if broker_id in self.brokers:
            return self.brokers[broker_id]
        assert self._store is not None, "the cluster was started"
        source = SharedSource(self._store.connect)
        broker = Broker(self.config(broker_id), self._env, store_source=source)
        await broker.start()
        self.brokers[broker_id] = broker
        self.ports[broker_id] = broker.port()  # a property `listeners` may name another
        return broker

    async def stop_broker(self, broker_id: int) -> None:
        """Stops a broker cleanly; the other brokers take over its leaderships."""
        broker = self.brokers.pop(broker_id, None)
        if broker is not None:
            await broker.stop()

    async def kill_broker(self, broker_id: int) -> None:
        """Ends a broker like `kill -9`. Its session ends at once, because the store is in this process."""
        broker = self.brokers.pop(broker_id, None)
        if broker is not None:
            await broker.kill()

    async def stop(self) -> None:
        """Stops all brokers and the store. Raises the first error of a broker."""
        # All brokers stop together: no broker remains that could take over leaderships.
        brokers, self.brokers = list(self.brokers.values()), {}
        await self._end(
            [broker.retire() for broker in brokers], [broker.stop(hand_over=False) for broker in brokers]
        )

    async def kill(self) -> None:
        """Ends all brokers like `kill -9`, and closes the store."""
        await self._end([self.kill_broker(broker_id) for broker_id in list(self.brokers)])

    async def _end(self, *steps: Sequence[Coroutine[None, None, None]]) -> None:
        """Runs the steps on all brokers and closes the store, even if a broker fails."""
        outcomes: list[BaseException | None] = []
        try:
            for step in steps:
                outcomes += await asyncio.gather(*step, return_exceptions=True)
        finally:
            await self._close_store()
        for outcome in outcomes:
            if outcome is not None:
                raise outcome

    async def _close_store(self) -> None:
        if self._store is not None:
            await self._store.close()
            self._store = None
        self._files.release()

    def properties_of(self, broker_id: int) -> dict[str, str]:
        """The shared options. Only the port for metrics differs between brokers."""
        listener = self.properties.get(METRICS_LISTENER)
        if listener is None:
            return dict(self.properties)
        return {**self.properties, METRICS_LISTENER: listener_of(listener, broker_id - 1)}

    def config(self, broker_id: int) -> BrokerConfig:
        """Returns the configuration of a broker. Raises `StartupError` for unknown names."""
        properties = {
            "listeners": str(Listener("PLAINTEXT", self._host, self.ports[broker_id])),
            "log.dirs": directory_text(self._directory / f"broker-{broker_id}"),
            **self.properties_of(broker_id),
            **({"broker.rack": self._racks[(broker_id - 1) % len(self._racks)]} if self._racks else {}),
            "node.id": str(broker_id),
        }
        return known_config(properties)


def known_config(properties: Mapping[str, str]) -> BrokerConfig:
    """Parses properties, as `felice start` does: Kafka's options that have no effect here are logged.

    Raises `StartupError` for names that Kafka does not know either, and for a KRaft node without a broker of its own.
    """
    if (reason := why_no_broker(properties)) is not None:
        raise StartupError(reason)
    config, others = BrokerConfig.parse(properties, sources=SystemSources())
    kafkas = [name for name in others if is_kafkas(name)]
    if kafkas:
        _log.warning("these options of Kafka have no effect here: %s", ", ".join(kafkas))
    if unknown := set(others).difference(kafkas):
        raise StartupError(f"unknown configuration: {', '.join(map(_with_suggestion, sorted(unknown)))}")
    return config


def _with_suggestion(name: str) -> str:
    return name if (meant := nearest(name)) is None else f"{name} (did you mean {meant}?)"
