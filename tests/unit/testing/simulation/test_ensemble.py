"""Sessions with the made-up ensemble: who believes what, when a machine is cut off, stopped, or dead."""

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


class Stage:
    def __init__(self) -> None:
        self.world = World(1, limit_s=100)
        self.ensemble = SimEnsemble(self.world, timeout_s=TIMEOUT_S)

    async def join(self, name: str) -> tuple[Incarnation, SimSession]:
        life = self.world.machine(name).boot()
        session = await life.run(self.ensemble.source(name, life.process).open())
        await life.run(session.create(f"/{name}", ephemeral=True))
        return life, session

    def is_there(self, path: str) -> bool:
        return self.ensemble.tree.find(path) is not None

    @property
    def now_s(self) -> float:
        return self.world.loop.time()


def play(story: Callable[[Stage], Awaitable[None]]) -> None:
    stage = Stage()
    stage.world.run(story(stage))  # type: ignore[arg-type]
    assert stage.world.errors == []


def test_a_session_that_is_heard_of_lives_on() -> None:
    async def story(stage: Stage) -> None:
        _, session = await stage.join("b1")
        await asyncio.sleep(10 * TIMEOUT_S)
        assert session.session_state is SessionState.CONNECTED
        assert stage.is_there("/b1")

    play(story)


def test_a_dead_process_is_missed_when_its_time_is_up_and_not_before() -> None:
    async def story(stage: Stage) -> None:
        await stage.join("b1")
        stage.world.machines["b1"].kill()
        await asyncio.sleep(0.6 * TIMEOUT_S)
        assert stage.is_there("/b1")
        await asyncio.sleep(0.6 * TIMEOUT_S)
        assert not stage.is_there("/b1")
        assert stage.ensemble.unheard["b1"] <= stage.now_s
        await stage.join("b1")
        assert stage.ensemble.unheard == {}

    play(story)


def test_a_machine_that_has_its_next_session_was_not_unheard_of() -> None:
    async def story(stage: Stage) -> None:
        await stage.join("b1")
        stage.world.machines["b1"].kill()
        life = stage.world.machines["b1"].boot()
        await life.run(stage.ensemble.source("b1", life.process).open())
        await asyncio.sleep(2 * TIMEOUT_S)
        assert not stage.is_there("/b1")
        assert stage.ensemble.unheard == {}

    play(story)


def test_the_history_names_the_writer() -> None:
    async def story(stage: Stage) -> None:
        await stage.join("b1")
        stage.ensemble.multi([Create("/b2")], 0)
        stage.ensemble.expire(stage.ensemble.sessions_of("b1")[0])
        told = [(written.path, written.by, written.data is None) for written in stage.ensemble.history]
        assert told == [("/b1", "b1", False), ("/b2", "", False), ("/b1", "", True)]

    play(story)


@pytest.mark.parametrize("ways", [[("b1", "store")], [("store", "b1")], [("b1", "store"), ("store", "b1")]])
def test_who_is_cut_off_knows_its_session_for_ended_before_the_others_do(ways: list[tuple[str, str]]) -> None:
    async def story(stage: Stage) -> None:
        _, session = await stage.join("b1")
        for way in ways:
            stage.world.network.block(*way)
        while session.session_state is not SessionState.EXPIRED:
            assert stage.is_there("/b1")
            await asyncio.sleep(0.01)
        # Where it is still heard, nobody ends its session until it falls silent itself.
        await asyncio.sleep(1.1 * TIMEOUT_S)
        assert not stage.is_there("/b1")
        stage.world.network.heal()
        life = stage.world.machines["b1"].process
        assert life is not None
        with pytest.raises(SessionExpired):
            await life.run(session.get("/"))
        before = session.session_id
        await life.run(session.renew())
        assert session.session_id != before
        assert session.session_state is SessionState.CONNECTED

    play(story)


def test_a_process_that_stood_still_finds_out_afterwards() -> None:
    async def story(stage: Stage) -> None:
        life, session = await stage.join("b1")
        life.process.stop()
        await asyncio.sleep(2 * TIMEOUT_S)
        assert session.session_state is SessionState.CONNECTED
        assert not stage.is_there("/b1")
        life.process.resume()
        await asyncio.sleep(0.1)
        assert session.session_state is SessionState.EXPIRED

    play(story)


def test_a_write_whose_answer_is_lost_may_have_happened_and_is_not_repeated() -> None:
    async def story(stage: Stage) -> None:
        life, session = await stage.join("b1")
        stage.world.network.block("store", "b1")
        with pytest.raises(StoreUnavailable):
            await life.run(session.create("/made"))
        assert stage.is_there("/made")

    play(story)


def test_a_read_whose_answer_is_lost_is_asked_again() -> None:
    async def story(stage: Stage) -> None:
        life, session = await stage.join("b1")
        reading = asyncio.ensure_future(life.run(session.get("/b1")))
        stage.ensemble.cut("b1")
        assert (await reading).ephemeral_owner == session.session_id

    play(story)


def test_events_come_in_order_and_what_was_missed_is_said() -> None:
    async def story(stage: Stage) -> None:
        _, watching = await stage.join("b1")
        life, writing = await stage.join("b2")
        events: list[Event] = []
        watching.watch("/", events.append)
        await life.run(writing.multi([Create("/x"), Create("/x/y")]))
        await asyncio.sleep(0.05)
        assert events == [Event(EventKind.CREATED, "/x"), Event(EventKind.CREATED, "/x/y")]
        stage.ensemble.cut("b1")
        await asyncio.sleep(0.5 * TIMEOUT_S)
        assert events[-1] == Event(EventKind.MISSED, "/")
        with pytest.raises(NoNode):
            await life.run(writing.get("/nowhere"))

    play(story)


def test_a_session_that_is_closed_ends_at_once_and_who_begins_in_vain_is_told() -> None:
    async def story(stage: Stage) -> None:
        life, session = await stage.join("b1")
        await life.run(session.close())
        assert not stage.is_there("/b1")
        stage.world.network.part("b1", "store")
        with pytest.raises(StartupError, match="cannot be reached"):
            await life.run(stage.ensemble.source("b1", life.process).open())

    play(story)
