"""Members of one consumer group (KIP-848), each with its own connection, who come and go.

A member does what Java's consumer does: a heartbeat each interval that the broker names, and one at once when it has
given up partitions or has joined. Time is measured until every partition has exactly one member and all have equally
many, from the moment when members join or leave.
"""

from __future__ import annotations

import asyncio
import struct
import time
import uuid
from contextlib import suppress

from bench.systems import System, cpu_seconds
from bench.workloads import Figures, scratch_topic

MEMBERS = 100
PARTITIONS = 1000
LEAVING = 20
LIMIT_S = 120.0
_POLL_S = 0.01


class Member:
    """One member with its connection."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self._bootstrap, self._group, self._topic = bootstrap, group, topic
        self.member_id = str(uuid.uuid4())
        self.epoch = 0
        self.uses: set[int] = set()
        self._owned: list[object] = []
        self._correlation_id = 0
        self._task: asyncio.Task[None] | None = None

    async def join(self) -> None:
        """Connects, joins, and goes on with heartbeats in a task."""
        host, _, port = self._bootstrap.rpartition(":")
        self._reader, self._writer = await asyncio.open_connection(host, int(port))
        await self._beat()
        self._task = asyncio.create_task(self._stay())

    async def leave(self) -> None:
        """Leaves the group and closes the connection."""
        assert self._task is not None
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        self.uses, self.epoch = set(), -1
        await self._beat()
        self._writer.close()

    async def _stay(self) -> None:
        while True:
            changed = await self._beat()
            if not changed:
                await asyncio.sleep(self._interval_s)

    async def _beat(self) -> bool:
        """Sends a heartbeat; returns whether its answer changed what the member has."""
        from felice.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

        joins = self.epoch == 0
        answer = await self._ask(
            ConsumerGroupHeartbeatRequest(
                group_id=self._group,
                member_id=self.member_id,
                member_epoch=self.epoch,
                rebalance_timeout_ms=60_000 if joins else -1,
                subscribed_topic_names=[self._topic] if joins else None,
                topic_partitions=[] if joins else list(self._owned),
            )
        )
        if answer.error_code:
            raise RuntimeError(f"{self.member_id}: {answer.error_code} {answer.error_message}")
        self.epoch, self._interval_s = answer.member_epoch, answer.heartbeat_interval_ms / 1000
        if answer.assignment is None:
            return False
        self._owned = answer.assignment.topic_partitions
        self.uses = {
            partition for topic in answer.assignment.topic_partitions for partition in topic.partitions
        }
        return not joins

    async def _ask(self, request: object) -> object:
        from felice.protocol.api import API
        from felice.protocol.codec import decode
        from felice.protocol.frames import encode_request

        api = API.CONSUMER_GROUP_HEARTBEAT
        self._correlation_id += 1
        self._writer.write(encode_request(api.key, 1, self._correlation_id, "bench", request))
        (size,) = struct.unpack(">i", await self._reader.readexactly(4))
        frame = await self._reader.readexactly(size)
        return decode(api.response, frame[5:], 1)


def group(system: System) -> Figures:
    """100 members join; 20 of them leave; 20 others join: 1,000 partitions."""
    with scratch_topic(system.bootstrap, PARTITIONS) as topic:
        return asyncio.run(_run(system, topic))


async def _run(system: System, topic: str) -> Figures:
    name = f"bench-{uuid.uuid4().hex[:8]}"
    members = [Member(system.bootstrap, name, topic) for _ in range(MEMBERS)]
    figures: Figures = {}
    await _until_coordinated(system.bootstrap, name, topic)
    begun_cpu = cpu_seconds(system.pid)

    async def measured(what: str, change: list[object]) -> None:
        begun = time.perf_counter()
        await asyncio.gather(*change)  # type: ignore[arg-type]
        await _until_stable(members)
        figures[f"{what} stable after s"] = time.perf_counter() - begun

    await measured(f"{MEMBERS} join", [member.join() for member in members])
    leaving, members = members[:LEAVING], members[LEAVING:]
    await measured(f"{LEAVING} leave", [member.leave() for member in leaving])
    coming = [Member(system.bootstrap, name, topic) for _ in range(LEAVING)]
    members += coming
    await measured(f"{LEAVING} join", [member.join() for member in coming])
    figures["broker cpu s"] = cpu_seconds(system.pid) - begun_cpu
    await asyncio.gather(*(member.leave() for member in members))
    return figures


async def _until_coordinated(bootstrap: str, group_id: str, topic: str) -> None:
    """The first lookup of a coordinator creates `__consumer_offsets`. A member tries until it can join."""
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": bootstrap})
    with suppress(Exception):  # there is no such group yet
        admin.describe_consumer_groups([group_id])[group_id].result(30)
    while True:
        first = Member(bootstrap, group_id, topic)
        try:
            await first.join()
        except RuntimeError:
            await asyncio.sleep(0.2)
        else:
            await first.leave()
            return


async def _until_stable(members: list[Member]) -> None:
    deadline = time.perf_counter() + LIMIT_S
    while True:
        used = [partition for member in members for partition in member.uses]
        sizes = {len(member.uses) for member in members}
        if len(used) == len(set(used)) == PARTITIONS and max(sizes) - min(sizes) <= 1:
            return
        if time.perf_counter() > deadline:
            raise RuntimeError(f"not stable: {len(set(used))} of {PARTITIONS} partitions are used")
        await asyncio.sleep(_POLL_S)
