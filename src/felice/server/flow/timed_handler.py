"""Times a handler that goes on after a pause or a wait."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from felice.env.begun import Rest
from felice.protocol.connection import Request


class TimedHandler(Rest[Any]):
    """The rest of a handler. Adds the time of each step to the time for which the request held the event loop.

    Not used for every request: it takes about a microsecond for each step.
    """

    __slots__ = ("_monotonic", "_request")

    def __init__(self, handler: Rest[Any], request: Request, monotonic: Callable[[], float]) -> None:
        """`monotonic` returns seconds.

        `request.timing` must already contain the time of the handler's first step.
        """
        super().__init__(handler)
        self._request = request
        self._monotonic = monotonic

    def send(self, value: Any, /) -> Any:
        """Runs the handler to its next wait."""
        return self._timed(super().send, value)

    def throw(self, *error: Any) -> Any:
        """Raises an error where the handler waits, and runs it to its next wait."""
        return self._timed(super().throw, *error)

    def _timed(self, step: Callable[..., Any], *args: Any) -> Any:
        begun_s = self._monotonic()
        try:
            return step(*args)
        finally:
            step_s = self._monotonic() - begun_s
            queued_s, local_s, handled_s = self._request.timing
            # Waiting is counted from `handled_s` on, and this step is not waiting.
            self._request.timing = queued_s, local_s + step_s, handled_s + step_s
