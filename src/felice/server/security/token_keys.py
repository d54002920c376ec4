"""The keys with which a listener checks signed tokens: read at the start, and again in time.

Keeps true: reading never delays the event loop. While new keys cannot be read, the old ones stay in force, with a
            line in the log. A token with an unknown key makes the keys be read again, at most once in `_MIN_PAUSE_S`.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from felice.env.web import CannotRead, read_url
from felice.security.sasl.signed_tokens import BadKeys, parse_keys

if TYPE_CHECKING:
    from jwt import PyJWK

_log = logging.getLogger("felice.server")

_MIN_PAUSE_S = 10.0


class TokenKeys:
    """The keys at one URL."""

    def __init__(self, url: str, refresh_s: float) -> None:
        self.keys: dict[str | None, PyJWK] = {}
        self._url = url
        self._refresh_s = refresh_s
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._reading: asyncio.Task[None] | None = None
        self._read_at = float("-inf")

    async def load(self) -> None:
        """Reads the keys. Raises `CannotRead` or `BadKeys`."""
        self._read_at = self._loop.time()
        text = await self._loop.run_in_executor(None, read_url, self._url)
        self.keys = parse_keys(text)
        self._plan()

    def read_again_soon(self) -> None:
        """A token was signed with a key that is not known."""
        if self._loop.time() - self._read_at >= _MIN_PAUSE_S:
            self._begin()

    def close(self) -> None:
        """Stops reading."""
        if self._timer is not None:
            self._timer.cancel()
        if self._reading is not None:
            self._reading.cancel()

    def _plan(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(self._refresh_s, self._begin)

    def _begin(self) -> None:
        if self._reading is None or self._reading.done():
            self._reading = self._loop.create_task(self._read_again())

    async def _read_again(self) -> None:
        try:
            await self.load()
        except (CannotRead, BadKeys) as error:
            _log.warning("keys for tokens could not be read; the old ones stay", extra={"reason": str(error)})
            self._plan()
