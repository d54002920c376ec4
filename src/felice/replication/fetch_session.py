"""The follower's end of a fetch session (KIP-227): what the leader remembers of our last request.

Keeps true:  what is asked, together with what was asked before in this session, is exactly what is wanted now.
             Whenever the two ends may disagree the next request is a full one.
Pure. The leader's end is `server/fetch_sessions.py`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from felice.protocol.errors import ErrorCode

NO_SESSION = 0
FULL_EPOCH = 0
_MAX_EPOCH = 2**31 - 1

Key = TypeVar("Key", bound=Hashable)
Asked = TypeVar("Asked")


@dataclass(frozen=True, slots=True)
class SessionPlan(Generic[Key, Asked]):
    """What the next request says: all that is wanted, or only what changed."""

    session_id: int
    epoch: int
    asked: Mapping[Key, Asked] = field(default_factory=dict)
    forgotten: tuple[Key, ...] = ()


class FollowersSession(Generic[Key, Asked]):
    def __init__(self) -> None:
        self._session_id = NO_SESSION
        self._epoch = FULL_EPOCH
        self._known: dict[Key, Asked] = {}

    def plan(self, wanted: Mapping[Key, Asked], touched: Iterable[Key]) -> SessionPlan[Key, Asked]:
        """`touched` are the keys that may be wanted otherwise than in the last plan."""
        if self._epoch == FULL_EPOCH:
            self._known = dict(wanted)
            return SessionPlan(self._session_id, FULL_EPOCH, dict(wanted))
        known, changed, forgotten = self._known, {}, []
        for key in touched:
            asked = wanted.get(key)
            if asked is None:
                if known.pop(key, None) is not None:
                    forgotten.append(key)
            elif known.get(key) != asked:
                known[key] = changed[key] = asked
        return SessionPlan(self._session_id, self._epoch, changed, tuple(forgotten))

    def on_response(self, error_code: int, session_id: int) -> bool:
        """Whether the response has rows to look at."""
        if error_code != ErrorCode.NONE:
            if error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self._session_id = NO_SESSION
            self._epoch = FULL_EPOCH
            return False
        if session_id == NO_SESSION or (self._epoch != FULL_EPOCH and session_id != self._session_id):
            self._session_id, self._epoch = NO_SESSION, FULL_EPOCH
            return True
        self._session_id = session_id
        self._epoch = 1 if self._epoch == _MAX_EPOCH else self._epoch + 1
        return True

    def on_failure(self) -> None:
        """Whether the leader saw the request is not known. The next one closes its session."""
        self._epoch = FULL_EPOCH
