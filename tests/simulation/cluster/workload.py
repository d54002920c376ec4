"""The clients that run only in clusters."""

from __future__ import annotations

import asyncio

from felice.client.admin.enumerations import AlterConfigOpType, ElectionType, ResourceType
from felice.client.admin.model import ConfigEntry, ConfigResource, NewPartitions, NewTopic
from felice.client.aio import Admin, Producer
from felice.client.error import KafkaError, KafkaException
from felice.env import Environment
from simulation.observations import COPY, DELETED, LEDGER, PLAIN
from simulation.workload import WorkloadClient

_TIMEOUT_S = 3.0


class Reassigner(WorkloadClient):
    """Reassigns partitions, cancels reassignments, elects leaders, adds partitions and changes settings,
    under load.
    """

    async def run(self, env: Environment, incarnation: int) -> None:
        async with Admin(self.shared.client, env=env) as admin:
            while not self.shared.is_finishing:
                act = self.random.choice(
                    (self._move, self._move, self._cancel, self._elect, self._configure, self._widen)
                )
                try:
                    await act(admin)
                except (KafkaException, TimeoutError) as error:
                    self.shared.world.note(f"{self.name}: {error}")
                await self.pause(0.6)
            await self._cancel(admin)

    def _some(self) -> tuple[str, int]:
        topic = self.random.choice((PLAIN, PLAIN, LEDGER, COPY, "__consumer_offsets"))
        return topic, self.random.choice(self.shared.partitions) if topic[0] != "_" else 0

    async def _move(self, admin: Admin) -> None:
        brokers = range(1, len(self.shared.brokers) + 1)
        target = self.random.sample(brokers, self.shared.plan.replicas)
        await admin.alter_partition_reassignments({self._some(): target}, timeout_s=_TIMEOUT_S)

    async def _cancel(self, admin: Admin) -> None:
        moving = await admin.list_partition_reassignments(timeout_s=_TIMEOUT_S)
        if moving:
            await admin.alter_partition_reassignments(dict.fromkeys(moving), timeout_s=_TIMEOUT_S)

    async def _elect(self, admin: Admin) -> None:
        await admin.elect_leaders(ElectionType.PREFERRED, [self._some()], timeout_s=_TIMEOUT_S)

    async def _configure(self, admin: Admin) -> None:
        entry = ConfigEntry(
            "segment.bytes",
            str(self.random.choice((1024, 16384))),
            incremental_operation=AlterConfigOpType.SET,
        )
        resource = ConfigResource(ResourceType.TOPIC, PLAIN, incremental_configs=[entry])
        await admin.incremental_alter_configs([resource], timeout_s=_TIMEOUT_S)

    async def _widen(self, admin: Admin) -> None:
        """Add partitions to a topic. The other clients do not use them."""
        count = self.shared.plan.partitions + self.random.randrange(1, 3)
        await admin.create_partitions([NewPartitions(LEDGER, count)], timeout_s=_TIMEOUT_S)


class RecordDeleter(WorkloadClient):
    """Writes batches of several records to a topic of its own, deletes records in the middle of them, and
    moves the partition to other brokers: new replicas begin where the leader's log starts.
    """

    async def run(self, env: Environment, incarnation: int) -> None:
        plan = self.shared.plan
        config = {**self.shared.client, "linger.ms": 20, "compression.type": plan.codec}
        end_offset = 0
        async with Admin(self.shared.client, env=env) as admin, Producer(config, env=env) as producer:
            topic = NewTopic(DELETED, num_partitions=1, replication_factor=plan.replicas)
            [made] = (await admin.create_topics([topic], _TIMEOUT_S)).values()
            if isinstance(made, KafkaException) and made.code != KafkaError.TOPIC_ALREADY_EXISTS:
                raise made
            while not self.shared.is_finishing:
                try:
                    sent = [
                        await producer.send(DELETED, b"x", partition=0)
                        for _ in range(self.random.randrange(2, 30))
                    ]
                    end_offset = (await asyncio.wait_for(sent[-1], _TIMEOUT_S)).offset() + 1
                    await self._delete(admin, end_offset)
                except (KafkaException, TimeoutError) as error:
                    self.shared.world.note(f"{self.name}: {error}")
                await self.pause(0.3)
            # The last log start lies inside a batch, too.
            await self._delete(admin, end_offset)

    async def _delete(self, admin: Admin, end_offset: int) -> None:
        offset = max(0, end_offset - self.random.randrange(1, 20))
        found = await admin.delete_records({(DELETED, 0): offset}, timeout_s=_TIMEOUT_S)
        self.shared.world.note(f"{self.name}: records before {offset} are deleted: {found}")
        if self.random.random() < 0.5:
            brokers = range(1, len(self.shared.brokers) + 1)
            target = self.random.sample(brokers, self.shared.plan.replicas)
            await admin.alter_partition_reassignments({(DELETED, 0): target}, timeout_s=_TIMEOUT_S)
