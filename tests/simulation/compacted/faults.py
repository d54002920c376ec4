"""Faults for the clients of one broker: stopped and killed processes, cut, blocked and slow connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random

from felice.testing.simulation.world import BrokerMachine, Machine, World

LIMIT_S = 8.0
"""No fault lasts longer."""


class Faults:
    """Injects faults until the time is over, then heals all of them. `boot` starts a client's process again."""

    def __init__(
        self, world: World, broker: BrokerMachine, clients: Sequence[Machine], boot: Callable[[Machine], None]
    ) -> None:
        self._world = world
        self._broker = broker
        self._clients = clients
        self._boot = boot
        self._random: Random = world.random("faults")
        self._tasks: list[asyncio.Task[None]] = []
        self._under_attack: asyncio.Queue[Machine] = asyncio.Queue()

    def attack(self, machine: Machine) -> None:
        """Called by a client at the start of a write: its responses are lost in the middle of it, and it is stopped."""
        self._under_attack.put_nowait(machine)

    async def run(self, length_s: float) -> None:
        """Inject faults for `length_s` seconds, and wait until all are over."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + length_s
        attacks = loop.create_task(self._lose_responses())
        kinds = [
            self._stop,
            self._stop,
            self._storm,
            self._block,
            self._slow,
            self._kill,
            self._restart_broker,
        ]
        while loop.time() < end_s:
            await asyncio.sleep(self._random.uniform(0.1, 2.0))
            kind = self._random.choice(kinds)
            self._tasks.append(loop.create_task(kind(self._random.choice(self._clients))))
        attacks.cancel()
        await asyncio.gather(*self._tasks)
        self._world.network.heal()

    def _duration_s(self) -> float:
        return self._random.choice((0.2, 1.0, LIMIT_S)) * self._random.random()

    async def _stop(self, machine: Machine) -> None:
        process = machine.process
        if process is None or process.is_stopped or not process.is_alive:
            return
        self._world.note(f"stop {process.name}")
        process.stop()
        await asyncio.sleep(self._duration_s())
        self._world.note(f"resume {process.name}")
        process.resume()

    async def _lose_responses(self) -> None:
        while True:
            machine = await self._under_attack.get()
            await asyncio.sleep(self._random.uniform(0.0, 0.015))
            network = self._world.network
            network.block(self._broker.name, machine.name)
            await asyncio.sleep(0.02)
            for connection in network.connections():
                if connection.host == machine.name:
                    network.cut(connection)
            network.unblock(self._broker.name, machine.name)
            self._tasks.append(asyncio.create_task(self._stop(machine)))

    async def _storm(self, machine: Machine) -> None:
        """Cut connections of the client again and again: requests lose their responses."""
        for _ in range(self._random.randrange(1, 30)):
            connections = [one for one in self._world.network.connections() if one.host == machine.name]
            if connections:
                self._world.network.cut(self._random.choice(connections))
            await asyncio.sleep(self._random.uniform(0.0, 0.05))

    async def _block(self, machine: Machine) -> None:
        ends = [machine.name, self._broker.name]
        self._random.shuffle(ends)
        self._world.note(f"block {ends}")
        self._world.network.block(ends[0], ends[1])
        await asyncio.sleep(self._duration_s())
        self._world.network.unblock(ends[0], ends[1])

    async def _slow(self, machine: Machine) -> None:
        self._world.network.slow(self._broker.name, machine.name, 0.5)
        await asyncio.sleep(self._duration_s())
        self._world.network.slow(self._broker.name, machine.name, 0.0)

    async def _kill(self, machine: Machine) -> None:
        if machine.is_running:
            machine.kill()
            await asyncio.sleep(self._duration_s())
            self._boot(machine)

    async def _restart_broker(self, machine: Machine) -> None:
        if self._random.random() < 0.5 and self._broker.is_running:
            self._broker.kill()
            await asyncio.sleep(self._duration_s())
            await self._broker.start()
