"""An event loop on a thread of its own, for callers that do not have one.

Keeps true:  The thread ends when it is stopped and when the interpreter exits. A caller that waits for a result then
             gets an exception, and so does a call after the end. A forked process does not have the thread: create the
             client in the process that uses it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import Never, TypeVar

T = TypeVar("T")


class LoopThread:
    """Starts its thread at once. `kind` names the client in error messages, for example "producer".

    `ended` is True when the loop has ended. A plain attribute, because consumers look at it for each message.
    """

    def __init__(self, kind: str) -> None:
        self.ended = False
        self._kind = kind
        self.is_left_behind = False
        _running.add(self)
        # Runs at the end of the thread, also after an error: closes connections.
        self.at_end: Callable[[], Coroutine[object, Never, None]] | None = None
        # Called in a forked process with the text of `why_ended`.
        self.in_fork: Callable[[str], object] | None = None
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._run, name=f"felice-{kind.replace(' ', '-')}", daemon=True
        )
        self._thread.start()

    def _run(self) -> None:
        _current.is_ours = True
        asyncio.set_event_loop(self.loop)
        try:
            self._run_and_finish()
        finally:
            self.ended = True

    def _run_and_finish(self) -> None:
        try:
            self.loop.run_forever()
        finally:
            self._finish()

    def _finish(self) -> None:
        if self.at_end is not None:
            self.loop.run_until_complete(self.at_end())
        _cancel_all(self.loop)
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()

    @property
    def alive(self) -> bool:
        """True until the loop ends."""
        return not self.ended

    def submit(self, work: Coroutine[object, Never, T]) -> concurrent.futures.Future[T]:
        """Run a coroutine on the loop. Any thread but the loop's own may wait for the future.

        Raises `RuntimeError` if the loop has ended, as confluent_kafka does for a closed client.
        """
        if self.alive:
            with contextlib.suppress(RuntimeError):
                return asyncio.run_coroutine_threadsafe(work, self.loop)
        work.close()
        raise RuntimeError(self.why_ended())

    def why_ended(self) -> str:
        """Return the text of the error for a call after the end."""
        if self.is_left_behind:
            return (
                f"this {self._kind} belongs to the parent process of a fork; "
                f"create a new {self._kind} in the process that uses it"
            )
        return f"the {self._kind} is closed"

    def leave_behind(self) -> None:
        """Note that this process is a fork, without the thread."""
        if not self.ended:
            self.ended = self.is_left_behind = True
            if self.in_fork is not None:
                self.in_fork(self.why_ended())

    def run(self, work: Coroutine[object, Never, T], timeout_s: float | None = None) -> T:
        """Run a coroutine on the loop and wait for its result. A timeout cancels the coroutine."""
        future = self.submit(work)
        try:
            return future.result(timeout_s)
        except concurrent.futures.TimeoutError:
            future.cancel()
            raise

    def post(self, function: Callable[..., object], *arguments: object) -> None:
        """Call a function on the loop soon; does nothing if the loop has ended."""
        if self.ended:
            return  # In a forked process the call would wake the parent's loop: they share its socket.
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(function, *arguments)

    def stop(self) -> None:
        """End the loop and wait for its thread."""
        if self.alive:
            self.post(self.loop.stop)
        if threading.current_thread() is not self._thread:
            self._thread.join()


_current = threading.local()


def runs_here() -> bool:
    """True if the current thread is a `LoopThread`, so that no code of the application runs on its loop."""
    return getattr(_current, "is_ours", False)


_running: weakref.WeakSet[LoopThread] = weakref.WeakSet()


def _end_all() -> None:
    for thread in _running:
        thread.leave_behind()


os.register_at_fork(after_in_child=_end_all)


def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
