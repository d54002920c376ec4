import asyncio
import os
import signal
import threading

import pytest

from felice.client.net.loop_thread import LoopThread
from waiting import LIMIT_S


def test_a_stopped_thread_has_ended() -> None:
    thread = LoopThread("test")
    assert thread.alive and not thread.ended
    thread.stop()
    assert thread.ended and not thread.alive
    with pytest.raises(RuntimeError, match="^the test is closed$"):
        thread.run(asyncio.sleep(0), LIMIT_S)


def test_a_thread_whose_end_fails_has_ended() -> None:
    failures: list[object] = []
    hook, threading.excepthook = threading.excepthook, lambda args: failures.append(args.exc_value)
    try:
        thread = LoopThread("test")

        async def fail() -> None:
            raise RuntimeError("broken")

        thread.at_end = fail
        thread.stop()
    finally:
        threading.excepthook = hook
    thread.loop.close()
    assert thread.ended
    assert [str(failure) for failure in failures] == ["broken"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_whose_loop_fails_is_closed_and_takes_no_more_work() -> None:
    thread = LoopThread("test")
    ended = threading.Event()

    async def note_end() -> None:
        ended.set()

    def fail() -> None:
        raise SystemExit

    thread.at_end = note_end
    thread.post(fail)
    assert ended.wait(LIMIT_S)
    thread.stop()
    assert thread.ended
    with pytest.raises(RuntimeError):
        thread.run(asyncio.sleep(0), LIMIT_S)


def _exit_as_expected(thread: LoopThread) -> None:
    """Ends the forked process; its status tells whether a call fails at once there, and why."""
    status = 1
    signal.alarm(60)
    try:
        thread.run(asyncio.sleep(0))
    except RuntimeError as error:
        told = (
            "this test belongs to the parent process of a fork; create a new test in the process that uses it"
        )
        status = 0 if thread.ended and not thread.alive and str(error) == told else 2
    finally:
        os._exit(status)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_does_not_have_the_thread() -> None:
    thread = LoopThread("test")
    try:
        child = os.fork()
        if not child:
            _exit_as_expected(thread)
        _, status = os.waitpid(child, 0)
        assert status == 0
        assert thread.alive
        assert thread.run(asyncio.sleep(0, "here"), LIMIT_S) == "here"
    finally:
        thread.stop()
