"""The follower's side of a fetch session (KIP-227): what the leader remembers of earlier requests.

Keeps true:  a request, together with the earlier requests of its session, names exactly the partitions that are
             wanted now. Whenever the two sides may disagree, the next request is a full one.
Pure. The leader's side is `server/fetching/fetch_sessions.py`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import field
from typing import Generic, TypeVar

from felice.dataclass import dataclass
from felice.protocol.errors import ErrorCode

NO_SESSION = 0
FULL_EPOCH = 0
_MAX_EPOCH = 2**31 - 1

Key = TypeVar("Key", bound=Hashable)
Asked = TypeVar("Asked")


@dataclass(frozen=True, slots=True)
class SessionPlan(Generic[Key, Asked]):
    """Content of the next request: all wanted partitions, or only the changes."""

    session_id: int
    epoch: int
    asked: Mapping[Key, Asked] = field(default_factory=dict)
    forgotten: tuple[Key, ...] = ()


class FollowersSession(Generic[Key, Asked]):
    """One follower's fetch session with one leader. `Key` names a partition, `Asked` is what is requested of it."""

    def __init__(self) -> None:
        self._session_id = NO_SESSION
        self._epoch = FULL_EPOCH
        self._known: dict[Key, Asked] = {}

    def plan(self, wanted: Mapping[Key, Asked], touched: Iterable[Key]) -> SessionPlan[Key, Asked]:
        """The next request. `wanted` are all partitions, `touched` the keys that may differ from the last plan."""
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
        """Takes the error code and the session id of a response. Returns whether the response has rows to process."""
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
        """The request failed: whether the leader saw it is unknown. The next request closes its session."""
        self._epoch = FULL_EPOCH
