"""How long a log in must wait after failures; pure.

Keeps true: a user at an address may fail `FREE_FAILURES` times. Each further failure doubles the wait before the next
            try, up to `MAX_WAIT_S`. The same holds for all users of an address together, with `FREE_OF_ADDRESS`: other
            names do not help. A success ends the waits of its user at its address.
            Memory is bounded: at most `MAX_KEPT` failing pairs are known, and a failure is forgotten after `KEPT_S`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar

from felice.dataclass import dataclass

K = TypeVar("K")

FREE_FAILURES = 5
FREE_OF_ADDRESS = 50
MAX_WAIT_S = 30.0
KEPT_S = 900.0
MAX_KEPT = 10_000


@dataclass(slots=True)
class _Failures:
    count: int = 0
    last_s: float = 0.0


class Attempts:
    """The failures of users at addresses. `now` is in seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._of_users: OrderedDict[tuple[str, str], _Failures] = OrderedDict()
        self._of_addresses: OrderedDict[str, _Failures] = OrderedDict()

    def wait_s(self, user: str, address: str) -> float:
        """The seconds until this user may try again from this address; 0 if now."""
        return max(
            self._left_s(self._of_users.get((user, address)), FREE_FAILURES),
            self._left_s(self._of_addresses.get(address), FREE_OF_ADDRESS),
        )

    def failed(self, user: str, address: str) -> None:
        """Notes a failure."""
        self._note(self._of_users, (user, address))
        self._note(self._of_addresses, address)

    def succeeded(self, user: str, address: str) -> None:
        """Notes a success."""
        self._of_users.pop((user, address), None)

    def _note(self, failures: OrderedDict[K, _Failures], key: K) -> None:
        now_s = self._now()
        while failures and (
            len(failures) >= MAX_KEPT or now_s - next(iter(failures.values())).last_s > KEPT_S
        ):
            failures.popitem(last=False)
        found = failures.setdefault(key, _Failures())
        found.count, found.last_s = found.count + 1, now_s
        failures.move_to_end(key)

    def _left_s(self, failures: _Failures | None, free: int) -> float:
        if failures is None or failures.count < free:
            return 0.0
        wait_s = min(MAX_WAIT_S, 2.0 ** min(failures.count - free, 10))
        return max(0.0, failures.last_s + wait_s - self._now())
