"""A producing thread pauses for the event loop's thread, but only if that is behind, and seldom."""

from felice.client.produce.turns import Turns

MANY_BYTES = 4_000_000


class Times:
    """A clock that only moves while a thread sleeps, or when the test says so."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def test_no_pause_while_little_waits() -> None:
    times = Times()
    Turns(times.clock, times.sleep).give(MANY_BYTES - 1)
    assert times.slept == []


def test_a_pause_is_short_and_the_next_one_comes_after_a_millisecond_of_work() -> None:
    times = Times()
    turns = Turns(times.clock, times.sleep)
    turns.give(MANY_BYTES)
    assert times.slept == [0.0002]
    times.now += 0.0009
    turns.give(MANY_BYTES)
    assert len(times.slept) == 1
    times.now += 0.0002
    turns.give(MANY_BYTES)
    assert times.slept == [0.0002] * 2


def test_small_batches_pause_no_more_often_than_large_ones() -> None:
    times = Times()
    turns = Turns(times.clock, times.sleep)
    begun = times.now
    for _ in range(10_000):
        times.now += 0.00001
        turns.give(MANY_BYTES)
    assert sum(times.slept) < 0.18 * (times.now - begun)


def test_a_thread_whose_record_was_held_lets_the_loop_catch_up() -> None:
    times = Times()
    Turns(times.clock, times.sleep).let_catch_up()
    assert times.slept == [0.001]
