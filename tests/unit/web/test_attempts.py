"""How long log ins wait after failures."""

from __future__ import annotations

from felice.web.attempts import FREE_FAILURES, FREE_OF_ADDRESS, KEPT_S, MAX_KEPT, MAX_WAIT_S, Attempts


class Clock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def waits(attempts: Attempts, clock: Clock, count: int, address: str = "1.2.3.4") -> list[float]:
    """The wait after each of some failures, each after the wait of the one before."""
    found = []
    for _ in range(count):
        attempts.failed("alice", address)
        found.append(attempts.wait_s("alice", address))
        clock.now_s += found[-1]
        assert attempts.wait_s("alice", address) == 0
    return found


def test_the_wait_doubles_after_the_free_failures_up_to_its_limit() -> None:
    clock = Clock()
    found = waits(Attempts(clock), clock, FREE_FAILURES + 7)
    assert found == [0] * (FREE_FAILURES - 1) + [1, 2, 4, 8, 16, MAX_WAIT_S, MAX_WAIT_S, MAX_WAIT_S]


def test_a_wait_ends_with_time_and_not_before() -> None:
    clock = Clock()
    attempts = Attempts(clock)
    waits(attempts, clock, FREE_FAILURES)
    attempts.failed("alice", "1.2.3.4")
    clock.now_s += 1.5
    assert attempts.wait_s("alice", "1.2.3.4") == 0.5


def test_other_users_and_other_addresses_do_not_wait() -> None:
    clock = Clock()
    attempts = Attempts(clock)
    for _ in range(FREE_FAILURES):
        attempts.failed("alice", "1.2.3.4")
    assert attempts.wait_s("alice", "1.2.3.4") > 0
    assert attempts.wait_s("bob", "1.2.3.4") == 0
    assert attempts.wait_s("alice", "5.6.7.8") == 0


def test_many_names_from_one_address_make_it_wait() -> None:
    clock = Clock()
    attempts = Attempts(clock)
    for number in range(FREE_OF_ADDRESS):
        assert attempts.wait_s("bob", "1.2.3.4") == 0
        attempts.failed(f"user {number}", "1.2.3.4")
    assert attempts.wait_s("bob", "1.2.3.4") > 0
    assert attempts.wait_s("bob", "5.6.7.8") == 0


def test_a_success_ends_the_waits_of_its_user_only() -> None:
    clock = Clock()
    attempts = Attempts(clock)
    for name in ("alice", "bob"):
        for _ in range(FREE_FAILURES):
            attempts.failed(name, "1.2.3.4")
    attempts.succeeded("alice", "1.2.3.4")
    assert attempts.wait_s("alice", "1.2.3.4") == 0
    assert attempts.wait_s("bob", "1.2.3.4") > 0


def test_failures_are_forgotten_after_a_while() -> None:
    clock = Clock()
    attempts = Attempts(clock)
    for _ in range(FREE_FAILURES - 1):
        attempts.failed("alice", "1.2.3.4")
    clock.now_s += KEPT_S + 1
    attempts.failed("alice", "1.2.3.4")
    assert attempts.wait_s("alice", "1.2.3.4") == 0


def test_memory_is_bounded_and_names_that_are_made_up_push_out_no_address() -> None:
    clock = Clock()
    attempts = Attempts(clock)
    for number in range(MAX_KEPT + 100):
        attempts.failed(f"user {number}", "1.2.3.4")
    assert len(attempts._of_users) == MAX_KEPT
    assert attempts.wait_s("alice", "1.2.3.4") == MAX_WAIT_S
