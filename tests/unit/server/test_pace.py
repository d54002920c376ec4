"""Long loops let the event loop serve other connections."""

import asyncio

from felice.env import SystemClock
from felice.server.pace import paced


class SteppingClock(SystemClock):
    """Each item takes a millisecond."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        self.now += 0.001
        return self.now


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


def test_few_items_are_worked_on_without_a_pause() -> None:
    async def scenario() -> list[int]:
        return [item async for item in paced(range(3), SteppingClock())]

    coroutine = scenario()
    try:
        coroutine.send(None)
    except StopIteration as ended:
        assert ended.value == [0, 1, 2]
    else:
        raise AssertionError("it paused")
