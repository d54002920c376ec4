"""One simulation run: set up machines, run the workload, inject the faults, heal them, read everything,
check.
"""

from __future__ import annotations

import asyncio
import errno
import gc
from collections.abc import Callable
from dataclasses import dataclass

from felice.client.admin.model import NewTopic
from felice.client.aio import Admin
from felice.client.error import KafkaException
from felice.env import Environment
from felice.server.startup import StartupError
from felice.testing.simulation.loop import Deadlock, RunsForEver
from felice.testing.simulation.process import Process
from felice.testing.simulation.world import BrokerMachine, ProcessEnded, World
from simulation.observations import COPY, KEYED, LEDGER, PLAIN, Observations
from simulation.plan import Fault, Plan, plan_of
from simulation.workload import (
    Administrator,
    Copier,
    GroupMember,
    KeyedWriter,
    OffsetMonitor,
    Reader,
    SharedState,
    TransactionalWriter,
    WorkloadClient,
    Writer,
    as_read,
    read_to_end,
)

# The longest time, on the simulated clock, that clients may need to finish after the last fault is healed.
LIVENESS_S = 90.0
_POLL_INTERVAL_S = 0.02


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a simulation run did, and the anomalies that the checkers found in it."""

    plan: Plan
    anomalies: list[str]
    trace: list[str]
    fingerprint: str
    records: int
    world_s: float

    def describe(self) -> str:
        """The plan and the anomalies, as text for a person."""
        faults = "\n".join(f"  {fault}" for fault in self.anomalies)
        return f"{self.plan.describe()}\nanomalies:\n{faults}"


def simulate(seed: int, change: Callable[[Plan], Plan] = lambda plan: plan) -> RunResult:
    """Run the simulation of one broker for this seed. `change` may alter the plan first."""
    return execute(change(plan_of(seed)), SimulationRun)


def execute(plan: Plan, make_run: Callable[[World, Plan, Observations], SimulationRun]) -> RunResult:
    """Execute one run of a plan.

    Garbage collection is off during the run, because its moment does not depend on the seed.
    """
    world = World(plan.seed, limit_s=600)
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        observations = Observations(is_lossy=plan.durability == "lossy")
        run = make_run(world, plan, observations)
        try:
            world.run(run.execute())
        except (Deadlock, RunsForEver) as error:
            observations.reported.append(f"liveness: {error}")
        observations.power_failures = run.power_failures
        observations.reported += [f"internal error: {error}" for error in world.errors]
        return RunResult(
            plan,
            observations.anomalies(),
            world.trace,
            world.fingerprint,
            len(observations.sent),
            world.loop.time(),
        )
    finally:
        if was_enabled:
            gc.enable()


class BrokerSupervisor:
    """Starts its broker again whenever the broker is down and its downtime is over."""

    def __init__(self, world: World, broker: BrokerMachine) -> None:
        self.broker = broker
        self.up_at_s = 0.0
        self.is_over = False
        self._world = world
        self._is_leaving_alone = False
        self._is_starting = False

    async def run(self) -> None:
        """Supervise until `is_over`.

        A broker that reports a failure of its own is killed and started again.
        """
        while not self.is_over:
            broker = self.broker
            if (
                broker.is_running
                and broker.broker is not None
                and broker.broker.lifecycle.failure is not None
            ):
                broker.kill()
                self.down_for(0.3)
            if (
                not broker.is_running
                and not self._is_leaving_alone
                and self._world.loop.time() >= self.up_at_s
            ):
                await self._start()
            await asyncio.sleep(_POLL_INTERVAL_S)

    async def _start(self) -> None:
        self._is_starting = True
        try:
            await self.broker.start()
        except ProcessEnded:
            pass
        except StartupError as error:
            self._world.note(f"the broker did not start: {error}")
            self.broker.kill()
            self.down_for(0.3)
        except Exception as error:
            self._world.errors.append(f"{self.broker.name} could not start: {error!r}")
            self.broker.kill()
            self.down_for(0.3)
        finally:
            self._is_starting = False

    def down_for(self, seconds: float) -> None:
        """Do not start the broker during the next `seconds`."""
        self.up_at_s = self._world.loop.time() + seconds

    async def restart(self, seconds: float) -> None:
        """Stop the broker cleanly and keep it down for `seconds`.

        A broker that is still starting is killed instead.
        """
        if self._is_starting:
            self.broker.kill()
        elif self.broker.is_running and not self._is_leaving_alone:
            self._is_leaving_alone = True
            try:
                await self.broker.stop()
            except ProcessEnded:
                pass
            finally:
                self.down_for(seconds)
                self._is_leaving_alone = False


class SimulationRun:
    """One run with a single broker, and what runs of clusters share with it: clients, healing, the final
    reads.
    """

    def __init__(self, world: World, plan: Plan, observations: Observations) -> None:
        self._world = world
        self._plan = plan
        self._observations = observations
        self._supervisors = [BrokerSupervisor(world, broker) for broker in self._make_brokers()]
        self._brokers = [supervisor.broker for supervisor in self._supervisors]
        self._supervisor, self._broker = self._supervisors[0], self._brokers[0]
        self._random = world.random("faults")
        self._healing: list[asyncio.Task[None]] = []
        self._shared = SharedState(world, plan, self._brokers, observations)
        self._clients: list[WorkloadClient] = []

    @property
    def power_failures(self) -> int:
        return self._shared.power_failures

    def _make_brokers(self) -> list[BrokerMachine]:
        return [self._world.broker("b1", self._plan.properties)]

    async def execute(self) -> None:
        """Run the whole plan, from the creation of the topics to the final reads."""
        watches = [asyncio.ensure_future(supervisor.run()) for supervisor in self._supervisors]
        await self._make_topics()
        self._clients = self._make_clients()
        running = [asyncio.ensure_future(client.run_until_done()) for client in self._clients]
        began_s = self._world.loop.time()
        for fault in self._plan.faults:
            await self._until(began_s + fault.time_s)
            self._inject(fault)
        await self._until(began_s + self._plan.length_s)
        await self._heal()
        if await self._all_clients_finish(running):
            await self._read_final_contents()
        for supervisor in self._supervisors:
            supervisor.is_over = True
        await asyncio.gather(*watches)

    def _make_clients(self) -> list[WorkloadClient]:
        shared, workloads = self._shared, self._plan.workloads
        clients: list[WorkloadClient] = [
            Writer(shared, "w1"),
            Reader(shared, "r1", PLAIN),
            OffsetMonitor(shared, "o1"),
        ]
        if len(workloads) == 1 or self._plan.seed % 3 == 0:
            clients.append(Writer(shared, "w2"))
        if "transactions" in workloads:
            clients += [TransactionalWriter(shared, "l1", "ledger"), Reader(shared, "r2", LEDGER)]
            if self._plan.seed % 2:
                clients.append(
                    TransactionalWriter(
                        shared, "l2", "ledger" if self._plan.seed % 4 == 1 else "other ledger"
                    )
                )
        if "copier" in workloads:
            clients += [Copier(shared, "c1"), Copier(shared, "c2")]
        if "group" in workloads:
            clients += [GroupMember(shared, "m1"), GroupMember(shared, "m2")]
        if "admin" in workloads:
            clients.append(Administrator(shared, "a1"))
        if "keyed" in workloads:
            clients.append(KeyedWriter(shared, "k1"))
        return clients

    async def _make_topics(self) -> None:
        count, replicas = self._plan.partitions, self._plan.replicas
        compacted = {
            "cleanup.policy": "compact",
            "max.compaction.lag.ms": "500",
            "delete.retention.ms": "100",
        }
        topics = [
            NewTopic(PLAIN, count, replicas),
            NewTopic(LEDGER, count, replicas),
            NewTopic(COPY, count, replicas),
            NewTopic(KEYED, 1, replicas, config=compacted),
        ]
        incarnation = self._world.machine("a0").boot()

        async def make() -> None:
            async with Admin(self._shared.client, env=incarnation.env) as admin:
                made = await admin.create_topics(topics)
                assert not any(isinstance(error, Exception) for error in made.values()), made

        while not self._is_ready():
            await asyncio.sleep(_POLL_INTERVAL_S)
        await incarnation.run(make())
        self._world.machine("a0").kill()

    def _is_ready(self) -> bool:
        return self._broker.is_running and self._broker.broker is not None

    # Faults and healing

    async def _until(self, time_s: float) -> None:
        await asyncio.sleep(max(time_s - self._world.loop.time(), 0))

    def _inject(self, fault: Fault) -> None:
        self._world.note(f"fault {fault.kind}")
        getattr(self, "_inject_" + fault.kind.replace(" ", "_"))(fault)

    def _after(self, seconds: float, undo: Callable[[], None]) -> None:
        async def wait() -> None:
            await asyncio.sleep(seconds)
            undo()

        self._healing.append(asyncio.ensure_future(wait()))

    def _inject_kill(self, fault: Fault) -> None:
        self._supervisor.down_for(fault.seconds)
        self._broker.kill()

    def _inject_power(self, fault: Fault) -> None:
        self._supervisor.down_for(fault.seconds)
        self._broker.cut_power()

    def _inject_power_at_operation(self, fault: Fault) -> None:
        if self._broker.is_running:
            self._broker.cut_power_within(fault.number)

    def _inject_restart(self, fault: Fault) -> None:
        self._healing.append(asyncio.ensure_future(self._supervisor.restart(fault.seconds)))

    def _inject_cut(self, fault: Fault) -> None:
        network = self._world.network
        for connection in network.connections():
            if self._random.random() < (1.0 if fault.number < 20 else 0.3):
                network.cut(connection)

    def _inject_slow(self, fault: Fault) -> None:
        for client in self._some_clients():
            for way in ((client, "b1"), ("b1", client)):
                self._world.network.slow(*way, fault.seconds * self._random.random())

    def _inject_part(self, fault: Fault) -> None:
        for client in self._some_clients():
            self._world.network.part(client, "b1")
            self._after(fault.seconds, lambda client=client: self._unpart(client))  # type: ignore[misc]

    def _inject_one_way(self, fault: Fault) -> None:
        for client in self._some_clients():
            way = (client, "b1") if self._random.random() < 0.5 else ("b1", client)
            self._world.network.block(*way)
            self._after(fault.seconds, lambda client=client: self._unpart(client))  # type: ignore[misc]

    def _unpart(self, client: str) -> None:
        self._world.network.unblock(client, "b1")
        self._world.network.unblock("b1", client)

    def _inject_clock(self, fault: Fault) -> None:
        names = [client.name for client in self._clients] + ["b1", "b1", "b1"]
        jump_ms = self._random.choice((-1, 1)) * self._random.randrange(10 ** self._random.randrange(2, 7))
        self._world.machines[self._random.choice(names)].clock.jump(jump_ms)

    def _inject_stop_client(self, fault: Fault) -> None:
        for name in self._some_clients():
            process = self._world.machines[name].process
            if process is not None and process.is_alive:
                process.stop()
                self._after(fault.seconds * 2, lambda process=process: _resume(process))  # type: ignore[misc]

    def _inject_kill_client(self, fault: Fault) -> None:
        self._world.machines[self._random.choice(self._clients).name].kill()

    def _inject_disk_error(self, fault: Fault) -> None:
        operation = self._random.choice(("sync", "write", "create", "rename", "sync_dir", "read"))
        broken = self._broker.disk.fail(
            operation, errno.EIO, after=fault.number // 10, times=1 + fault.number % 3
        )

        def repair() -> None:
            self._broker.disk.heal(broken)
            self._broker.kill()

        self._after(fault.seconds, repair)

    def _inject_full_disk(self, fault: Fault) -> None:
        disk = self._broker.disk
        disk.capacity_bytes = disk.used_bytes + fault.number * 50

        def repair() -> None:
            disk.capacity_bytes = None

        self._after(fault.seconds, repair)

    def _some_clients(self) -> list[str]:
        names = [client.name for client in self._clients]
        return self._random.sample(names, self._random.randrange(1, len(names) + 1))

    async def _heal(self) -> None:
        """End every fault: wait for those that undo themselves, then undo the others.

        Nothing fails afterwards.
        """
        for task in self._healing:
            await task
        for broker in self._brokers:
            broker.disk.on_operation = None
            broker.disk.heal()
            broker.disk.capacity_bytes = None
        self._world.network.heal()
        for machine in self._world.machines.values():
            if machine.process is not None:
                _resume(machine.process)
        for supervisor in self._supervisors:
            supervisor.up_at_s = 0.0
        self._world.note("healed")
        self._shared.is_finishing = True

    async def _all_clients_finish(self, running: list[asyncio.Task[None]]) -> bool:
        deadline = self._world.loop.time() + LIVENESS_S
        writing = [t for t, client in zip(running, self._clients, strict=True) if isinstance(client, Writer)]
        if writing:
            await asyncio.wait(writing, timeout=LIVENESS_S)
        self._shared.writers_done.set()
        await asyncio.wait(running, timeout=max(deadline - self._world.loop.time(), 0.1))
        late = [client.name for client, task in zip(self._clients, running, strict=True) if not task.done()]
        for task in running:
            if task.done() and (error := task.exception()) is not None:
                raise error
        if late:
            self._observations.reported.append(
                f"liveness: {', '.join(late)} did not finish within {LIVENESS_S:.0f} s after the last fault"
            )
        return not late

    # The final contents

    async def _read_final_contents(self) -> None:
        # The name is part of the seed of this machine's random numbers: another name would change every run.
        process = self._world.machine("final reader").boot()
        try:
            async with asyncio.timeout(LIVENESS_S):
                await process.run(self._read(process.env))
        except (TimeoutError, KafkaException) as error:
            self._observations.reported.append(f"liveness:  the final reads failed: {error!r}")

    async def _read(self, env: Environment) -> None:
        observations, partitions = self._observations, self._plan.partitions
        plain = await read_to_end(self._shared, env, PLAIN, partitions, "read_uncommitted")
        observations.final[PLAIN] = [as_read(message) for message in plain]
        if "transactions" in self._plan.workloads:
            ledger = await read_to_end(self._shared, env, LEDGER, partitions, "read_committed")
            observations.final[LEDGER] = [as_read(message) for message in ledger]
        if "copier" in self._plan.workloads:
            copy = [
                as_read(m) for m in await read_to_end(self._shared, env, COPY, partitions, "read_committed")
            ]
            observations.copied = [(read.partition, read.writer, read.number) for read in copy]
        if "keyed" in self._plan.workloads:
            for message in await read_to_end(self._shared, env, KEYED, 1, "read_uncommitted"):
                number = dict(message.headers() or [])["number"] or b""
                observations.final_keyed.append(((message.key() or b"").decode(), int(number)))
        async with Admin(self._shared.client, env=env) as admin:
            monitor = next(client for client in self._clients if isinstance(client, OffsetMonitor))
            await monitor._observe_partition_offsets(admin)
            if "group" in self._plan.workloads:
                await monitor._offsets(admin)
            for client in self._clients:
                if isinstance(client, Administrator):
                    observations.reported += await client.check(admin)


def _resume(process: Process) -> None:
    if process.is_stopped and process.is_alive:
        process.resume()


__all__ = ["BrokerMachine", "RunResult", "execute", "simulate"]
