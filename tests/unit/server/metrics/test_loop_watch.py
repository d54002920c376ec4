"""How late the event loop is, on a clock that the test holds."""

from __future__ import annotations

import asyncio

import pytest

from felice.server.metrics.loop_watch import TICK_S, LoopWatch
from unit.server.test_turns import HeldClock


class Watched:
    def __init__(self) -> None:
        self.clock = HeldClock()
        self.cpu_s = 0.0
        self.watch = LoopWatch(self.clock, lambda: self.cpu_s)

    def tick(self, late_s: float = 0.0) -> None:
        self.clock.now_s = self.watch._due_s + late_s
        self.watch._tick()


def run(scenario: object) -> None:
    async def whole() -> None:
        watched = Watched()
        watched.watch.start()
        scenario(watched)  # type: ignore[operator]
        watched.watch.stop()

    asyncio.run(whole())


def test_delays_are_measured() -> None:
    def scenario(watched: Watched) -> None:
        watched.tick()
        watched.tick(late_s=0.25)
        assert list(watched.watch.delays) == pytest.approx([0.0, 0.25])
        assert watched.watch.ticks == 2
        assert watched.watch.take_largest_delay() == pytest.approx(0.25)
        assert watched.watch.take_largest_delay() == 0.0

    run(scenario)


def test_the_idle_share_is_what_the_thread_did_not_compute() -> None:
    def scenario(watched: Watched) -> None:
        assert watched.watch.idle_share == 1.0
        for _ in range(11):
            watched.tick()
            watched.cpu_s += TICK_S / 4
        assert watched.watch.idle_share == pytest.approx(0.75)

    run(scenario)


def test_rates_of_connections() -> None:
    def scenario(watched: Watched) -> None:
        counts = [0, 0]
        watched.watch.count_connections(lambda: (counts[0], counts[1]))
        assert watched.watch.connection_rates == (0.0, 0.0)
        for _ in range(11):
            watched.tick()
            counts[0], counts[1] = counts[0] + 2, counts[1] + 1
        accepted, closed = watched.watch.connection_rates
        assert (accepted, closed) == (pytest.approx(20.0), pytest.approx(10.0))

    run(scenario)


def test_a_stopped_watch_measures_no_more() -> None:
    async def scenario() -> None:
        watch = LoopWatch(HeldClock(), lambda: 0.0)
        watch.start()
        watch.stop()
        await asyncio.sleep(2 * TICK_S)
        assert watch.ticks == 0

    asyncio.run(scenario())
