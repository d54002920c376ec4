"""Leadership changes made from outside of the cluster, as a controller or an operator would make them."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from felice.client.admin.enumerations import ElectionType
from felice.client.aio import Admin
from felice.client.error import KafkaException
from felice.metadata import layout
from felice.metadata.store import Delete, SetData
from felice.testing.simulation.ensemble import SimEnsemble
from felice.testing.simulation.world import World
from simulation.cluster.observer import ClusterObserver
from simulation.observations import PLAIN
from simulation.workload import SharedState

_NO_SESSION = 0
_PAUSE_S = 0.15


class Takeovers:
    """Writes leaders into the store, removes the controller, and requests preferred elections."""

    def __init__(
        self, world: World, ensemble: SimEnsemble, observer: ClusterObserver, shared: SharedState
    ) -> None:
        self._world = world
        self._ensemble = ensemble
        self._observer = observer
        self._shared = shared
        # The name is part of the seed: another name would change every run.
        self._random = world.random("throne")

    def elect(self, partition: int, fallback: int | None = None) -> None:
        """Write a new leader of a partition into the store, as a controller would.

        The new leader is alive and in the ISR: `fallback` if it qualifies, else a random replica. Nothing is written
        where no other replica qualifies.
        """
        path = layout.state_path(PLAIN, partition)
        node = self._ensemble.tree.find(path)
        if node is None:
            return
        state = layout.decode_state(node.data)
        alive = self._observer.alive()
        fallbacks = [broker for broker in state.isr if broker != state.leader and broker in alive]
        if state.leader < 0 or not fallbacks:
            return
        leader = fallback if fallback in fallbacks else self._random.choice(fallbacks)
        after = replace(state, leader=leader, leader_epoch=state.leader_epoch + 1)
        self._world.note(f"{PLAIN}-{partition} is given to {leader} in epoch {after.leader_epoch}")
        self._ensemble.multi([SetData(path, layout.encode_state(after), node.version)], _NO_SESSION)

    def first_replica(self, partition: int) -> int | None:
        """The preferred replica of a partition, None while the topic does not exist."""
        node = self._ensemble.tree.find(layout.topic_path(PLAIN))
        return None if node is None else layout.decode_topic(node.data).partitions[partition][0]

    def depose(self) -> None:
        """Delete `/controller`. The broker that creates it first is the next controller."""
        if self._ensemble.tree.find(layout.CONTROLLER) is not None:
            self._world.note("the controller is deposed")
            self._ensemble.multi([Delete(layout.CONTROLLER)], _NO_SESSION)

    async def request_elections(self, seconds: float) -> None:
        """Request preferred elections of all partitions repeatedly, for `seconds`."""
        machine = self._world.machine("elector")
        if machine.is_running:
            return
        process = machine.boot()
        deadline = self._world.loop.time() + seconds

        async def call() -> None:
            async with Admin(self._shared.client, env=process.env) as admin:
                while self._world.loop.time() < deadline:
                    try:
                        await admin.elect_leaders(ElectionType.PREFERRED, None, timeout_s=1.0)
                    except (KafkaException, TimeoutError) as error:
                        self._world.note(f"no election: {error}")
                    await asyncio.sleep(_PAUSE_S)

        await process.run(call())
        machine.kill()
