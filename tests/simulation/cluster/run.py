"""A simulation run of a cluster: more faults than with one broker, and checkers that see every replica."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable

from checkers.replicas import copies_anomalies, starts_anomalies, state_anomalies
from felice.metadata import layout
from felice.server.process.local_cluster import local_settings
from felice.testing.simulation.ensemble import SimEnsemble
from felice.testing.simulation.world import BrokerMachine, World
from simulation.cluster.lost_stores import HeldLogs, LostStores
from simulation.cluster.observer import ClusterObserver
from simulation.cluster.plan import LEADER_FAULTS, SESSION_TIMEOUT_S, cluster_plan_of
from simulation.cluster.takeovers import Takeovers
from simulation.cluster.workload import Reassigner, RecordDeleter
from simulation.observations import PLAIN, Observations, Sent
from simulation.plan import Fault, Plan
from simulation.run import BrokerSupervisor, RunResult, SimulationRun, _resume, execute
from simulation.workload import WorkloadClient

# The longest time, on the simulated clock, until all ISRs are full again and all replicas equal.
FULL_REPLICATION_S = 30.0
_OBSERVE_INTERVAL_S = 0.15
# The delay, in seconds, with which a stale controller hears from the store.
_BEHIND_S = 0.3


def simulate(seed: int, change: Callable[[Plan], Plan] = lambda plan: plan) -> RunResult:
    """Run the simulation of a cluster for this seed. `change` may alter the plan first."""
    return execute(change(cluster_plan_of(seed)), ClusterRun)


class ClusterRun(SimulationRun):
    """One run of a cluster of three to five brokers around one simulated metadata store."""

    def __init__(self, world: World, plan: Plan, observations: Observations) -> None:
        self._ensemble = SimEnsemble(world, timeout_s=SESSION_TIMEOUT_S)
        super().__init__(world, plan, observations)
        self._by_number = dict(enumerate(self._brokers, 1))
        self._observer = ClusterObserver(world, self._ensemble, self._by_number)
        self._takeovers = Takeovers(world, self._ensemble, self._observer, self._shared)
        self._lost_stores = LostStores(world, self._ensemble)
        self._held_logs = HeldLogs(world, self._ensemble, self._by_number)
        # The broker whose power failed, until it is in no ISR. It lacks data that its ISR membership
        # promises (`guarded`).
        self._without_power: int | None = None
        self._disturbed_until_s = 0.0
        observations.on_acknowledged = self._check_acknowledgement

    def _make_brokers(self) -> list[BrokerMachine]:
        count = self._plan.brokers
        return [
            self._world.broker(
                f"b{number}",
                {**local_settings(count), **self._plan.properties},
                node_id=number,
                ensemble=self._ensemble,
            )
            for number in range(1, count + 1)
        ]

    def _make_clients(self) -> list[WorkloadClient]:
        clients = super()._make_clients()
        if "reassignment" in self._plan.workloads:
            clients.append(Reassigner(self._shared, "v1"))
        if self._plan.deletes_records:
            clients.append(RecordDeleter(self._shared, "d1"))
        return clients

    async def execute(self) -> None:
        looking = asyncio.ensure_future(self._observe_repeatedly())
        await super().execute()
        looking.cancel()
        self._observations.reported += self._observer.replicas.anomalies
        self._observations.reported += state_anomalies(self._observer.states())
        if self._plan.durability == "cached":
            # A power failure may take a log that was never synced.
            self._observations.reported += self._held_logs.anomalies()

    async def _observe_repeatedly(self) -> None:
        while True:
            await asyncio.sleep(_OBSERVE_INTERVAL_S)
            self._observer.observe()
            self._held_logs.observe()
            self._check_whether_caught_up()
            if self._without_power is None:
                self._observer.check_isrs()

    def _check_acknowledgement(self, sent: Sent) -> None:
        if sent.offset is None:
            return  # a duplicate, whose offset the broker no longer knows
        if self._without_power is not None:
            return  # the broker without power is still in the ISR and has lost data
        fault = self._observer.check_acknowledgement(PLAIN, sent.partition, sent.offset, self._plan.min_isr)
        if fault is not None:
            self._observations.reported.append(f"{fault}, at {self._world.loop.time():.3f} s")

    def _is_ready(self) -> bool:
        """Whether every broker knows every other, so that topics can have replicas on all of them."""
        images = [
            machine.broker.image for machine in self._brokers if machine.broker and machine.broker.is_composed
        ]
        return len(images) == self._plan.brokers and all(
            len(image.brokers) == len(images) for image in images
        )

    # Faults of brokers

    def _inject(self, fault: Fault) -> None:
        self._check_whether_caught_up()
        if self._without_power is not None and "client" not in fault.kind:
            self._world.note(f"no {fault.kind} while {self._without_power} is weak")
            return
        if fault.kind not in ("power", "clock") and "client" not in fault.kind:
            self._disturb(fault, sessions=2 if fault.kind in LEADER_FAULTS else 1)
        super()._inject(fault)

    def _disturb(self, fault: Fault, sessions: int) -> None:
        """Note until when the ISRs in the store may be outdated: until the fault is over, and the store
        knows.
        """
        seconds = 2 * fault.seconds + sessions * SESSION_TIMEOUT_S
        self._disturbed_until_s = max(self._disturbed_until_s, self._world.loop.time() + seconds)

    def _check_whether_caught_up(self) -> None:
        if self._without_power is not None and not self._observer.in_sync_beside(self._without_power):
            self._without_power = None

    def _some_broker(self) -> int:
        return self._random.randrange(1, self._plan.brokers + 1)

    def _bring_down(self, number: int, seconds: float) -> None:
        self._supervisors[number - 1].down_for(seconds)
        self._by_number[number].kill()

    def _inject_kill(self, fault: Fault) -> None:
        self._bring_down(self._some_broker(), fault.seconds)

    def _inject_kill_leader(self, fault: Fault) -> None:
        state = self._observer.state(PLAIN, 0)
        if state is not None and state.leader > 0:
            self._bring_down(state.leader, fault.seconds)

    def _controller(self) -> int | None:
        node = self._ensemble.tree.find(layout.CONTROLLER)
        return None if node is None else layout.decode_controller(node.data)

    def _inject_kill_controller(self, fault: Fault) -> None:
        if (number := self._controller()) is not None:
            self._bring_down(number, fault.seconds)

    def _inject_restart(self, fault: Fault) -> None:
        supervisor = self._supervisors[self._some_broker() - 1]
        self._healing.append(asyncio.ensure_future(supervisor.restart(fault.seconds)))

    def _inject_rolling_restart(self, fault: Fault) -> None:
        async def roll() -> None:
            for supervisor in self._supervisors:
                await supervisor.restart(0.05)
                await asyncio.sleep(0.3)

        self._healing.append(asyncio.ensure_future(roll()))

    def _inject_pause(self, fault: Fault) -> None:
        process = self._by_number[self._some_broker()].process
        if process is not None and process.is_alive:
            process.stop()
            self._after(fault.seconds, lambda: _resume(process))

    def _inject_power(self, fault: Fault) -> None:
        number = self._some_broker()
        if self._may_lose_power(number):
            self._supervisors[number - 1].down_for(fault.seconds)
            self._by_number[number].cut_power()
            self._without_power = number if self._plan.durability == "guarded" else None
        else:
            self._disturb(fault, sessions=1)
            self._bring_down(number, fault.seconds)

    def _inject_power_at_operation(self, fault: Fault) -> None:
        number = self._some_broker()
        if self._plan.durability == "synced" and self._by_number[number].is_running:
            self._by_number[number].cut_power_within(fault.number)
        else:
            self._inject_power(fault)

    def _inject_power_everywhere(self, fault: Fault) -> None:
        for supervisor in self._supervisors:
            supervisor.down_for(fault.seconds * self._random.random())
            supervisor.broker.cut_power()

    def _may_lose_power(self, number: int) -> bool:
        """Whether the plan allows a power failure of this broker.

        In `guarded` runs, every partition that it has in sync needs another replica that is in sync and
        alive.
        """
        if self._plan.durability == "synced":
            return True
        if self._world.loop.time() < self._disturbed_until_s or self._plan.replicas < 2:
            return False
        alive = self._observer.alive()
        others = self._observer.in_sync_beside(number)
        return len(alive) == self._plan.brokers and all(beside & alive for beside in others)

    # Faults of sessions and connections

    def _inject_store_cut(self, fault: Fault) -> None:
        self._ensemble.cut(f"b{self._some_broker()}")

    def _inject_expire(self, fault: Fault) -> None:
        self._expire(self._some_broker())

    def _inject_expire_controller(self, fault: Fault) -> None:
        if (number := self._controller()) is not None:
            self._expire(number)

    def _expire(self, number: int) -> None:
        for session in self._ensemble.sessions_of(f"b{number}"):
            self._ensemble.expire(session)

    def _inject_store_part(self, fault: Fault) -> None:
        self._part_for(fault.seconds, f"b{self._some_broker()}", self._ensemble.name)

    def _inject_store_one_way(self, fault: Fault) -> None:
        self._block_for(fault.seconds, f"b{self._some_broker()}", self._ensemble.name)

    def _inject_store_slow(self, fault: Fault) -> None:
        self._slow(f"b{self._some_broker()}", self._ensemble.name, min(fault.seconds, 0.5))

    # Losses of the store

    def _inject_store_emptied(self, fault: Fault) -> None:
        if not self._lost_stores.is_lost:
            self._lost_stores.empty(None)
            self._after_loss(fault.seconds, self._lost_stores.fill)

    def _inject_store_replaced(self, fault: Fault) -> None:
        """Empty the store and let another cluster begin there: the brokers must stop."""
        if not self._lost_stores.is_lost:
            self._lost_stores.empty("another cluster")
            self._after_loss(fault.seconds, self._lost_stores.fill)

    def _inject_store_restored(self, fault: Fault) -> None:
        """Restore a snapshot that is older than the topics, and later a newer one that has them."""
        self._take_topics(fault, ends_sessions=True)

    def _inject_topics_removed(self, fault: Fault) -> None:
        """Remove the topics' nodes by hand, and create them again later."""
        self._take_topics(fault, ends_sessions=False)

    def _after_loss(self, seconds: float, restore: Callable[[], None]) -> None:
        """Restore the store's data, but first check the disks: replicas that were deleted are copied again later."""

        def check_and_restore() -> None:
            self._observations.reported += self._held_logs.anomalies()
            restore()

        self._after(seconds, check_and_restore)

    def _take_topics(self, fault: Fault, *, ends_sessions: bool) -> None:
        if not self._lost_stores.is_lost:
            taken = self._lost_stores.take_topics(ends_sessions=ends_sessions)
            self._after_loss(
                fault.seconds, lambda: self._lost_stores.give_topics(taken, ends_sessions=ends_sessions)
            )

    def _inject_store_pauses(self, fault: Fault) -> None:
        """Suspend the store for longer than sessions last, again and again while the brokers return."""

        async def suspend() -> None:
            for _ in range(2 + fault.number % 3):
                for broker in self._brokers:
                    self._world.network.part(broker.name, self._ensemble.name)
                await asyncio.sleep(1.5 * SESSION_TIMEOUT_S)
                for broker in self._brokers:
                    for way in ((broker.name, self._ensemble.name), (self._ensemble.name, broker.name)):
                        self._world.network.unblock(*way)
                await asyncio.sleep(fault.seconds / 8 * self._random.random())

        self._healing.append(asyncio.ensure_future(suspend()))

    def _two_brokers(self) -> tuple[str, str]:
        one, other = self._random.sample(range(1, self._plan.brokers + 1), 2)
        return f"b{one}", f"b{other}"

    def _inject_link_part(self, fault: Fault) -> None:
        self._part_for(fault.seconds, *self._two_brokers())

    def _inject_link_one_way(self, fault: Fault) -> None:
        self._block_for(fault.seconds, *self._two_brokers())

    def _inject_link_slow(self, fault: Fault) -> None:
        self._slow(*self._two_brokers(), fault.seconds)

    def _inject_isolate(self, fault: Fault) -> None:
        """Isolate a broker from the other brokers, and half of the time from the store too.

        Clients still reach it.
        """
        name = f"b{self._some_broker()}"
        others = [broker.name for broker in self._brokers if broker.name != name]
        if fault.number % 2:
            others.append(self._ensemble.name)
        for other in others:
            self._part_for(fault.seconds, name, other)

    def _inject_isolate_leader(self, fault: Fault) -> None:
        """Isolate a partition's leader from the store and the other brokers for longer than its session
        lasts. Clients keep writing to it in vain, until the controller elects another leader.
        """
        state = self._observer.state(PLAIN, fault.number % self._plan.partitions)
        if state is not None and state.leader > 0:
            name = f"b{state.leader}"
            for other in [self._ensemble.name, *(broker.name for broker in self._brokers)]:
                if other != name:
                    self._part_for(max(fault.seconds, 1.2 * SESSION_TIMEOUT_S), name, other)

    # Faults of leaderships

    def _some_partition(self, fault: Fault) -> int:
        return fault.number % self._plan.partitions

    def _inject_flap(self, fault: Fault) -> None:
        """Change a partition's leader several times, faster than all brokers hear of it."""

        async def flap() -> None:
            for _ in range(2 + fault.number % 2):
                self._takeovers.elect(self._some_partition(fault))
                await asyncio.sleep(self._random.choice((0.0, 0.01, 0.05, 0.2)) * self._random.random())

        self._healing.append(asyncio.ensure_future(flap()))

    def _inject_late_fetches(self, fault: Fault) -> None:
        """Replace a leader and elect it again before it hears of either change, while fetches under its
        first epoch are in flight. The follower that sent them had more records than the leader in between,
        and must truncate its log.
        """
        partition = self._some_partition(fault)
        state = self._observer.state(PLAIN, partition)
        if state is None or state.leader <= 0 or len(state.isr) < 3:
            self._inject_flap(fault)
            return
        leader = f"b{state.leader}"
        others = [replica for replica in state.isr if replica != state.leader]
        ahead, behind = self._random.sample(others, 2)
        ways = ((f"b{ahead}", leader), (leader, f"b{behind}"), (self._ensemble.name, leader))

        async def relieve() -> None:
            for way in ways:
                self._world.network.slow(*way, 0.3 + 0.1 * self._random.random())
            await asyncio.sleep(0.4 * self._random.random())
            self._takeovers.elect(partition, behind)
            await asyncio.sleep(0.05 + 0.1 * self._random.random())
            self._takeovers.elect(partition, state.leader)
            await asyncio.sleep(1.0)
            for way in ways:
                self._world.network.slow(*way, 0.0)

        self._healing.append(asyncio.ensure_future(relieve()))

    def _inject_stale_controller(self, fault: Fault) -> None:
        """Delay what the controller hears from the store: that a broker is gone, and that leaders change."""
        if (number := self._controller()) is None:
            return
        lost = self._random.choice([broker for broker in self._by_number if broker != number])

        async def mislead() -> None:
            self._world.network.slow(self._ensemble.name, f"b{number}", _BEHIND_S)
            self._lose(lost, 2 * _BEHIND_S)
            for _ in range(5):
                await asyncio.sleep(0.1 + 0.1 * self._random.random())
                self._takeovers.elect(self._some_partition(fault))
            self._world.network.slow(self._ensemble.name, f"b{number}", 0.0)

        self._healing.append(asyncio.ensure_future(mislead()))

    def _inject_depose_controller(self, fault: Fault) -> None:
        """Delete `/controller`, as an operator may.

        The former controller hears of it late, and has work to do meanwhile.
        """
        if (number := self._controller()) is None:
            return
        lost = self._random.choice([broker for broker in self._by_number if broker != number])

        async def depose() -> None:
            self._world.network.slow(self._ensemble.name, f"b{number}", _BEHIND_S)
            self._lose(lost, 2 * _BEHIND_S)
            await asyncio.sleep(2 * _BEHIND_S * self._random.random())
            self._takeovers.depose()
            await asyncio.sleep(2 * _BEHIND_S)
            self._world.network.slow(self._ensemble.name, f"b{number}", 0.0)

        self._healing.append(asyncio.ensure_future(depose()))

    def _lose(self, number: int, seconds: float) -> None:
        """Kill a broker and end its session at once."""
        self._bring_down(number, seconds)
        self._expire(number)

    def _inject_lagging_preferred(self, fault: Fault) -> None:
        """Cut the preferred replica off from the other brokers, but not from the store: it is alive and
        falls behind. Request preferred elections meanwhile, and while it catches up.
        """
        partition = self._some_partition(fault)
        first = self._takeovers.first_replica(partition)
        if first is None:
            return
        seconds = 1.2 + fault.seconds / 2
        if (state := self._observer.state(PLAIN, partition)) is not None and state.leader == first:
            self._takeovers.elect(partition)
        for broker in self._brokers:
            if broker.name != f"b{first}":
                self._part_for(seconds, f"b{first}", broker.name)
        self._healing.append(asyncio.ensure_future(self._takeovers.request_elections(seconds + 0.5)))

    def _inject_client_part(self, fault: Fault) -> None:
        for client in self._some_clients():
            self._part_for(fault.seconds, client, f"b{self._some_broker()}")

    def _part_for(self, seconds: float, one: str, other: str) -> None:
        network = self._world.network
        network.part(one, other)

        def undo() -> None:
            network.unblock(one, other)
            network.unblock(other, one)

        self._after(seconds, undo)

    def _block_for(self, seconds: float, one: str, other: str) -> None:
        network = self._world.network
        way = (one, other) if self._random.random() < 0.5 else (other, one)
        network.block(*way)
        self._after(seconds, lambda: network.unblock(*way))

    def _slow(self, one: str, other: str, seconds: float) -> None:
        for way in ((one, other), (other, one)):
            self._world.network.slow(*way, seconds * self._random.random())

    # Faults of machines

    def _inject_clock(self, fault: Fault) -> None:
        names = [client.name for client in self._clients] + [broker.name for broker in self._brokers] * 3
        jump_ms = self._random.choice((-1, 1)) * self._random.randrange(10 ** self._random.randrange(2, 7))
        self._world.machines[self._random.choice(names)].clock.jump(jump_ms)

    def _inject_disk_error(self, fault: Fault) -> None:
        broker = self._by_number[self._some_broker()]
        operation = self._random.choice(("sync", "write", "create", "rename", "sync_dir", "read"))
        broken = broker.disk.fail(operation, errno.EIO, after=fault.number // 10, times=1 + fault.number % 3)

        def repair() -> None:
            broker.disk.heal(broken)
            broker.kill()

        self._after(fault.seconds, repair)

    def _inject_slow_disk(self, fault: Fault) -> None:
        """Slow the disk of one broker or of all: a sync takes up to a second."""
        numbers = self._by_number if fault.number < 15 else [self._some_broker()]
        for number in numbers:
            machine = self._by_number[number]
            machine.slow_disk(fault.number / 120)
            self._after(fault.seconds, machine.slow_disk)

    def _inject_full_disk(self, fault: Fault) -> None:
        broker = self._by_number[self._some_broker()]
        broker.disk.capacity_bytes = broker.disk.used_bytes + fault.number * 50

        def repair() -> None:
            broker.disk.capacity_bytes = None
            directories = broker.broker.directories if broker.broker is not None else []
            if any(directory.failed for directory in directories):
                # A log that could not be opened on the full disk stays offline until the broker starts
                # again.
                broker.kill()

        self._after(fault.seconds, repair)

    # Recovery

    async def _all_clients_finish(self, running: list[asyncio.Task[None]]) -> bool:
        return await super()._all_clients_finish(running) and await self._is_fully_replicated()

    async def _is_fully_replicated(self) -> bool:
        deadline = self._world.loop.time() + FULL_REPLICATION_S
        while (recovery_obstacle := self._observer.recovery_obstacle()) is not None:
            if self._world.loop.time() > deadline:
                self._observations.reported.append(
                    f"liveness: not fully replicated after {FULL_REPLICATION_S:.0f} s: {recovery_obstacle}"
                )
                return False
            await asyncio.sleep(_OBSERVE_INTERVAL_S)
        self._observer.observe()
        self._observations.reported += copies_anomalies(self._observer.ends())
        self._observations.reported += starts_anomalies(self._observer.starts())
        return True


__all__ = ["BrokerSupervisor", "ClusterRun", "simulate"]
