"""Checks users and passwords, and makes guessing slow.

Keeps true: the answer to an unknown user takes as long as that to a wrong password.
            Guessing is slow: after some failures the next tries are refused for a while (`attempts`). At most
            `MAX_CHECKS` are checked at a time, and at most `MAX_CHECKS_OF_ADDRESS` of one address wait for that or for
            the answer to a failure; more are refused. A user who logged in a moment ago is not affected.
            A success counts for `KEPT_S`. Of the password only a keyed hash is kept, and only in memory.
Leaves:     HTTP to `basic`, the check to `users` (a file) and `cluster_users` (the users of a Kafka cluster).
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import secrets
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Protocol

from felice.web.attempts import Attempts

_log = logging.getLogger("felice.web")

KEPT_S = 60.0
MAX_CHECKS = 2
MAX_CHECKS_OF_ADDRESS = 8
FAILURE_S = 0.5
_MAX_KEPT = 1000


class WrongLogin(Exception):
    """User and password do not belong together, or there is no such user. The text is for the log."""


class TooManyFailures(Exception):
    """This user must wait at this address, `wait_s` seconds from now."""

    def __init__(self, wait_s: float) -> None:
        super().__init__(f"too many log ins failed; wait {math.ceil(wait_s)} s")
        self.wait_s = wait_s


class CannotCheck(Exception):
    """Users cannot be checked now. The text says why."""


class Users(Protocol):
    """Knows users and passwords."""

    async def verify(self, user: str, password: str) -> None:
        """Returns if they belong together. Raises `WrongLogin` or `CannotCheck`."""


class Login:
    """Checks users and passwords, slowly for those who guess. `now` is in seconds; by default it is the loop's time."""

    def __init__(self, users: Users, now: Callable[[], float] | None = None) -> None:
        self._users = users
        self._now = now or (lambda: asyncio.get_running_loop().time())
        self._attempts = Attempts(self._now)
        self._successes: OrderedDict[bytes, float] = OrderedDict()  # until when they count
        self._key = secrets.token_bytes(32)
        self._slots = asyncio.Semaphore(MAX_CHECKS)
        self._checking: dict[bytes, asyncio.Task[None]] = {}
        self._of_address: Counter[str] = Counter()

    async def check(self, user: str, password: str, address: str) -> None:
        """Returns if user and password are right. `address` is that of the client.

        Raises `WrongLogin`, after `FAILURE_S` or more, `TooManyFailures` or `CannotCheck`.
        """
        key = self._hash(user, password)
        if self._successes.get(key, 0.0) > self._now():
            return
        # Requests that come together with the same user and password need one check.
        if (task := self._checking.get(key)) is None:
            self._refuse_if_too_many(user, address)
            task = self._begin(key, user, password, address)
        await asyncio.shield(task)

    def _begin(self, key: bytes, user: str, password: str, address: str) -> asyncio.Task[None]:
        def end(ended: asyncio.Task[None]) -> None:
            del self._checking[key]
            self._of_address -= Counter([address])  # drops an address at 0
            if not ended.cancelled():
                ended.exception()  # all that waited for it may have gone away

        self._of_address[address] += 1
        task = self._checking[key] = asyncio.ensure_future(self._check(key, user, password, address))
        task.add_done_callback(end)
        return task

    def _refuse_if_too_many(self, user: str, address: str) -> None:
        wait_s = self._attempts.wait_s(user, address)
        if wait_s == 0 and self._of_address[address] >= MAX_CHECKS_OF_ADDRESS:
            wait_s = FAILURE_S
        if wait_s > 0:
            raise TooManyFailures(wait_s)

    async def _check(self, key: bytes, user: str, password: str, address: str) -> None:
        began_s = self._now()
        try:
            async with self._slots:
                await self._users.verify(user, password)
        except WrongLogin as error:
            self._attempts.failed(user, address)
            _log.info("a log in failed", extra={"user": user, "client": address, "reason": str(error)})
            await asyncio.sleep(began_s + FAILURE_S - self._now())
            raise
        self._attempts.succeeded(user, address)
        self._keep(key)

    def _hash(self, user: str, password: str) -> bytes:
        text = f"{len(user)}:{user}{password}".encode("utf-8", "surrogatepass")
        return hashlib.blake2b(text, key=self._key).digest()

    def _keep(self, key: bytes) -> None:
        self._successes[key] = self._now() + KEPT_S
        self._successes.move_to_end(key)
        if len(self._successes) > _MAX_KEPT:
            self._successes.popitem(last=False)
