"""A coroutine that begins without a task, and what is left of it when it waits."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from felice.env.begun import Rest, Waiting, begin, time_limit
from waiting import LIMIT_S


async def test_a_coroutine_that_does_not_wait_gives_its_result() -> None:
    async def add(left: int, right: int) -> int:
        return left + right

    async def twice() -> int:
        return await add(1, 2) + await add(3, 4)

    assert begin(twice()) == 10


async def test_what_it_raises_at_once_reaches_the_caller() -> None:
    async def fail() -> None:
        raise ValueError("at once")

    with pytest.raises(ValueError, match="at once"):
        begin(fail())


@pytest.mark.parametrize("in_task", [False, True])
async def test_the_rest_goes_on_where_the_coroutine_waited(in_task: bool) -> None:
    gate: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    steps: list[str] = []

    async def work() -> int:
        steps.append("begun")
        found = await gate
        await asyncio.sleep(0)
        steps.append("ended")
        return found + 1

    rest: Any = begin(work())
    assert isinstance(rest, Rest)
    assert steps == ["begun"]
    if in_task:
        rest = asyncio.get_running_loop().create_task(rest)
    asyncio.get_running_loop().call_soon(gate.set_result, 1)
    assert await rest == 2
    assert steps == ["begun", "ended"]


async def test_what_it_waits_for_may_come_before_the_rest_is_awaited() -> None:
    gate: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def work() -> int:
        return await gate

    rest = begin(work())
    gate.set_result(5)
    await asyncio.sleep(0)
    assert isinstance(rest, Rest)
    assert await rest == 5


async def test_a_task_that_is_cancelled_before_its_first_step_ends_the_rest() -> None:
    """The connection may be lost in the pass of the event loop in which the request came."""
    ends: list[str] = []

    async def work() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ends.append("ended")

    rest = begin(work())
    assert isinstance(rest, Rest)
    task = asyncio.get_running_loop().create_task(rest)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ends == ["ended"]


async def test_a_task_that_is_cancelled_later_ends_the_rest() -> None:
    gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def work() -> str:
        try:
            await gate
        except asyncio.CancelledError:
            return "cancelled"
        return "not cancelled"

    rest = begin(work())
    assert isinstance(rest, Rest)
    task = asyncio.get_running_loop().create_task(rest)
    await asyncio.sleep(0)
    task.cancel()
    assert await task == "cancelled"


def test_a_limit_in_the_first_step_holds_in_the_task_that_awaits_the_rest() -> None:
    """A handler begins in a callback of the event loop, where there is no task that a timeout could cancel."""

    async def wait() -> str:
        try:
            async with time_limit(0.01):
                await asyncio.get_running_loop().create_future()
        except TimeoutError:
            return "too long"
        return "in time"

    loop = asyncio.new_event_loop()
    begun: list[Any] = []
    loop.call_soon(lambda: begun.append(begin(wait())))
    loop.call_soon(loop.stop)
    loop.run_forever()
    assert loop.run_until_complete(begun[0]) == "too long"
    loop.close()


async def test_a_limit_ends_its_own_coroutine_and_not_one_that_is_awaited_before() -> None:
    gate: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def first() -> str:
        return await gate

    async def limited() -> str:
        try:
            async with time_limit(0.01):
                await asyncio.get_running_loop().create_future()
        except TimeoutError:
            return "too long"
        return "in time"

    begun = [begin(first()), begin(limited())]
    asyncio.get_running_loop().call_later(0.05, gate.set_result, "first")
    assert [await one for one in begun if isinstance(one, Rest)] == ["first", "too long"]


class Ends:
    """Runs rests without tasks, and keeps their outcomes."""

    def __init__(self) -> None:
        self.outcomes: list[Any] = []

    def run(self, coroutine: Any) -> Waiting[Any]:
        rest = begin(coroutine)
        assert isinstance(rest, Rest)
        return Waiting(rest, asyncio.get_running_loop(), self._on_end)

    def _on_end(self, waiting: Waiting[Any]) -> None:
        try:
            self.outcomes.append(waiting.result())
        except asyncio.CancelledError:
            self.outcomes.append("cancelled")
        except ValueError as error:
            self.outcomes.append(str(error))


async def test_a_rest_that_waits_for_futures_ends_without_a_task() -> None:
    loop, ends = asyncio.get_running_loop(), Ends()
    gates: list[asyncio.Future[str]] = [loop.create_future() for _ in range(2)]
    tasks: list[object] = []

    async def work() -> str:
        first = await gates[0]
        tasks.append(asyncio.current_task())
        return first + await gates[1]

    ends.run(work())
    gates[0].set_result("a")
    await asyncio.sleep(0)
    assert ends.outcomes == []
    gates[1].set_result("b")
    await asyncio.sleep(0)
    assert ends.outcomes == ["ab"]
    assert tasks == [None]


async def test_a_rest_that_pauses_goes_on_in_a_task() -> None:
    ends, tasks = Ends(), list[object]()

    async def work() -> str:
        await asyncio.sleep(0)
        tasks.append(asyncio.current_task())
        async with time_limit(60):
            await asyncio.sleep(0)
        return "ended"

    ends.run(work())
    await wait_until_async(lambda: bool(ends.outcomes))
    assert ends.outcomes == ["ended"]
    assert tasks != [None]


@pytest.mark.parametrize("fails_at", ["future", "coroutine"])
async def test_what_fails_is_the_outcome(fails_at: str) -> None:
    ends = Ends()
    gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def work() -> None:
        await gate
        raise ValueError("coroutine")

    ends.run(work())
    if fails_at == "future":
        gate.set_exception(ValueError("future"))
    else:
        gate.set_result(None)
    await asyncio.sleep(0)
    assert ends.outcomes == [fails_at]


@pytest.mark.parametrize("when", ["waits for a future", "the future is done", "runs in a task"])
@pytest.mark.parametrize("goes_on", [False, True])
async def test_a_cancelled_rest_ends_where_it_waits(when: str, goes_on: bool) -> None:
    ends = Ends()
    gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def work() -> str:
        if when == "runs in a task":
            await asyncio.sleep(0)
        try:
            await gate
        except asyncio.CancelledError:
            if not goes_on:
                raise
            await asyncio.sleep(0)
            return "went on"
        return "not cancelled"

    waiting = ends.run(work())
    for _ in range(3):
        await asyncio.sleep(0)
    if when == "the future is done":
        gate.set_result(None)
    waiting.cancel()
    await wait_until_async(lambda: bool(ends.outcomes))
    assert ends.outcomes == ["went on" if goes_on else "cancelled"]


async def test_a_step_may_cancel_its_own_rest() -> None:
    """A handler's step may find that its connection is lost, which cancels all handlers of the connection."""
    ends, waiting = Ends(), list[Waiting[Any]]()
    first: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def work() -> None:
        await first
        waiting[0].cancel()
        await asyncio.get_running_loop().create_future()

    waiting.append(ends.run(work()))
    first.set_result(None)
    await wait_until_async(lambda: bool(ends.outcomes))
    assert ends.outcomes == ["cancelled"]


async def test_several_rests_may_wait_for_one_future() -> None:
    loop, ends = asyncio.get_running_loop(), Ends()
    gate: asyncio.Future[int] = loop.create_future()

    async def work() -> int:
        return await gate

    rest = begin(work())
    assert isinstance(rest, Rest)
    ends.run(work())
    ends.run(work())
    tasks = [loop.create_task(rest), loop.create_task(work())]
    await asyncio.sleep(0)
    gate.set_result(7)
    assert await asyncio.gather(*tasks) == [7, 7]
    assert ends.outcomes == [7, 7]


async def test_a_limit_takes_one_pass_of_the_event_loop() -> None:
    """A Produce that waits for replicas has a limit: its task begins with the wait."""
    ends, entered = Ends(), list[bool]()

    async def work() -> None:
        async with time_limit(60):
            entered.append(True)

    ends.run(work())
    assert not entered
    await asyncio.sleep(0)
    assert entered


async def wait_until_async(is_so: Any) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not is_so():
            await asyncio.sleep(0)
