"""One seed's story from beginning to end: the world is made, loaded, hurt, healed, read and judged."""

from __future__ import annotations

import asyncio
import errno
import gc
from collections.abc import Callable
from dataclasses import dataclass

from felice.client.admin.model import NewTopic
from felice.client.aio import Admin
from felice.client.error import KafkaException
from felice.server.startup import StartupError
from felice.testing.simulation.loop import Deadlock, RunsForEver
from felice.testing.simulation.process import Process
from felice.testing.simulation.world import BrokerMachine, ProcessEnded, World
from simulation.account import COPY, KEYED, LEDGER, PLAIN, Account
from simulation.plan import Fault, Plan, plan_of
from simulation.roles import (
    Administrator,
    Copier,
    KeyedWriter,
    Ledger,
    Member,
    Observer,
    Reader,
    Role,
    Stage,
    Writer,
    as_read,
    read_to_end,
)

# How long a world may take, in its own time, to come to rest once nothing goes wrong any more.
LIVENESS_S = 90.0
_WATCH_S = 0.02


@dataclass(frozen=True, slots=True)
class Verdict:
    plan: Plan
    anomalies: list[str]
    trace: list[str]
    fingerprint: str
    records: int
    world_s: float

    def told(self) -> str:
        faults = "\n".join(f"  {fault}" for fault in self.anomalies)
        return f"{self.plan.told()}\nanomalies:\n{faults}"


def run(seed: int, change: Callable[[Plan], Plan] = lambda plan: plan) -> Verdict:
    """Plays the story of one broker that the seed tells."""
    return play(change(plan_of(seed)), Story)


def play(plan: Plan, story: Callable[[World, Plan, Account], Story]) -> Verdict:
    """Garbage is collected between stories, not within: when is not the seed's choice."""
    world = World(plan.seed, limit_s=600)
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        account = Account(is_lossy=plan.kind == "lossy")
        told = story(world, plan, account)
        try:
            world.run(told.play())
        except (Deadlock, RunsForEver) as error:
            account.faults.append(f"liveness: {error}")
        account.losses = told.power_losses
        account.faults += [f"internal error: {error}" for error in world.errors]
        return Verdict(
            plan, account.anomalies(), world.trace, world.fingerprint, len(account.sent), world.loop.time()
        )
    finally:
        if was_enabled:
            gc.enable()


class Keeper:
    """Starts its broker whenever it is down and may be up."""

    def __init__(self, world: World, broker: BrokerMachine) -> None:
        self.broker = broker
        self.up_at_s = 0.0
        self.is_over = False
        self._world = world
        self._is_leaving_alone = False
        self._is_starting = False

    async def keep_running(self) -> None:
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
            await asyncio.sleep(_WATCH_S)

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
        self.up_at_s = self._world.loop.time() + seconds

    async def restart(self, seconds: float) -> None:
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


class Story:
    """What is alike in all stories; and the faults of a world with one broker."""

    def __init__(self, world: World, plan: Plan, account: Account) -> None:
        self._world = world
        self._plan = plan
        self._account = account
        self._keepers = [Keeper(world, broker) for broker in self._make_brokers()]
        self._brokers = [keeper.broker for keeper in self._keepers]
        self._keeper, self._broker = self._keepers[0], self._brokers[0]
        self._random = world.random("faults")
        self._healing: list[asyncio.Task[None]] = []
        self._stage = Stage(world, plan, self._brokers, account)
        self._roles: list[Role] = []

    @property
    def power_losses(self) -> int:
        return self._stage.power_losses

    def _make_brokers(self) -> list[BrokerMachine]:
        return [self._world.broker("b1", self._plan.properties)]

    async def play(self) -> None:
        watches = [asyncio.ensure_future(keeper.keep_running()) for keeper in self._keepers]
        await self._make_topics()
        self._roles = self._cast()
        acting = [asyncio.ensure_future(role.act()) for role in self._roles]
        began_s = self._world.loop.time()
        for fault in self._plan.faults:
            await self._until(began_s + fault.time_s)
            self._hurt(fault)
        await self._until(began_s + self._plan.length_s)
        await self._heal()
        if await self._comes_to_rest(acting):
            await self._read_everything()
        for keeper in self._keepers:
            keeper.is_over = True
        await asyncio.gather(*watches)

    def _cast(self) -> list[Role]:
        stage, roles = self._stage, self._plan.roles
        cast: list[Role] = [Writer(stage, "w1"), Reader(stage, "r1", PLAIN), Observer(stage, "o1")]
        if len(roles) == 1 or self._plan.seed % 3 == 0:
            cast.append(Writer(stage, "w2"))
        if "transactions" in roles:
            cast += [Ledger(stage, "l1", "ledger"), Reader(stage, "r2", LEDGER)]
            if self._plan.seed % 2:
                cast.append(Ledger(stage, "l2", "ledger" if self._plan.seed % 4 == 1 else "other ledger"))
        if "copier" in roles:
            cast += [Copier(stage, "c1"), Copier(stage, "c2")]
        if "group" in roles:
            cast += [Member(stage, "m1"), Member(stage, "m2")]
        if "admin" in roles:
            cast.append(Administrator(stage, "a1"))
        if "keyed" in roles:
            cast.append(KeyedWriter(stage, "k1"))
        return cast

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
        life = self._world.machine("a0").boot()

        async def make() -> None:
            async with Admin(self._stage.client, env=life.env) as admin:
                made = await admin.create_topics(topics)
                assert not any(isinstance(error, Exception) for error in made.values()), made

        while not self._has_begun():
            await asyncio.sleep(_WATCH_S)
        await life.run(make())
        self._world.machine("a0").kill()

    def _has_begun(self) -> bool:
        return self._broker.is_running and self._broker.broker is not None

    # Harm and healing

    async def _until(self, time_s: float) -> None:
        await asyncio.sleep(max(time_s - self._world.loop.time(), 0))

    def _hurt(self, fault: Fault) -> None:
        self._world.note(f"fault {fault.kind}")
        getattr(self, "_do_" + fault.kind.replace(" ", "_"))(fault)

    def _later(self, seconds: float, undo: Callable[[], None]) -> None:
        async def wait() -> None:
            await asyncio.sleep(seconds)
            undo()

        self._healing.append(asyncio.ensure_future(wait()))

    def _do_kill(self, fault: Fault) -> None:
        self._keeper.down_for(fault.seconds)
        self._broker.kill()

    def _do_power(self, fault: Fault) -> None:
        self._keeper.down_for(fault.seconds)
        self._broker.lose_power()

    def _do_power_at_operation(self, fault: Fault) -> None:
        if self._broker.is_running:
            self._broker.lose_power_within(fault.number)

    def _do_restart(self, fault: Fault) -> None:
        self._healing.append(asyncio.ensure_future(self._keeper.restart(fault.seconds)))

    def _do_cut(self, fault: Fault) -> None:
        network = self._world.network
        for connection in network.connections():
            if self._random.random() < (1.0 if fault.number < 20 else 0.3):
                network.cut(connection)

    def _do_slow(self, fault: Fault) -> None:
        for client in self._some_clients():
            for way in ((client, "b1"), ("b1", client)):
                self._world.network.slow(*way, fault.seconds * self._random.random())

    def _do_part(self, fault: Fault) -> None:
        for client in self._some_clients():
            self._world.network.part(client, "b1")
            self._later(fault.seconds, lambda client=client: self._unpart(client))  # type: ignore[misc]

    def _do_one_way(self, fault: Fault) -> None:
        for client in self._some_clients():
            way = (client, "b1") if self._random.random() < 0.5 else ("b1", client)
            self._world.network.block(*way)
            self._later(fault.seconds, lambda client=client: self._unpart(client))  # type: ignore[misc]

    def _unpart(self, client: str) -> None:
        self._world.network.unblock(client, "b1")
        self._world.network.unblock("b1", client)

    def _do_clock(self, fault: Fault) -> None:
        names = [role.name for role in self._roles] + ["b1", "b1", "b1"]
        jump_ms = self._random.choice((-1, 1)) * self._random.randrange(10 ** self._random.randrange(2, 7))
        self._world.machines[self._random.choice(names)].clock.jump(jump_ms)

    def _do_stop_client(self, fault: Fault) -> None:
        for name in self._some_clients():
            process = self._world.machines[name].process
            if process is not None and process.is_alive:
                process.stop()
                self._later(fault.seconds * 2, lambda process=process: _resume(process))  # type: ignore[misc]

    def _do_kill_client(self, fault: Fault) -> None:
        self._world.machines[self._random.choice(self._roles).name].kill()

    def _do_disk_error(self, fault: Fault) -> None:
        operation = self._random.choice(("sync", "write", "create", "rename", "sync_dir", "read"))
        broken = self._broker.disk.fail(
            operation, errno.EIO, after=fault.number // 10, times=1 + fault.number % 3
        )

        def mend() -> None:
            self._broker.disk.heal(broken)
            self._broker.kill()

        self._later(fault.seconds, mend)

    def _do_full_disk(self, fault: Fault) -> None:
        disk = self._broker.disk
        disk.capacity_bytes = disk.used_bytes + fault.number * 50

        def mend() -> None:
            disk.capacity_bytes = None

        self._later(fault.seconds, mend)

    def _some_clients(self) -> list[str]:
        names = [role.name for role in self._roles]
        return self._random.sample(names, self._random.randrange(1, len(names) + 1))

    async def _heal(self) -> None:
        """From now on nothing goes wrong; what was begun is brought to its end."""
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
        for keeper in self._keepers:
            keeper.up_at_s = 0.0
        self._world.note("healed")
        self._stage.is_quiet = True

    async def _comes_to_rest(self, acting: list[asyncio.Task[None]]) -> bool:
        deadline = self._world.loop.time() + LIVENESS_S
        writing = [t for t, role in zip(acting, self._roles, strict=True) if isinstance(role, Writer)]
        await asyncio.wait(writing, timeout=LIVENESS_S)
        self._stage.writers_done.set()
        await asyncio.wait(acting, timeout=max(deadline - self._world.loop.time(), 0.1))
        late = [role.name for role, task in zip(self._roles, acting, strict=True) if not task.done()]
        for task in acting:
            if task.done() and (error := task.exception()) is not None:
                raise error
        if late:
            self._account.faults.append(
                f"liveness: {', '.join(late)} did not come to an end in {LIVENESS_S:.0f} s after the last fault"
            )
        return not late

    # The end

    async def _read_everything(self) -> None:
        life = self._world.machine("judge").boot()
        try:
            await asyncio.wait_for(life.run(self._read(life.env)), LIVENESS_S)  # type: ignore[arg-type]
        except (TimeoutError, KafkaException) as error:
            self._account.faults.append(f"liveness: the judge could not read everything: {error!r}")

    async def _read(self, env: object) -> None:
        account, partitions = self._account, self._plan.partitions
        plain = await read_to_end(self._stage, env, PLAIN, partitions, "read_uncommitted")  # type: ignore[arg-type]
        account.final[PLAIN] = [as_read(message) for message in plain]
        if "transactions" in self._plan.roles:
            ledger = await read_to_end(self._stage, env, LEDGER, partitions, "read_committed")  # type: ignore[arg-type]
            account.final[LEDGER] = [as_read(message) for message in ledger]
        if "copier" in self._plan.roles:
            copy = [
                as_read(m) for m in await read_to_end(self._stage, env, COPY, partitions, "read_committed")
            ]  # type: ignore[arg-type]
            account.copied = [(read.partition, read.writer, read.number) for read in copy]
        if "keyed" in self._plan.roles:
            for message in await read_to_end(self._stage, env, KEYED, 1, "read_uncommitted"):  # type: ignore[arg-type]
                number = dict(message.headers() or [])["number"] or b""
                account.final_keyed.append(((message.key() or b"").decode(), int(number)))
        async with Admin(self._stage.client, env=env) as admin:  # type: ignore[arg-type]
            observer = next(role for role in self._roles if isinstance(role, Observer))
            await observer._marks(admin)
            if "group" in self._plan.roles:
                await observer._offsets(admin)
            for role in self._roles:
                if isinstance(role, Administrator):
                    account.faults += await role.check(admin)


def _resume(process: Process) -> None:
    if process.is_stopped and process.is_alive:
        process.resume()


__all__ = ["BrokerMachine", "Verdict", "run"]
