"""The workers of `felice mirror`: one for each flow, in one process with one Spark."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence

from felice.pipelines.connect.configuration.mirroring import Flow
from felice.pipelines.connect.configuration.worker_options import WorkerConfig, worker_config
from felice.pipelines.connect.herder.distributed import DistributedWorker
from felice.pipelines.connect.herder.errors import NotHere, RequestError
from felice.pipelines.connect.herder.server import worker_server
from felice.pipelines.connect.herder.worker import Address, Worker
from felice.pipelines.connect.model.errors import ConfigError, ConnectError
from felice.pipelines.connect.plugins import Plugins
from felice.pipelines.connect.runtime.shared_jobs import SharedJobs
from felice.pipelines.connect.runtime.tasks import Jobs
from felice.web.forwarding import Forwarder
from felice.web.serving import WebServer

CONFIGURED_WITHIN_S = 60.0
START_AGAIN_S = 10.0
"""The wait before a flow is started again whose target cluster could not be reached."""
_RETRY_S = 0.5

_log = logging.getLogger("felice.connect.mirror")


class Mirror:
    """All flows of a file. `start` and `stop` it on one event loop."""

    def __init__(
        self,
        flows: Sequence[Flow],
        jobs: Callable[[WorkerConfig], Jobs],
        plugins: Plugins | None = None,
        on_ready: Callable[[str, str], None] = lambda flow, url: None,
    ) -> None:
        """`jobs` makes what runs tasks, of the options of a worker. `on_ready` gets a flow's name, and the address of
        its REST API. Raises `ConfigError`.
        """
        self._configs = {one.name: worker_config(one.worker, distributed=True) for one in flows}
        self.without_effect = sorted({name for one in self._configs.values() for name in one.without_effect})
        """The options of workers that have no effect here."""
        self._flows = flows
        self._jobs = SharedJobs(jobs(next(iter(self._configs.values()))))
        self._plugins = plugins
        self._on_ready = on_ready
        self._servers: dict[str, WebServer] = {}
        self._starting: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Starts all flows. One that cannot be started is tried again, unless all cannot.

        Raises `ConnectError`, and as `WebServer.start` does.
        """
        try:
            found = await asyncio.gather(*(self._start(one) for one in self._flows), return_exceptions=True)
        except asyncio.CancelledError:
            await self.stop()
            raise
        failed = [(flow, error) for flow, error in zip(self._flows, found, strict=True) if error is not None]
        fatal = [error for _, error in failed if not _may_pass(error)]
        if fatal or len(failed) == len(self._flows):
            await self.stop()
            raise fatal[0] if fatal else failed[0][1]
        for flow, error in failed:
            _log.warning("the flow %s cannot be started yet: %s", flow.name, error)
            self._starting.append(asyncio.create_task(self._start_again(flow)))

    async def stop(self) -> None:
        """Stops all flows."""
        for task in self._starting:
            task.cancel()
        await asyncio.gather(*self._starting, return_exceptions=True)
        await asyncio.gather(*(server.stop() for server in self._servers.values()), return_exceptions=True)
        await self._jobs.end()

    async def _start(self, flow: Flow) -> None:
        config = self._configs[flow.name]
        address = Address(config)
        worker = DistributedWorker(config, self._jobs, address, Forwarder(), self._plugins)
        server = worker_server(worker, address, after_start=_Configures(flow).after_start)
        await server.start()
        self._servers[flow.name] = server
        self._on_ready(flow.name, server.url)

    async def _start_again(self, flow: Flow) -> None:
        while True:
            await asyncio.sleep(START_AGAIN_S)
            try:
                return await self._start(flow)
            except ConnectError as error:
                _log.warning("the flow %s cannot be started yet: %s", flow.name, error)


def _may_pass(error: BaseException) -> bool:
    """Whether a flow may be started later that could not be started: its options are right."""
    return isinstance(error, ConnectError) and not isinstance(error, ConfigError | RequestError)


class _Configures:
    """Gives a worker the configurations of its flow."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow

    async def after_start(self, worker: Worker) -> None:
        """Puts what differs from the group's configurations. Raises `ConnectError`."""
        for name, config in self._flow.connectors.items():
            if worker.configs.connectors.get(name) != config:
                await self._put(worker, name, config)

    async def _put(self, worker: Worker, name: str, config: Mapping[str, str]) -> None:
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + CONFIGURED_WITHIN_S
        while True:
            try:
                await worker.herder.put_config(name, config, waits=False)
                return
            except NotHere as error:
                if error.url is not None:
                    # The options of the group are those of the process that leads.
                    _log.info("%s: another process leads; its options of %s count", self._flow.name, name)
                    return
                if loop.time() > give_up_at:
                    text = f"{self._flow.name}: the group of workers chose no leader in {CONFIGURED_WITHIN_S:g} s"
                    raise ConnectError(text) from None
            await asyncio.sleep(_RETRY_S)
