"""Reports, once per wait, what the client waits for if a wait takes longer than usual."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from felice.client.error import KafkaError

PATIENCE_S = 3.0
# The child of a client's logger that gets these reports.
WAITING_LOGGER = "waiting"


class Waiting:
    """The current waits, by key."""

    def __init__(self, now_s: Callable[[], float], tell: Callable[[KafkaError], None]) -> None:
        self._now_s = now_s
        self._tell = tell
        self._since: dict[Hashable, float] = {}
        self._told: set[Hashable] = set()

    def go_on(self, key: Hashable, error: KafkaError) -> None:
        """The wait continues; `error` names the reason. Reports it once after `PATIENCE_S` seconds."""
        since = self._since.setdefault(key, self._now_s())
        if self._now_s() - since >= PATIENCE_S and key not in self._told:
            self._told.add(key)
            self._tell(error)

    def end(self, key: Hashable) -> None:
        """The wait ended, with success or not."""
        self._since.pop(key, None)
        self._told.discard(key)
