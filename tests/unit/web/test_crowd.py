"""Which connection gives way, and when."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from felice.web.crowd import BURST, FRESH_S, Crowd, Waits
from felice.web.limits import Limits

LIMITS = Limits(connections=6, half_requests=2, unread_answers=1)


class Timer:
    def __init__(self, at_s: float, call: Callable[[], None]) -> None:
        self.at_s, self.call = at_s, call


class World:
    """A crowd on a clock of its own. Members are named, and leave their names in `gone`."""

    def __init__(self, limits: Limits = LIMITS) -> None:
        self.now_s = 0.0
        self.gone: list[str] = []
        self.timers: list[Timer] = []
        self.crowd = Crowd(limits, lambda: self.now_s, self.later)

    def later(self, seconds: float, call: Callable[[], None]) -> Timer:
        self.timers.append(Timer(self.now_s + seconds, call))
        return self.timers[-1]

    def pass_time(self, seconds: float) -> None:
        self.now_s += seconds
        due = [timer for timer in self.timers if timer.at_s <= self.now_s]
        self.timers = [timer for timer in self.timers if timer not in due]
        for timer in due:
            timer.call()

    def enter(self, name: str, waits: Waits | None = Waits.REQUEST, *, after_s: float = 1.0) -> Member:
        member = Member(self, name)
        self.crowd.enter(member)
        self.crowd.move(member, waits)
        self.pass_time(after_s)
        return member


class Member:
    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.is_unread = False

    def has_bytes(self) -> bool:
        return self.is_unread

    def give_way(self) -> None:
        self.world.gone.append(self.name)


def test_above_its_limit_the_unfinished_request_that_began_first_gives_way() -> None:
    world = World()
    for name in "abc":
        world.enter(name)
    assert world.gone == ["a"]
    world.enter("d")
    assert world.gone == ["a", "b"]


def test_above_its_limit_the_answer_that_waited_longest_for_its_reader_gives_way() -> None:
    world = World()
    world.enter("a", Waits.READING)
    world.enter("b")
    world.enter("c", Waits.READING)
    assert world.gone == ["a"]


def test_above_all_connections_the_one_that_waited_longest_for_its_client_gives_way() -> None:
    world = World()
    for name in "abcd":
        world.enter(name, Waits.NEXT)
    world.enter("busy", None)
    world.enter("e", Waits.READING)
    assert world.gone == []
    world.enter("f")
    assert world.gone == ["a"]


def test_a_new_use_begins_a_new_wait() -> None:
    world = World(Limits(connections=2, half_requests=9))
    first = world.enter("a", Waits.NEXT)
    world.enter("b", Waits.NEXT)
    world.crowd.move(first, None)
    world.crowd.move(first, Waits.NEXT)
    world.enter("c", Waits.NEXT)
    assert world.gone == ["b"]


def test_bytes_of_the_same_request_do_not_begin_a_new_wait() -> None:
    world = World(Limits(connections=9, half_requests=2))
    first = world.enter("a")
    world.enter("b")
    world.crowd.move(first, Waits.REQUEST)
    world.enter("c")
    assert world.gone == ["a"]


def test_a_connection_whose_request_is_answered_never_gives_way() -> None:
    world = World()
    for number in range(20):
        world.enter(str(number), None)
    assert world.gone == []
    assert world.crowd.is_busy


def test_the_crowd_is_busy_above_its_connections_that_wait_for_this_server() -> None:
    world = World()
    for number in range(6):
        world.enter(str(number), None)
    world.enter("idle", Waits.NEXT)
    assert not world.crowd.is_busy
    world.enter("one more", None)
    assert world.crowd.is_busy


def test_a_burst_of_clients_keeps_its_connections_until_their_requests_may_have_come() -> None:
    world = World(Limits(connections=20, half_requests=2))
    members = [world.enter(str(number), after_s=0.0) for number in range(20)]
    world.pass_time(FRESH_S / 2)
    assert world.gone == []
    for member in members[:18]:
        world.crowd.move(member, None)  # its request came
    world.pass_time(FRESH_S)
    assert world.gone == []


def test_those_of_a_burst_that_sent_nothing_give_way() -> None:
    world = World()
    for number in range(20):
        world.enter(str(number), after_s=0.0)
    world.pass_time(FRESH_S)
    assert world.gone == [str(number) for number in range(18)]


@pytest.mark.parametrize("count", [BURST + 6, BURST + 7])
def test_a_burst_has_a_limit(count: int) -> None:
    world = World()
    for number in range(count):
        world.enter(str(number), after_s=0.0)
    assert world.gone == [str(number) for number in range(count - BURST - 6)]


def test_a_connection_whose_bytes_were_not_read_yet_stays_until_they_are() -> None:
    world = World()
    members = [world.enter(name, after_s=0.0) for name in "abc"]
    members[0].is_unread = members[1].is_unread = True
    world.pass_time(FRESH_S)
    assert world.gone == ["c"]
    world.enter("d", after_s=0.0).is_unread = True
    world.pass_time(FRESH_S)
    assert world.gone == ["c"]
    members[0].is_unread = False  # read, and still no whole request
    world.pass_time(0.1)
    assert world.gone == ["c", "a"]


def test_in_a_full_burst_also_a_connection_with_bytes_gives_way() -> None:
    world = World()
    for number in range(BURST + 7):
        world.enter(str(number), after_s=0.0).is_unread = True
    assert world.gone == ["0"]


def test_a_connection_that_has_left_does_not_count_and_does_not_give_way() -> None:
    world = World()
    first = world.enter("a")
    second = world.enter("b")
    world.crowd.leave(first)
    world.crowd.leave(first)
    world.enter("c")
    assert world.gone == []
    assert len(world.crowd) == 2
    world.crowd.leave(second)
    assert len(world.crowd) == 1
