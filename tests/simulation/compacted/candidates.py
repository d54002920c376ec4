"""Members of an election on virtual time, which are stopped, killed and cut off: never two leaders at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from random import Random

from felice.client.error import KafkaException
from felice.client.group.election import Assignment, Election, Roles
from felice.env import Environment
from felice.testing.simulation.process import Process
from felice.testing.simulation.world import Machine, World
from simulation.compacted.faults import Faults

CANDIDATES = 3
LENGTH_S = 40.0
SESSION_S = 2.0
_FINISH_S = 120.0


class Candidate:
    """One process that takes part. Its metadata is its name, and an assignment is the name of the leader."""

    def __init__(self, run: Candidates, process: Process, env: Environment, name: str) -> None:
        self.name = name
        self._run = run
        self._process = process
        self._random: Random = env.random
        roles = Roles(self._assign, self._on_assigned, self._on_revoked)
        self.election = Election(
            run.client,
            "election",
            "test",
            "v0",
            name.encode(),
            roles,
            session_timeout_s=SESSION_S,
            heartbeat_interval_s=0.3,
            env=env,
        )

    def _assign(self, members: Mapping[str, bytes]) -> Mapping[str, bytes]:
        return dict.fromkeys(members, self._random.choice(sorted(members.values())))

    def _on_assigned(self, assignment: Assignment) -> None:
        self._run.told.append((self.name, "assigned"))
        if self.leads:
            self._run.leaders.append(self.name)
        self._run.check()

    def _on_revoked(self, lost: bool) -> None:
        self._run.told.append((self.name, "lost" if lost else "revoked"))

    @property
    def leads(self) -> bool:
        """Whether this process may act as the leader now, or when it is resumed."""
        held = self.election.assignment
        return self._process.is_alive and held is not None and held.data == self.name.encode()


class Candidates:
    """One simulation run."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed, limit_s=LENGTH_S + 2 * _FINISH_S)
        self.anomalies: list[str] = []
        self.leaders: list[str] = []
        self.told: list[tuple[str, str]] = []
        self._broker = self.world.broker("b1", {"group.min.session.timeout.ms": "100"})
        self.client: dict[str, object] = {
            "bootstrap.servers": self._broker.bootstrap,
            "request.timeout.ms": 3000,
            "reconnect.backoff.max.ms": 500,
        }
        self._machines = [self.world.machine(f"c{number}") for number in range(CANDIDATES)]
        self._all: list[Candidate] = []
        self._is_finishing = False

    def run(self) -> list[str]:
        """Run to the end; returns the anomalies."""
        self.world.run(self._main())
        self._check_turns()
        return [*self.anomalies, *self.world.errors]

    def check(self) -> None:
        """Note it if two processes lead: called whenever one of them gets a role."""
        leaders = [one.name for one in self._all if one.leads]
        if len(leaders) > 1:
            self.anomalies.append(f"{leaders} lead at {self.world.loop.time():.3f}")

    def _check_turns(self) -> None:
        for candidate in self._all:
            told = [what == "assigned" for name, what in self.told if name == candidate.name]
            if told != [number % 2 == 0 for number in range(len(told))]:
                self.anomalies.append(f"{candidate.name}: roles were not given and taken in turns")

    async def _main(self) -> None:
        await self._broker.start()
        for machine in self._machines:
            self._boot(machine)
        await Faults(self.world, self._broker, self._machines, self._boot).run(LENGTH_S)
        async with asyncio.timeout(_FINISH_S):
            while not self._is_settled():
                await asyncio.sleep(0.1)

    def _is_settled(self) -> bool:
        """Whether all members that live agree about a leader, which lives."""
        living = [one for one in self._all if one._process.is_alive]
        held = [one.election.assignment for one in living]
        return None not in held and sum(one.leads for one in living) == 1

    def _boot(self, machine: Machine) -> None:
        life = machine.boot()
        candidate = Candidate(self, life.process, life.env, f"{machine.name}.{machine.incarnations}")
        self._all.append(candidate)
        life.spawn(self._live(candidate))

    async def _live(self, candidate: Candidate) -> None:
        while True:
            try:
                await candidate.election.start(30.0)
                return
            except KafkaException as error:
                self.world.note(f"{candidate.name}: {error.error.str()}")
