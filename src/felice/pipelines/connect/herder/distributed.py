"""A distributed worker: its configurations, states and offsets are in topics that all workers of its group share."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from starlette.requests import Request
from starlette.responses import Response

from felice.client.admin import AdminClient
from felice.pipelines.connect.configuration.worker import GROUP, OFFSETS_TOPIC, with_prefix
from felice.pipelines.connect.configuration.worker_options import (
    CONFIG_TOPIC,
    HEARTBEAT_MS,
    REBALANCE_DELAY_MS,
    SESSION_MS,
    STATUS_TOPIC,
    WorkerConfig,
)
from felice.pipelines.connect.herder.errors import NotHere
from felice.pipelines.connect.herder.group import Group
from felice.pipelines.connect.herder.leader_requests import LeaderPublisher
from felice.pipelines.connect.herder.membership import WorkerGroup
from felice.pipelines.connect.herder.offset_stores import OffsetStores, TopicStores
from felice.pipelines.connect.herder.publishing import Publisher
from felice.pipelines.connect.herder.worker import START_S, Address, Worker
from felice.pipelines.connect.model.errors import ConnectError
from felice.pipelines.connect.plugins import Plugins
from felice.pipelines.connect.runtime.tasks import Jobs
from felice.pipelines.connect.storage.journals import Journal, TopicJournal
from felice.pipelines.connect.storage.shared_topic import SharedTopic
from felice.pipelines.connect.task.new_topics import TopicCreation, TopicGroup
from felice.web.forwarding import Forwarder, passed_on

LEADER_WAIT_S = 5.0
"""How long a request waits for a leader, or for another one than that which is away."""
_TURN_S = 0.1

_log = logging.getLogger("felice.connect.herder")


class DistributedWorker(Worker):
    """See the module. It must be made on the event loop on which it runs."""

    waits = False

    def __init__(
        self,
        config: WorkerConfig,
        jobs: Jobs,
        address: Address,
        forwarder: Forwarder,
        plugins: Plugins | None = None,
    ) -> None:
        self.forwarder = forwarder
        self._membership: WorkerGroup
        self._leading: asyncio.Task[None] | None = None
        super().__init__(config, jobs, address, plugins)
        self.others = self

    def _make_group(self) -> Group:
        values = self.config.values
        self._membership = WorkerGroup(
            self.client_settings(),
            values[GROUP],
            lambda: self.address.url,
            self.configs,
            session_timeout_s=values[SESSION_MS] / 1000,
            heartbeat_interval_s=values[HEARTBEAT_MS] / 1000,
            delay_s=values[REBALANCE_DELAY_MS] / 1000,
        )
        return self._membership

    def _make_config_journal(self) -> Journal:
        values = self.config.values
        return TopicJournal(
            self.client_settings(),
            values[CONFIG_TOPIC],
            f"connect-cluster-{values[GROUP]}",
            values["config.storage.replication.factor"],
            self.configs.apply,
            START_S,
            self._topic_configs("config"),
        )

    def _make_status_journal(self) -> Journal:
        client = self.client_settings()
        return SharedTopic(client, client, self.config.values[STATUS_TOPIC], self.statuses.apply)

    def _make_offsets(self) -> OffsetStores:
        return TopicStores(self.worker_config, self.config.values[OFFSETS_TOPIC])

    def _make_publisher(self) -> Publisher:
        return LeaderPublisher(self._membership, self.forwarder, lambda: self.herder)

    async def start(self) -> None:
        """As `Worker.start`; joins the group, too."""
        await asyncio.to_thread(self._create_topics)
        await super().start()
        group, keeper = self._membership, self.keeper
        group.runs, group.settled = keeper.runs, keeper.settled
        group.on_work, group.on_lead = keeper.look_at_all, self._lead
        await group.start(START_S)

    async def stop(self) -> None:
        """As `Worker.stop`; leaves the group when nothing runs any more."""
        await self.keeper.close()
        if self._leading is not None:
            self._leading.cancel()
            await asyncio.gather(self._leading, return_exceptions=True)
        await self._membership.stop()
        await super().stop()
        await self.forwarder.close()

    def _listen(self) -> None:
        super()._listen()
        listener = self.listener
        for name in ("on_connector", "on_removed", "on_tasks", "on_target_state"):
            setattr(listener, name, self._and_group(getattr(listener, name)))

    def _and_group(self, call: Callable[[str], None]) -> Callable[[str], None]:
        """Calls a listener, and then lets the group compare connectors and tasks with its last division."""

        def both(name: str) -> None:
            call(name)
            self._membership.look()

        return both

    # The other workers (`Others`)

    async def wait(self, url: str | None) -> None:
        """As `Others.wait`."""
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + LEADER_WAIT_S
        while (found := self._membership.leader) is None or found == url:
            left_s = give_up_at - loop.time()
            if left_s <= 0:
                return
            await self._membership.wait_changed(left_s)
            await asyncio.sleep(min(_TURN_S, left_s))

    async def pass_on(self, request: Request, url: str) -> Response:
        """As `Others.pass_on`."""
        return await passed_on(request, self.forwarder, url.rstrip("/"))

    def _lead(self) -> None:
        if self._leading is None or self._leading.done():
            self._leading = asyncio.get_running_loop().create_task(self._begin_to_lead())

    async def _begin_to_lead(self) -> None:
        try:
            await self.herder.lead()
        except NotHere:
            pass  # the group divides again, and calls `_lead` again if this worker leads then
        except ConnectError as error:
            _log.warning("this worker leads, and cannot write yet: %s", error)

    def _topic_configs(self, kind: str) -> Mapping[str, str]:
        """The configuration of a topic that is created: options `config.storage.…` beside those of the worker."""
        own = ("topic", "replication.factor", "partitions")
        found = with_prefix(self.config.given, f"{kind}.storage.")
        return {name: text for name, text in found.items() if name not in own}

    def _create_topics(self) -> None:
        """Creates the topics of offsets and states; that of configurations is created when it is read."""
        values = self.config.values
        partitions = {
            "offset": values["offset.storage.partitions"],
            "status": values["status.storage.partitions"],
        }
        for kind, count in partitions.items():
            configs = {"cleanup.policy": "compact", **self._topic_configs(kind)}
            factor = values[f"{kind}.storage.replication.factor"]
            creation = TopicCreation(
                AdminClient(self.client_settings()),
                [TopicGroup(kind, factor, count, configs=configs)],
                START_S,
            )
            try:
                creation.ensure(values[f"{kind}.storage.topic"])
            finally:
                creation.close()
