"""Times a handler that goes on after a pause or a wait."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any

from felice.protocol.connection import Request


class TimedHandler(Coroutine[Any, Any, Any]):
    """A handler's coroutine. Adds the time of each step to the time for which the request held the event loop.

    Not used for every request: it takes about a microsecond for each step.
    """

    __slots__ = ("_handler", "_monotonic", "_request")

    def __init__(
        self, handler: Coroutine[Any, Any, Any], request: Request, monotonic: Callable[[], float]
    ) -> None:
        """`monotonic` returns seconds.

        `request.timing` must already contain the time of the call that returned the coroutine.
        """
        self._handler = handler
        self._request = request
        self._monotonic = monotonic

    def send(self, value: Any, /) -> Any:
        """Runs the handler to its next pause."""
        return self._timed(self._handler.send, value)

    def throw(self, *error: Any) -> Any:
        """Raises an error where the handler waits, and runs it to its next pause."""
        return self._timed(self._handler.throw, *error)

    def close(self) -> None:
        """Ends the handler where it waits."""
        self._handler.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self

    def __iter__(self) -> TimedHandler:
        return self

    def __next__(self) -> Any:
        return self.send(None)

    def _timed(self, step: Callable[..., Any], *args: Any) -> Any:
        begun_s = self._monotonic()
        try:
            return step(*args)
        finally:
            step_s = self._monotonic() - begun_s
            queued_s, local_s, handled_s = self._request.timing
            # Waiting is counted from `handled_s` on, and this step is not waiting.
            self._request.timing = queued_s, local_s + step_s, handled_s + step_s


def timed(answer: Any, request: Request, monotonic: Callable[[], float]) -> Any:
    """Returns an answer unchanged, and a coroutine wrapped so that its steps are timed."""
    return TimedHandler(answer, request, monotonic) if isinstance(answer, Coroutine) else answer
