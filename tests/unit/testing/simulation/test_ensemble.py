"""Sessions with the simulated store: what each side believes when a machine is isolated, stopped or dead."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from felice.metadata.store import (
    Create,
    Event,
    EventKind,
    NoNode,
    SessionExpired,
    SessionState,
    StoreUnavailable,
)
from felice.server.startup import StartupError
from felice.testing.simulation.ensemble import SimEnsemble, SimSession
from felice.testing.simulation.world import Incarnation, World

TIMEOUT_S = 1.0


class Setup:
    def __init__(self) -> None:
        self.world = World(1, limit_s=100)
        self.ensemble = SimEnsemble(self.world, timeout_s=TIMEOUT_S)

    async def join(self, name: str) -> tuple[Incarnation, SimSession]:
        process = self.world.machine(name).boot()
        session = await process.run(self.ensemble.source(name, process.process).open())
        await process.run(session.create(f"/{name}", ephemeral=True))
        return process, session

    def is_there(self, path: str) -> bool:
        return self.ensemble.tree.find(path) is not None

    @property
    def now_s(self) -> float:
        return self.world.loop.time()


def run(test: Callable[[Setup], Awaitable[None]]) -> None:
    setup = Setup()
    setup.world.run(test(setup))  # type: ignore[arg-type]
    assert setup.world.errors == []


def test_a_session_with_heartbeats_stays_alive() -> None:
    async def check(setup: Setup) -> None:
        _, session = await setup.join("b1")
        await asyncio.sleep(10 * TIMEOUT_S)
        assert session.session_state is SessionState.CONNECTED
        assert setup.is_there("/b1")

    run(check)


def test_the_session_of_a_dead_process_ends_after_its_timeout_and_not_before() -> None:
    async def check(setup: Setup) -> None:
        await setup.join("b1")
        setup.world.machines["b1"].kill()
        await asyncio.sleep(0.6 * TIMEOUT_S)
        assert setup.is_there("/b1")
        await asyncio.sleep(0.6 * TIMEOUT_S)
        assert not setup.is_there("/b1")
        assert setup.ensemble.unheard["b1"] <= setup.now_s
        await setup.join("b1")
        assert setup.ensemble.unheard == {}

    run(check)


def test_a_machine_with_a_new_session_does_not_count_as_timed_out() -> None:
    async def check(setup: Setup) -> None:
        await setup.join("b1")
        setup.world.machines["b1"].kill()
        process = setup.world.machines["b1"].boot()
        await process.run(setup.ensemble.source("b1", process.process).open())
        await asyncio.sleep(2 * TIMEOUT_S)
        assert not setup.is_there("/b1")
        assert setup.ensemble.unheard == {}

    run(check)


def test_the_history_names_the_writer() -> None:
    async def check(setup: Setup) -> None:
        await setup.join("b1")
        setup.ensemble.multi([Create("/b2")], 0)
        setup.ensemble.expire(setup.ensemble.sessions_of("b1")[0])
        told = [(written.path, written.by, written.data is None) for written in setup.ensemble.history]
        assert told == [("/b1", "b1", False), ("/b2", "", False), ("/b1", "", True)]

    run(check)


@pytest.mark.parametrize("ways", [[("b1", "store")], [("store", "b1")], [("b1", "store"), ("store", "b1")]])
def test_an_isolated_owner_considers_its_session_ended_before_the_store_does(
    ways: list[tuple[str, str]],
) -> None:
    async def check(setup: Setup) -> None:
        _, session = await setup.join("b1")
        for way in ways:
            setup.world.network.block(*way)
        while session.session_state is not SessionState.EXPIRED:
            assert setup.is_there("/b1")
            await asyncio.sleep(0.01)
        # The store still hears the session, and does not end it until the owner is silent.
        await asyncio.sleep(1.1 * TIMEOUT_S)
        assert not setup.is_there("/b1")
        setup.world.network.heal()
        process = setup.world.machines["b1"].process
        assert process is not None
        with pytest.raises(SessionExpired):
            await process.run(session.get("/"))
        before = session.session_id
        await process.run(session.renew())
        assert session.session_id != before
        assert session.session_state is SessionState.CONNECTED

    run(check)


def test_a_stopped_process_learns_after_it_resumes_that_its_session_ended() -> None:
    async def check(setup: Setup) -> None:
        process, session = await setup.join("b1")
        process.process.stop()
        await asyncio.sleep(2 * TIMEOUT_S)
        assert session.session_state is SessionState.CONNECTED
        assert not setup.is_there("/b1")
        process.process.resume()
        await asyncio.sleep(0.1)
        assert session.session_state is SessionState.EXPIRED

    run(check)


def test_a_write_whose_response_is_lost_may_have_happened_and_is_not_repeated() -> None:
    async def check(setup: Setup) -> None:
        process, session = await setup.join("b1")
        setup.world.network.block("store", "b1")
        with pytest.raises(StoreUnavailable):
            await process.run(session.create("/made"))
        assert setup.is_there("/made")

    run(check)


def test_a_read_whose_response_is_lost_is_sent_again() -> None:
    async def check(setup: Setup) -> None:
        process, session = await setup.join("b1")
        reading = asyncio.ensure_future(process.run(session.get("/b1")))
        setup.ensemble.cut("b1")
        assert (await reading).ephemeral_owner == session.session_id

    run(check)


def test_events_arrive_in_order_and_missed_events_are_reported() -> None:
    async def check(setup: Setup) -> None:
        _, watching = await setup.join("b1")
        process, writing = await setup.join("b2")
        events: list[Event] = []
        watching.watch("/", events.append)
        await process.run(writing.multi([Create("/x"), Create("/x/y")]))
        await asyncio.sleep(0.05)
        assert events == [Event(EventKind.CREATED, "/x"), Event(EventKind.CREATED, "/x/y")]
        setup.ensemble.cut("b1")
        await asyncio.sleep(0.5 * TIMEOUT_S)
        assert events[-1] == Event(EventKind.MISSED, "/")
        with pytest.raises(NoNode):
            await process.run(writing.get("/nowhere"))

    run(check)


def test_a_closed_session_ends_at_once_and_a_failed_opening_raises() -> None:
    async def check(setup: Setup) -> None:
        process, session = await setup.join("b1")
        await process.run(session.close())
        assert not setup.is_there("/b1")
        setup.world.network.part("b1", "store")
        with pytest.raises(StartupError, match="cannot be reached"):
            await process.run(setup.ensemble.source("b1", process.process).open())

    run(check)
