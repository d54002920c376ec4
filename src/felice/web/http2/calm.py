"""Limits how many frames without a request a client may send on one connection; pure.

Keeps true: some frames cost the server time and carry no request: PING, SETTINGS, PRIORITY, WINDOW_UPDATE, resets,
            empty DATA, unknown types. A client may send `BURST` of these frames at once, and then `PER_SECOND`.
            A request that the client begins and resets costs `RESET` (CVE-2023-44487).
            Each DATA frame of an answer pays for the two WINDOW_UPDATE that the DATA frame may cause.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

BURST: Final = 1_000
PER_SECOND: Final = 100
RESET: Final = 10
SETTING: Final = 5
ANSWERED: Final = 2


class Calm:
    """The account of one connection. `now` is in seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._left = float(BURST)
        self._at = now()

    def earn(self, count: int) -> None:
        """Adds the credit of frames of an answer."""
        self._left = min(BURST, self._left + count)

    def spend(self, cost: int) -> bool:
        """Subtracts the cost of a frame. Returns False if the account is overdrawn, and the connection must end."""
        self._left -= cost
        if self._left < 0:
            now = self._now()
            self._left = min(BURST, self._left + (now - self._at) * PER_SECOND)
            self._at = now
        return self._left >= 0
