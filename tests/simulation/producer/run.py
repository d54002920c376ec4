"""One simulation run of a producer: its topic is created late, and everything that it calls may fail."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from felice.client.admin.model import NewTopic
from felice.client.aio import Admin
from felice.client.error import KafkaException
from felice.env import Environment
from felice.protocol.errors import ErrorCode
from simulation.observations import PLAIN, Sent
from simulation.plan import Plan
from simulation.producer.application import ProducingApplication
from simulation.producer.plan import producer_plan_of
from simulation.run import RunResult, SimulationRun, execute
from simulation.workload import WorkloadClient, as_read, read_to_end

_POLL_INTERVAL_S = 0.02


def simulate(seed: int, change: Callable[[Plan], Plan] = lambda plan: plan) -> RunResult:
    """Run the simulation of a producer for this seed. `change` may alter the plan first."""
    return execute(change(producer_plan_of(seed)), ProducerRun)


class ProducerRun(SimulationRun):
    """One run with one broker and one application."""

    async def _make_topics(self) -> None:
        """Start to create the topic, at a moment that the seed chooses."""
        while not self._is_ready():
            await asyncio.sleep(_POLL_INTERVAL_S)
        delay_s = self._random.choice((0.0, 0.05, 0.3)) * self._random.random()
        self._creation = asyncio.ensure_future(self._create_topic(delay_s))
        if self._random.random() < 0.2:
            await self._creation  # known from the beginning

    async def _create_topic(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        incarnation = self._world.machine("a0").boot()

        async def make() -> None:
            async with Admin(self._shared.client, env=incarnation.env) as admin:
                while not await self._try_to_create(admin):
                    await asyncio.sleep(_POLL_INTERVAL_S)

        await incarnation.run(make())
        self._world.machine("a0").kill()

    async def _try_to_create(self, admin: Admin) -> bool:
        try:
            made = await admin.create_topics([NewTopic(PLAIN, self._plan.partitions, 1)])
        except KafkaException:
            return False  # the broker is down, or does not answer
        error = made[PLAIN]
        return not isinstance(error, KafkaException) or error.code == ErrorCode.TOPIC_ALREADY_EXISTS

    def _make_clients(self) -> list[WorkloadClient]:
        return [ProducingApplication(self._shared, "p1")]

    async def _read(self, env: Environment) -> None:
        await self._creation
        observations, partitions = self._observations, self._plan.partitions
        plain = await read_to_end(self._shared, env, PLAIN, partitions, "read_uncommitted")
        observations.final[PLAIN] = [as_read(message) for message in plain]
        delivered = {(row.thread, row.number): row for row in observations.reports if row.offset is not None}
        for call in observations.called:
            row = delivered.get((call.thread, call.number))
            if row is None:  # it may be in any partition, or in none
                observations.sent += [Sent(call.thread, call.number, p, 0) for p in range(partitions)]
            else:
                observations.sent.append(Sent(call.thread, call.number, row.partition, 0, row.offset, 0))
