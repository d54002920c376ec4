"""Long loops let the event loop serve other connections."""

import asyncio
import gc
import sys
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from felice.env import SystemClock
from felice.server.flow.pace import Wakeups, each_partition, paced


class SteppingClock(SystemClock):
    """Each item takes a millisecond."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        self.now += 0.001
        return self.now


async def passes_of(
    work: Callable[[Callable[[], None]], Coroutine[Any, Any, None]], count: int, *, notes: int
) -> list[int]:
    """Runs `work` so many times side by side. Returns the loop's pass of each call of its argument, `notes` in all."""
    loop_pass, passes = 0, []
    tasks = [asyncio.create_task(work(lambda: passes.append(loop_pass))) for _ in range(count)]
    while len(passes) < notes:
        await asyncio.sleep(0)
        loop_pass += 1
    await asyncio.gather(*tasks)
    return passes


def test_others_have_their_turns_while_many_items_are_worked_on() -> None:
    async def scenario() -> tuple[list[int], int]:
        turns, done = 0, False

        async def other() -> None:
            nonlocal turns
            while not done:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(other())
        seen = [item async for item in paced(range(1000), SteppingClock())]
        done = True
        await task
        return seen, turns

    seen, turns = asyncio.run(scenario())
    assert seen == list(range(1000))
    assert turns >= 150


def test_loops_that_run_side_by_side_share_the_time_of_a_pass() -> None:
    async def work(note: Callable[[], None]) -> None:
        async for _ in paced(range(20), SteppingClock()):
            note()

    passes = asyncio.run(passes_of(work, 5, notes=100))[25:-25]
    assert max(passes.count(number) for number in passes) <= 10, "a loop alone has five items in a pass"


def test_a_loop_may_be_collected_together_with_its_event_loop() -> None:
    async def begun() -> None:
        loop = asyncio.get_running_loop()
        items = paced(range(3), SteppingClock())
        # As in a process that is killed in a simulation: nothing closes the loop of `paced`.
        loop.set_exception_handler(lambda *_: items)  # type: ignore[arg-type]
        sys.set_asyncgen_hooks(None, None)
        await anext(items)

    loop = asyncio.new_event_loop()
    loop.run_until_complete(begun())
    loop.close()
    del loop
    gc.collect()  # pytest fails the test if this raises an error that nobody can catch


def test_few_items_are_worked_on_without_a_pause() -> None:
    async def scenario() -> tuple[list[int], bool]:
        has_paused: list[None] = []
        asyncio.get_running_loop().call_soon(has_paused.append, None)
        return [item async for item in paced(range(3), SteppingClock())], bool(has_paused)

    assert asyncio.run(scenario()) == ([0, 1, 2], False)


def test_loops_of_another_event_loop_do_not_share_the_time_of_a_pass() -> None:
    """Each event loop of a process serves its own broker."""
    other = asyncio.new_event_loop()
    begun = [paced(range(20), SteppingClock()) for _ in range(4)]
    for items in begun:
        other.run_until_complete(anext(items))

    async def work(note: Callable[[], None]) -> None:
        async for _ in paced(range(20), SteppingClock()):
            note()

    passes = asyncio.run(passes_of(work, 1, notes=20))
    other.run_until_complete(other.shutdown_asyncgens())
    other.close()
    assert passes.count(passes[0]) == 5


def test_coroutines_that_are_woken_together_share_the_passes_of_the_loop() -> None:
    wakeups = Wakeups(SteppingClock())

    async def woken(note: Callable[[], None]) -> None:
        await wakeups.turn()
        note()

    passes = asyncio.run(passes_of(woken, 40, notes=40))
    assert max(passes.count(number) for number in passes) <= 5, "one millisecond each, five in a pass"
    assert len(set(passes)) >= 8


def test_a_coroutine_that_is_woken_alone_does_not_wait_for_the_next_pass() -> None:
    async def scenario() -> None:
        clock = SteppingClock()
        wakeups = Wakeups(clock)
        for _ in range(3):
            with pytest.raises(StopIteration):  # it has returned without a pause
                wakeups.turn().send(None)
            await asyncio.sleep(0)
            clock.now += 60

    asyncio.run(scenario())


async def _answered(topics: list[Any]) -> list[tuple[Any, list[int]]]:
    return await each_partition(topics, lambda topic, item: int(item) + 1, SteppingClock())


def test_a_topics_partitions_come_back_under_it_with_and_without_pauses() -> None:
    for count in (3, 2000):
        topics: list[Any] = [
            SimpleNamespace(partitions=list(range(count))),
            SimpleNamespace(partitions=[]),
            SimpleNamespace(partitions=[7]),
        ]

        rows = asyncio.run(_answered(topics))
        assert [topic for topic, _ in rows] == topics
        assert [found for _, found in rows] == [list(range(1, count + 1)), [], [8]]
