"""Asks whether brokers answer.

While no broker answers, a query of Spark waits and raises no error. Meanwhile its Apps must not count as running.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from felice.client.blocking import BlockingClient, BlockingConfig
from felice.client.error import KafkaException

_EVERY_S = 2.0
_WITHIN_MS = 4_000


class Outages:
    """Asks the brokers every few seconds. One thread calls `look`."""

    def __init__(
        self,
        config: BlockingConfig,
        ask: Callable[[BlockingClient], object] = lambda client: client.metadata([]),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = BlockingClient(config, request_timeout_ms=_WITHIN_MS, connect_timeout_ms=_WITHIN_MS)
        self._ask, self._monotonic = ask, monotonic
        self._next_at = float("-inf")
        self.reason: str | None = None
        """Why no broker answers; None while one does."""

    def look(self) -> None:
        """Ask, if it is time."""
        if self._monotonic() < self._next_at:
            return
        try:
            self._ask(self._client)
        except KafkaException as error:
            self.reason = f"no broker answers: {error.error.str()}"
        else:
            self.reason = None
        self._next_at = self._monotonic() + _EVERY_S

    def close(self) -> None:
        """Close the connections."""
        self._client.close()
        self.reason = None
