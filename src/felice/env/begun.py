"""Coroutines that begin at once: one that never waits needs neither a task nor a pass of the event loop.

`begin` runs a coroutine to its first wait. If the coroutine waits, `begin` returns a `Rest`: the rest of the coroutine.
The caller awaits the rest, makes a task of it, or gives it to a `Waiting`. A `Waiting` makes a task only if the
coroutine waits for something else than a future.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")

_NOTHING: Final = object()
_steps = 0
"""The number of steps that run now, without a task. A step can begin another coroutine, so steps nest."""


class Rest(Coroutine[Any, Any, T]):
    """A coroutine after its first wait."""

    __slots__ = ("_coroutine", "_waits_for")

    def __init__(self, coroutine: Coroutine[Any, Any, T], waits_for: object = _NOTHING) -> None:
        self._coroutine = coroutine
        # The future for which the coroutine waits, or None if it pauses. `_NOTHING` after `take`, `send` or `throw`.
        self._waits_for = waits_for

    def send(self, value: Any, /) -> Any:
        """Returns what the coroutine waits for, in the first call. A later call runs the next step of the coroutine."""
        waits_for = self.take()
        if waits_for is _NOTHING:
            return self._coroutine.send(value)
        if isinstance(waits_for, asyncio.Future):
            waits_for._asyncio_future_blocking = True  # as `await` leaves it for a task
        return waits_for

    def take(self) -> object:
        """Returns what the coroutine waits for. After that, the next `send` runs the next step of the coroutine."""
        waits_for, self._waits_for = self._waits_for, _NOTHING
        return waits_for

    def put_back(self, waits_for: object) -> None:
        """Undoes `take`: the next `send` returns `waits_for`."""
        self._waits_for = waits_for

    def throw(self, *error: Any) -> Any:
        """Raises an error where the coroutine waits, and runs it to its next wait."""
        self._waits_for = _NOTHING
        return self._coroutine.throw(*error)

    def close(self) -> None:
        """Ends the coroutine where it waits."""
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, T]:
        return self

    def __iter__(self) -> Rest[T]:
        return self

    def __next__(self) -> Any:
        return self.send(None)


def _noted(waits_for: object) -> object:
    """Returns what a step of a coroutine waits for. Resets the mark of a future, as a task does, so that other
    coroutines can wait for the same future.
    """
    if isinstance(waits_for, asyncio.Future):
        waits_for._asyncio_future_blocking = False
    return waits_for


class Waiting(Generic[T]):
    """Runs a rest to its end, and then calls `on_end` with this `Waiting`.

    A task costs some 5 microseconds. Most handlers that wait do so once, for one future. A callback of this future runs
    the rest of the handler, so no task is needed.
    """

    __slots__ = ("_future", "_is_cancelled", "_loop", "_on_end", "_rest", "_result", "error")

    def __init__(
        self, rest: Rest[T], loop: asyncio.AbstractEventLoop, on_end: Callable[[Waiting[T]], None]
    ) -> None:
        self._rest = rest
        self._loop = loop
        self._on_end = on_end
        self._is_cancelled = False
        self._result: T | None = None
        self.error: BaseException | None = None
        """What the coroutine has raised."""
        self._future: asyncio.Future[Any]
        self._wait(rest.take())

    def cancel(self) -> None:
        """Raises `CancelledError` where the coroutine waits."""
        self._is_cancelled = True
        self._future.cancel()

    def result(self) -> T:
        """What the coroutine has returned; raises what it has raised."""
        if self.error is not None:
            raise self.error
        return self._result  # type: ignore[return-value]

    def _wait(self, waits_for: object) -> None:
        if isinstance(waits_for, asyncio.Future):
            self._future = waits_for
            waits_for.add_done_callback(self._on_done)
        else:
            # A pause is over when the task runs.
            if waits_for is not None:
                self._rest.put_back(waits_for)
            self._future = self._loop.create_task(self._rest)
            self._future.add_done_callback(self._on_task_done)

    def _on_done(self, future: asyncio.Future[Any]) -> None:
        global _steps
        is_cancelled, self._is_cancelled = self._is_cancelled, False
        _steps += 1
        try:
            if is_cancelled and not future.cancelled():
                waits_for = _noted(self._rest.throw(asyncio.CancelledError()))
            else:
                waits_for = _noted(self._rest.send(None))
        except StopIteration as end:
            self._result = end.value
        except BaseException as error:
            self.error = error
            if isinstance(error, (SystemExit, KeyboardInterrupt)):
                raise
        else:
            self._wait(waits_for)
            if self._is_cancelled:
                self._future.cancel()  # The step itself has called `cancel`.
            return
        finally:
            _steps -= 1
        self._on_end(self)

    def _on_task_done(self, task: asyncio.Future[Any]) -> None:
        try:
            self._result = task.result()
        except BaseException as error:
            self.error = error
        self._on_end(self)


def begin(coroutine: Coroutine[Any, Any, T]) -> T | Rest[T]:
    """Runs a coroutine to its first wait. Returns its result if it has ended, or else its rest."""
    global _steps
    _steps += 1
    try:
        waits_for = coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        _steps -= 1
    return Rest(coroutine, _noted(waits_for))


async def ended(begun: T | Rest[T]) -> T:
    """The result of what `begin` returned."""
    return await begun if isinstance(begun, Rest) else begun


class _TimeLimit(asyncio.Timeout):  # type: ignore[misc]  # final, but only for type checkers
    async def __aenter__(self) -> _TimeLimit:
        if _steps:
            await asyncio.sleep(0)
        await super().__aenter__()
        return self


def time_limit(seconds: float | None) -> asyncio.Timeout:
    """Returns a timeout like `asyncio.timeout`, which can also be entered in a coroutine without a task.

    A timeout cancels the task in which it was entered. So a coroutine without a task pauses first: the pause gives it
    a task.
    """
    return _TimeLimit(None if seconds is None else asyncio.get_running_loop().time() + seconds)
