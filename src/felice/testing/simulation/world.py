"""Simulated machines in one process: whole brokers and clients on virtual time, all decided by one seed.

Keeps true: two simulations with the same seed and the same calls have the same `trace`, byte for byte.
            A machine has a disk and clocks that outlive its processes. `kill` ends the process and leaves what it
            wrote; `cut_power` leaves what was synced and, of the rest, what the seed chooses.
How:        every part draws from a `Random` of its own, named after the seed and the part, so that a change in
            one part does not change the draws of the others.

    world = World(seed=7)
    machine = world.broker("b1", {"log.flush.interval.messages": "1"})
    async def main() -> None:
        await machine.start()
        client = world.machine("c1").boot()
        await client.run(use(client.env, machine.bootstrap))
        machine.cut_power()
        await machine.start()
    world.run(main())
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import traceback
from collections.abc import Coroutine, Generator, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Never, TypeVar

from felice.config import BrokerConfig
from felice.env import Environment
from felice.server.broker import Broker
from felice.server.process.local_cluster import local_settings
from felice.testing.simulation.clock import SimClock
from felice.testing.simulation.disk import SimDisk
from felice.testing.simulation.ensemble import SimEnsemble
from felice.testing.simulation.loop import Deadlock, RunsForEver, SimLoop
from felice.testing.simulation.network import SimNetwork
from felice.testing.simulation.process import CURRENT, WORK_DELAY_S, Process, ProcessEnded

T = TypeVar("T")

BROKER_PORT = 9092
DATA_DIRECTORY = Path("/data")
_CLEAN_UP_S = 60.0
_CLOSE_ATTEMPTS = 20


class World:
    """Machines by name, the network between them, and the trace of what happened."""

    def __init__(self, seed: int, *, shuffle: bool = True, limit_s: float = 3600.0) -> None:
        self.seed = seed
        self.trace: list[str] = []
        # Errors of the code under test: those that it logged with a traceback, and those that asyncio found
        # uncaught.
        self.errors: list[str] = []
        # This loop lacks what needs the real machine: sockets, pipes, signals, processes.
        self.loop = SimLoop(self.random("loop"), shuffle=shuffle, limit_s=limit_s)  # type: ignore[abstract]
        self.network = SimNetwork(self.loop, self.random("network"), self.note)
        self.machines: dict[str, Machine] = {}

    def random(self, name: str) -> Random:
        """A random generator that depends on the seed and this name alone."""
        return Random(f"{self.seed}/{name}")

    def note(self, line: str) -> None:
        """Add a line to the trace, with the simulated time."""
        self.trace.append(f"{self.loop.time():.6f} {line}")

    @property
    def fingerprint(self) -> str:
        """A digest of the whole trace: two runs with the same fingerprint did the same."""
        return hashlib.sha256("\n".join(self.trace).encode()).hexdigest()

    def machine(self, name: str, *, skew_ms: int | None = None) -> Machine:
        """The machine of this name, created at the first call. `skew_ms` is how far its wall clock is ahead."""
        if name not in self.machines:
            self.machines[name] = Machine(self, name, self._skew_ms(name, skew_ms))
        return self.machines[name]

    def broker(
        self,
        name: str,
        properties: Mapping[str, str],
        *,
        node_id: int = 1,
        skew_ms: int | None = None,
        ensemble: SimEnsemble | None = None,
    ) -> BrokerMachine:
        """A machine that runs a broker with these options, on top of those for development.

        With an `ensemble` the broker is a member of that cluster; without, it has a metadata store of its own.
        """
        machine = BrokerMachine(self, name, self._skew_ms(name, skew_ms), properties, node_id, ensemble)
        self.machines[name] = machine
        return machine

    def _skew_ms(self, name: str, given: int | None) -> int:
        return self.random(f"skew of {name}").randrange(-2_000, 2_000) if given is None else given

    # Running

    def run(self, main: Coroutine[object, Never, T]) -> T:
        """Run until `main` is done, then end every process. Returns what `main` returns."""
        with self._logged():
            try:
                return self.loop.run_until_complete(main)
            finally:
                for machine in self.machines.values():
                    if machine.process is not None:
                        machine.process.end()
                self._note_uncaught()
                self._clean_up()

    @contextlib.contextmanager
    def _logged(self) -> Iterator[None]:
        logger, handler = logging.getLogger("felice"), _TraceHandler(self)
        before = logger.propagate, logger.level
        logger.propagate = False
        logger.setLevel(logging.WARNING)
        logger.addHandler(handler)
        try:
            yield
        finally:
            logger.removeHandler(handler)
            logger.propagate = before[0]
            logger.setLevel(before[1])

    def _note_uncaught(self) -> None:
        for context in self.loop.uncaught:
            error = context.get("exception")
            if not isinstance(error, PowerFailure):
                self.errors.append(
                    f"{context.get('message')}: {_formatted(error) if isinstance(error, BaseException) else context}"
                )
        self.loop.uncaught.clear()

    def _clean_up(self) -> None:
        """Let the remains of every process finish: a coroutine that is merely dropped would log a warning."""
        for machine in self.machines.values():
            machine.disk.heal()
            machine.disk.on_operation = None
        for process in self.loop.processes():
            process.clean_up()
        logging.disable(logging.CRITICAL)
        try:
            self.loop.limit_s = self.loop.time() + _CLEAN_UP_S
            with contextlib.suppress(Deadlock, RunsForEver):
                self.loop.run_until_complete(self._cancel_all())
        finally:
            logging.disable(logging.NOTSET)
        for task in self.loop.unfinished():
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            _end(task.get_coro())
        self.loop.uncaught.clear()
        self.loop.close()

    async def _cancel_all(self) -> None:
        own = asyncio.current_task()
        while left := [task for task in self.loop.unfinished() if task is not own]:
            for task in left:
                task.cancel()
            await asyncio.sleep(0.1)


def _end(left: Generator[object, None, object] | Coroutine[object, Never, object]) -> None:
    """Close a coroutine, even if it awaits again a few times while it closes."""
    for _ in range(_CLOSE_ATTEMPTS):
        with contextlib.suppress(RuntimeError):
            left.close()
            return


class _TraceHandler(logging.Handler):
    """Adds what the code under test logs to the trace, and tracebacks and broken invariants to `World.errors`."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.WARNING)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        process = CURRENT.get()
        name = process.name if process is not None else "world"
        self._world.note(f"log {name} {record.levelname} {record.getMessage()}")
        error = record.exc_info[1] if record.exc_info else None
        if (invariant := getattr(record, "invariant", None)) is not None:
            facts = getattr(record, "partition", ""), getattr(record, "reason", "")
            self._world.errors.append(f"{name}: {record.getMessage()}: {invariant}: {': '.join(facts)}")
        # A disk failure is logged with a traceback too, and is no fault of the code.
        if error is not None and record.levelno >= logging.ERROR and not isinstance(error, OSError):
            self._world.errors.append(f"{name}: {record.getMessage()}: {_formatted(error)}")


def _formatted(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


class PowerFailure(BaseException):
    """Raised where the power of a machine fails in the middle of an operation.

    The code under test must not catch it.
    """


class Machine:
    """A host: a disk, clocks, and at most one process at a time."""

    def __init__(self, world: World, name: str, skew_ms: int) -> None:
        self.world = world
        self.name = name
        random = world.random(f"clock of {name}")
        self.clock = SimClock(world.loop, skew_ms=skew_ms, monotonic_start_s=random.uniform(10, 1e6))
        self.disk = SimDisk(now_ms=self.clock.now_ms)
        self.process: Process | None = None
        self.incarnations = 0
        self.power_failures = 0
        self._work_delay_s = WORK_DELAY_S
        self._random = world.random(f"fate of {name}")

    @property
    def is_running(self) -> bool:
        """Whether the machine has a process that has not ended."""
        return self.process is not None and self.process.is_alive

    def boot(self) -> Incarnation:
        """Start a new process; returns it with its environment."""
        assert not self.is_running, f"{self.name} runs"
        self.incarnations += 1
        process = Process(self.world.loop, f"{self.name}#{self.incarnations}")
        process.work_delay_s = self._work_delay_s
        self.process = process
        env = Environment(
            self.clock,
            self.disk,
            self.world.network.of(process, self.name),
            self.world.random(f"{self.name}#{self.incarnations}"),
        )
        self.world.note(f"boot {process.name}")
        return Incarnation(process, env)

    def kill(self) -> None:
        """kill -9: end the process. Its page cache stays, because it belongs to the machine."""
        if self.is_running:
            self.world.note(f"kill {self.name}")
            self._end()
            self.disk.kill()

    def cut_power(self) -> None:
        """Fail the power: of what was not synced, any part may be lost. Peers get no reset and no end of stream."""
        if self.is_running:
            self.world.note(f"power lost at {self.name}")
            self.power_failures += 1
            self.world.network.cut_power(self.name)
            self._end()
            self.disk.crash(self._random)

    def slow_disk(self, seconds: float = WORK_DELAY_S) -> None:
        """From now on, work for the disk on a thread (syncs, new files, moves) takes up to twice `seconds`."""
        self._work_delay_s = seconds
        if self.process is not None:
            self.process.work_delay_s = seconds

    def cut_power_within(self, operations: int) -> None:
        """Fail the power at the disk operation with this number, counted from now."""
        left = operations

        def count(operation: str, path: Path) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                self.world.note(f"{operation} of {path} is not done")
                self.cut_power()
                raise PowerFailure(f"{operation} {path}")

        self.disk.on_operation = count

    def _end(self) -> None:
        assert self.process is not None
        self.disk.on_operation = None
        self.process.end()


class Incarnation:
    """One process of a machine, with its environment."""

    def __init__(self, process: Process, env: Environment) -> None:
        self.process = process
        self.env = env

    def spawn(self, work: Coroutine[object, Never, T]) -> asyncio.Task[T]:
        """Run a coroutine as a task of this process."""
        return self.process.spawn(work)

    async def run(self, work: Coroutine[object, Never, T]) -> T:
        """Run a coroutine in this process and return its result; raises `ProcessEnded` if the process is killed."""
        return await self.process.run(work)


class BrokerMachine(Machine):
    """A machine whose process is a broker."""

    def __init__(
        self,
        world: World,
        name: str,
        skew_ms: int,
        properties: Mapping[str, str],
        node_id: int,
        ensemble: SimEnsemble | None = None,
    ) -> None:
        super().__init__(world, name, skew_ms)
        self.broker: Broker | None = None
        self._ensemble = ensemble
        self.properties = {
            **local_settings(1),
            "listeners": f"PLAINTEXT://{name}:{BROKER_PORT}",
            "log.dirs": str(DATA_DIRECTORY),
            "node.id": str(node_id),
            # With more than one, the broker opens partitions on threads.
            "num.recovery.threads.per.data.dir": "1",
            **properties,
        }

    @property
    def bootstrap(self) -> str:
        """The broker's address, for `bootstrap.servers`."""
        return f"{self.name}:{BROKER_PORT}"

    async def start(self) -> Broker:
        """Start the broker and return it when it serves; raises `StartupError`, or `ProcessEnded` if it is killed
        before.
        """
        config, unknown = BrokerConfig.parse(self.properties)
        assert not unknown, f"unknown configuration: {unknown}"
        life = self.boot()
        ensemble = self._ensemble
        source = None if ensemble is None else ensemble.source(self.name, life.process)
        broker = self.broker = Broker(config, life.env, store_source=source)
        await life.run(broker.start())
        return broker

    async def stop(self) -> None:
        """Stop the broker cleanly: everything is on disk, and the process has ended."""
        assert self.process is not None
        assert self.broker is not None
        self.world.note(f"stop {self.name}")
        await self.process.run(self.broker.stop())
        self._end()
        self.disk.kill()


__all__ = ["BROKER_PORT", "BrokerMachine", "Incarnation", "Machine", "PowerFailure", "ProcessEnded", "World"]
