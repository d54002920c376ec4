"""Who leads, decided from outside of the cluster, as a controller or an operator might."""

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
from simulation.account import PLAIN
from simulation.cluster.watchtower import Watchtower
from simulation.roles import Stage

_NOBODYS_SESSION = 0
_PAUSE_S = 0.15


class Throne:
    def __init__(self, world: World, ensemble: SimEnsemble, tower: Watchtower, stage: Stage) -> None:
        self._world = world
        self._ensemble = ensemble
        self._tower = tower
        self._stage = stage
        self._random = world.random("throne")

    def elect(self, partition: int, heir: int | None = None) -> None:
        """Another replica that is alive and in sync leads from now on: the heir, if it may; nobody new if none may."""
        path = layout.state_path(PLAIN, partition)
        node = self._ensemble.tree.find(path)
        if node is None:
            return
        state = layout.decode_state(node.data)
        alive = self._tower.alive()
        fallbacks = [broker for broker in state.isr if broker != state.leader and broker in alive]
        if state.leader < 0 or not fallbacks:
            return
        leader = heir if heir in fallbacks else self._random.choice(fallbacks)
        after = replace(state, leader=leader, leader_epoch=state.leader_epoch + 1)
        self._world.note(f"{PLAIN}-{partition} is given to {leader} in epoch {after.leader_epoch}")
        self._ensemble.multi([SetData(path, layout.encode_state(after), node.version)], _NOBODYS_SESSION)

    def first_replica(self, partition: int) -> int | None:
        """The preferred one."""
        node = self._ensemble.tree.find(layout.topic_path(PLAIN))
        return None if node is None else layout.decode_topic(node.data).partitions[partition][0]

    def depose(self) -> None:
        """There is no controller any more; who stands first is the next."""
        if self._ensemble.tree.find(layout.CONTROLLER) is not None:
            self._world.note("the controller is deposed")
            self._ensemble.multi([Delete(layout.CONTROLLER)], _NOBODYS_SESSION)

    async def call_elections(self, seconds: float) -> None:
        """Asks for preferred elections of everything, again and again."""
        machine = self._world.machine("elector")
        if machine.is_running:
            return
        life = machine.boot()
        deadline = self._world.loop.time() + seconds

        async def call() -> None:
            async with Admin(self._stage.client, env=life.env) as admin:
                while self._world.loop.time() < deadline:
                    try:
                        await admin.elect_leaders(ElectionType.PREFERRED, None, timeout_s=1.0)
                    except (KafkaException, TimeoutError) as error:
                        self._world.note(f"no election: {error}")
                    await asyncio.sleep(_PAUSE_S)

        await life.run(call())
        machine.kill()
