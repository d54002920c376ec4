"""A producer in a forked process, which does not have its thread: every call fails, and the parent is not disturbed."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from felice.client import KafkaError, KafkaException, Producer
from unit.client.confluent.test_producer import producer
from unit.client.fake_broker import FakeBroker

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")

LEFT_BEHIND = (
    "this producer belongs to the parent process of a fork; create a new producer in the process that uses it"
)


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker({"t": 1}) as started:
        yield started


def in_fork(check: Callable[[], object]) -> None:
    """Run this in a forked process, which is killed after a minute."""
    child = os.fork()
    if not child:
        status = 1
        signal.alarm(60)
        try:
            check()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0


@contextlib.contextmanager
def held(lock: threading.Lock) -> Iterator[None]:
    """While this lasts, another thread holds the lock."""
    taken, enough = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            taken.set()
            enough.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    taken.wait()
    try:
        yield
    finally:
        enough.set()
        thread.join()


def check_that_records_are_refused(made: Producer) -> None:
    waiting = len(made)
    for fields in ({}, {"key": b"k"}, {"headers": {"h": b"x"}}, {"partition": 0}):
        with pytest.raises(KafkaException, match=LEFT_BEHIND) as refused:
            made.produce("t", b"lost", **fields)
        assert refused.value.code == KafkaError._STATE
    rows: list[dict[str, Any]] = [{"value": b"lost"}]
    assert made.produce_batch("t", rows) == 0
    assert rows[0]["_error"].str().endswith(LEFT_BEHIND)
    assert len(made) == waiting


def check_that_calls_fail(made: Producer) -> None:
    for call in (
        lambda: made.poll(0),
        lambda: made.poll(1),
        lambda: made.flush(),
        lambda: made.purge(),
        lambda: made.list_topics(),
    ):
        with pytest.raises(RuntimeError, match=f"^{LEFT_BEHIND}$"):
            call()


@pytest.mark.parametrize("opened", [True, False], ids=["an open batch", "an unknown topic"])
def test_a_fork_refuses_records_and_calls_and_the_parent_sends_its_own(
    broker: FakeBroker, opened: bool
) -> None:
    reports: list[object] = []

    def check() -> None:
        check_that_records_are_refused(made)
        check_that_calls_fail(made)
        assert made.close() is False, "a record waits whose result this process will never learn"
        assert reports == []

    with producer(broker, linger_ms=60_000) as made:
        if opened:
            made.produce("t", b"first")
            made.flush()
        made.produce("t", b"second", on_delivery=lambda error, message: reports.append(error))
        in_fork(check)
        made.produce("t", b"third")
    assert reports == [None]
    assert broker.values("t", 0) == [b"first"] * opened + [b"second", b"third"]


def test_a_report_of_the_parent_is_not_served_in_a_fork(broker: FakeBroker) -> None:
    reports: list[object] = []

    def check() -> None:
        check_that_calls_fail(made)
        assert reports == []

    with producer(broker) as made:
        made.produce("t", b"v", on_delivery=lambda error, message: reports.append(error))
        made._inbox.wakeup.wait(60)
        in_fork(check)
    assert reports == [None]


def test_a_lock_that_another_thread_holds_at_the_fork_stops_no_call_in_it(broker: FakeBroker) -> None:
    def check() -> None:
        check_that_records_are_refused(made)
        check_that_calls_fail(made)

    with producer(broker) as made:
        made.produce("t", b"v")
        made.flush()
        with held(made._accumulator.lock):
            in_fork(check)


def test_an_idle_producer_may_be_closed_in_a_fork(broker: FakeBroker) -> None:
    def check() -> None:
        with made:
            pass
        assert made.close() is True

    with producer(broker) as made:
        in_fork(check)
        made.produce("t", b"v")
    assert broker.values("t", 0) == [b"v"]
