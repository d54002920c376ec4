"""Reports once when the client waits for something longer than usual, with the reason."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from felice.client.error import KafkaError

PATIENCE_S = 3.0
# Below a client's logger.
WAITING_LOGGER = "waiting"


class Waiting:
    """Of several things that are waited for, by key."""

    def __init__(self, now_s: Callable[[], float], tell: Callable[[KafkaError], None]) -> None:
        self._now_s = now_s
        self._tell = tell
        self._since: dict[Hashable, float] = {}
        self._told: set[Hashable] = set()

    def go_on(self, key: Hashable, error: KafkaError) -> None:
        """It is not there yet; `error` says why."""
        since = self._since.setdefault(key, self._now_s())
        if self._now_s() - since >= PATIENCE_S and key not in self._told:
            self._told.add(key)
            self._tell(error)

    def end(self, key: Hashable) -> None:
        """It is there, or nobody waits for it any more."""
        self._since.pop(key, None)
        self._told.discard(key)
