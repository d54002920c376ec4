"""The event loop on virtual time: order of timers, callbacks and processes."""

from __future__ import annotations

import asyncio
import time
from random import Random

import pytest

from felice.testing.simulation.loop import Deadlock, RunsForEver, SimLoop
from felice.testing.simulation.process import Process, ProcessEnded


def run(loop: SimLoop, work):  # type: ignore[no-untyped-def]
    try:
        return loop.run_until_complete(work)
    finally:
        loop.close()


def test_hours_of_sleep_take_no_time() -> None:
    loop, began = SimLoop(Random(1)), time.monotonic()
    run(loop, asyncio.sleep(3600 * 24))
    assert loop.time() == 3600 * 24
    assert time.monotonic() - began < 60


def test_timers_fire_in_order_and_cancelled_timers_never() -> None:
    loop, heard = SimLoop(Random(1)), list[str]()

    async def main() -> None:
        loop.call_later(2, heard.append, "second")
        loop.call_later(1, heard.append, "first")
        loop.call_later(1.5, heard.append, "never").cancel()
        loop.call_at(2, heard.append, "third: asked for later")
        await asyncio.sleep(3)

    run(loop, main())
    assert heard == ["first", "second", "third: asked for later"]


def test_a_timeout_ends_a_wait() -> None:
    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.Event().wait()

    loop = SimLoop(Random(1))
    run(loop, main())
    assert loop.time() == 5


def test_a_wait_that_nothing_can_end_raises_deadlock() -> None:
    loop = SimLoop(Random(1))
    forgotten = loop.create_future()
    with pytest.raises(Deadlock):
        run(loop, asyncio.wait_for(asyncio.shield(forgotten), None))


def test_a_simulation_that_never_ends_raises_runs_for_ever() -> None:
    async def spin() -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(RunsForEver, match="turns of the loop"):
        run(SimLoop(Random(1)), spin())
    with pytest.raises(RunsForEver, match="not ended at 9 s"):
        run(SimLoop(Random(1), limit_s=9), asyncio.sleep(10))


def order_of(seed: int, names: str) -> list[str]:
    loop, heard = SimLoop(Random(seed)), list[str]()

    async def main() -> None:
        processes = {name: Process(loop, name) for name in names}
        for number in range(3):
            for name, process in processes.items():
                loop.call_soon(heard.append, f"{name}{number}", context=process.context.copy())
        await asyncio.sleep(1)

    run(loop, main())
    return heard


def test_the_seed_orders_callbacks_between_processes_and_never_within_one() -> None:
    orders = {tuple(order_of(seed, "ab")) for seed in range(20)}
    assert len(orders) > 5
    for order in orders:
        assert [entry for entry in order if entry[0] == "a"] == ["a0", "a1", "a2"]
    assert order_of(3, "abc") == order_of(3, "abc")


def test_executor_work_runs_later_on_the_loop_and_its_result_arrives_later_still() -> None:
    loop = SimLoop(Random(1))

    async def main() -> list[float]:
        times = [loop.time()]
        answer = loop.run_in_executor(None, loop.time)
        assert not answer.done()
        times.append(await answer)
        times.append(loop.time())
        with pytest.raises(ZeroDivisionError):
            await loop.run_in_executor(None, divmod, 1, 0)
        return times

    asked, worked, answered = run(loop, main())
    assert asked < worked < answered


def test_an_ended_process_never_runs_again_not_even_to_clean_up() -> None:
    loop, heard = SimLoop(Random(1)), list[str]()

    async def live() -> None:
        try:
            heard.append("begins")
            await asyncio.sleep(1)
            heard.append("goes on")
        finally:
            heard.append("cleans up")

    async def main() -> None:
        process = Process(loop, "p")
        waiting = asyncio.ensure_future(process.run(live()))
        await asyncio.sleep(0.5)
        process.end()
        with pytest.raises(ProcessEnded):
            await waiting
        await asyncio.sleep(5)

    run(loop, main())
    assert heard == ["begins"]


def test_a_resumed_process_continues_where_it_was() -> None:
    loop, heard = SimLoop(Random(1)), list[float]()

    async def tick() -> None:
        for _ in range(4):
            await asyncio.sleep(1)
            heard.append(loop.time())

    async def main() -> None:
        process = Process(loop, "p")
        done = asyncio.ensure_future(process.run(tick()))
        await asyncio.sleep(1.5)
        process.stop()
        await asyncio.sleep(8)
        process.resume()
        await done

    run(loop, main())
    assert heard == [1.0, 9.5, 10.5, 11.5]
