"""A limit of bytes per second holds, and a new rate counts at once."""

from __future__ import annotations

import asyncio
import sys

import pytest

from felice.log import throttle
from felice.log.throttle import RateLimit, Throttle
from unit.log.logs import ManualClock


class Rate:
    """A rate of 1000 bytes per second, which a test may change."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_the_rate_holds() -> None:
    limit = RateLimit(Rate())
    passed, now_s = 0, 100.0
    while now_s < 110:
        if not limit.is_exceeded(now_s):
            limit.record(300, now_s)
            passed += 300
        now_s += 0.01
    # The rate for ten seconds, the unused second before them, and one call.
    assert 10_000 <= passed <= 11_300


def test_a_time_without_bytes_gives_credit_for_one_second() -> None:
    limit = RateLimit(Rate())
    limit.record(1000, 100.0)
    assert not limit.is_exceeded(100.0) and limit.wait_s(100.0) == 0
    limit.record(1500, 100.0)
    assert limit.wait_s(100.0) == pytest.approx(1.5) and limit.wait_s(101.0) == pytest.approx(0.5)
    assert limit.is_exceeded(101.4) and not limit.is_exceeded(101.5)
    assert limit.wait_s(102.0) == 0


def test_a_higher_rate_shortens_the_wait_at_once() -> None:
    rate = Rate()
    limit = RateLimit(rate)
    limit.record(1_000_000, 100.0)
    assert limit.wait_s(100.0) == pytest.approx(999)
    rate.now = 100_000
    assert limit.wait_s(100.0) == pytest.approx(9.99)
    assert limit.wait_s(105.0) == pytest.approx(4.99)


def test_a_lower_rate_lengthens_the_wait_and_the_credit_of_the_old_one_expires() -> None:
    rate = Rate()
    limit = RateLimit(rate)
    limit.record(2_000, 100.0)
    rate.now = 10
    assert limit.wait_s(100.0) == pytest.approx(100)
    rate.now = sys.float_info.max
    unlimited = RateLimit(rate)
    unlimited.record(5_000, 100.0)
    assert unlimited.wait_s(100.0) == 0
    rate.now = 1000
    unlimited.record(3_000, 100.0)
    assert unlimited.wait_s(100.0) == pytest.approx(2)


def test_each_call_waits_for_the_bytes_before_it_and_its_own() -> None:
    limit = RateLimit(Rate())
    limit.record(1000, 100.0)
    first, second = limit.record(500, 100.0), limit.record(2000, 100.0)
    assert limit.wait_s(100.0, first) == pytest.approx(0.5)
    assert limit.wait_s(100.0, second) == limit.wait_s(100.0) == pytest.approx(2.5)


class CountingEvent:
    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.waited_s = 0.0

    def wait(self, timeout_s: float) -> None:
        self.waited_s += timeout_s
        self.clock.ms += int(timeout_s * 1000)


def test_the_throttle_holds_to_its_rate() -> None:
    clock = ManualClock()
    throttle = Throttle(clock, lambda: 1000)
    event = throttle.stopping = CountingEvent(clock)  # type: ignore[assignment]
    for _ in range(10):
        throttle.take(1000)
    assert 8 <= event.waited_s <= 10
    clock.ms += 3_600_000
    event.waited_s = 0
    throttle.take(3000)
    assert event.waited_s == 2  # an idle hour allows one second's burst only


def test_a_thread_that_waits_notices_a_higher_rate() -> None:
    clock, rate = ManualClock(), 1.0
    waited = Throttle(clock, lambda: rate)
    event = waited.stopping = CountingEvent(clock)  # type: ignore[assignment]

    def wait(timeout_s: float) -> None:
        nonlocal rate
        clock.ms += int(timeout_s * 1000)
        event.waited_s += timeout_s
        if event.waited_s >= 5:
            rate = 1e9

    event.wait = wait  # type: ignore[method-assign]
    waited.take(1_000_000)
    assert event.waited_s == 5


def test_a_task_that_waits_notices_a_higher_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, rates, slept_s = ManualClock(), [1.0], list[float]()

    async def sleep(delay_s: float) -> None:
        slept_s.append(delay_s)
        clock.ms += int(delay_s * 1000)
        if len(slept_s) == 3:
            rates.append(1e9)

    monkeypatch.setattr(throttle.asyncio, "sleep", sleep)
    asyncio.run(Throttle(clock, lambda: rates[-1]).take_async(1_000_000))
    assert slept_s == [1, 1, 1]


def test_a_wait_ends_when_the_broker_stops() -> None:
    waited = Throttle(ManualClock(), lambda: 1.0)
    waited.stopping.set()
    waited.take(1_000_000_000)
