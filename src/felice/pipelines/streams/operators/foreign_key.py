"""The join of two tables by a foreign key: a left row names the key of its right row.

How:  A left row subscribes to its right row, in the task that has the right row; its old subscription is removed. The
      answer, and every later change of the right row, goes to the task that has the left row, which joins both.
      A subscription and its answers carry a digest of the left row. An answer for an older left row is dropped, because
      the answers of two right rows may arrive in any order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import field
from enum import IntEnum
from hashlib import blake2b
from typing import Any

from felice.dataclass import dataclass
from felice.pipelines.streams.formats import Format
from felice.pipelines.streams.join_stores import SubscriptionStore
from felice.pipelines.streams.operators.aggregate import value_of
from felice.pipelines.streams.operators.joins import Joiner
from felice.pipelines.streams.operators.stateless import KeyValueFunction
from felice.pipelines.streams.record import Change, Getter, Record

DIGEST_BYTES = 16
_NO_RESULT = b"\0"
"""A mark behind the digest of an answer, or without a digest: the left row has no result, and had none before."""


class Request(IntEnum):
    """The kinds of requests that a left row sends to the task of a right row."""

    SUBSCRIBE = 0
    """Answer now, also if there is no right row: the result may have to be deleted."""
    SUBSCRIBE_IF_FOUND = 1
    """Answer now. Without a right row there was no result before either, which the answer says."""
    UNSUBSCRIBE = 2
    """Answer now as if there were no right row."""
    UNSUBSCRIBE_SILENTLY = 3


def digest_of(value: Any, format_: Format) -> bytes | None:
    """A digest that tells two versions of a left row apart; None for a deleted row."""
    return None if value is None else blake2b(format_.write(value), digest_size=DIGEST_BYTES).digest()


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Sends the requests that follow from a change of a left row, each under the key of the right row.

    A request is a pair: the byte of the request with the digest, and the key of the left row.
    """

    key_of: KeyValueFunction
    format: Format
    right_key: Format
    is_left: bool

    def process(self, record: Record) -> Iterable[Record]:
        """Requests to the old and to the new right row."""
        key, change, timestamp, headers = record
        digest = digest_of(change.new, self.format) or b""
        for right_key, request in self._requests(key, change):
            yield Record(right_key, (bytes([request]) + digest, key), timestamp, headers)

    def _requests(self, key: Any, change: Change) -> Iterator[tuple[Any, Request]]:
        if change.new is None and change.old is None:
            return
        old = None if change.old is None else self.key_of(key, change.old)
        new = None if change.new is None else self.key_of(key, change.new)
        is_moved = old is not None and not self.right_key.is_same(old, new)
        if is_moved:
            # Without a new right row, and without a left join's answer below, this answer deletes the result.
            is_last = new is None and not self.is_left
            yield old, Request.UNSUBSCRIBE if is_last else Request.UNSUBSCRIBE_SILENTLY
        if self.is_left:
            yield new, Request.SUBSCRIBE
        elif new is not None:
            yield new, Request.SUBSCRIBE if is_moved else Request.SUBSCRIBE_IF_FOUND
        elif not is_moved:
            yield None, Request.SUBSCRIBE_IF_FOUND


@dataclass(frozen=True, slots=True)
class AnswerSubscription:
    """Keeps or removes a subscription, and answers it with the right row."""

    store: SubscriptionStore
    right: Getter

    def process(self, record: Record) -> Iterable[Record]:
        """The answer, under the key of the left row."""
        right_key, (asked, key), timestamp, headers = record
        request, digest = Request(asked[0]), asked[1:] or None
        subscribes = request in (Request.SUBSCRIBE, Request.SUBSCRIBE_IF_FOUND)
        if right_key is not None:
            self.store.put(right_key, key, digest if subscribes else None)
        if request is Request.UNSUBSCRIBE_SILENTLY:
            return ()
        row = None if right_key is None else self.right(right_key)
        if row is None and request is Request.SUBSCRIBE_IF_FOUND:
            return (Record(key, (asked[1:] + _NO_RESULT, None), timestamp, headers),)
        time = timestamp if row is None else max(timestamp, row.timestamp)
        return (Record(key, (digest, value_of(row) if subscribes else None), time, headers),)


@dataclass(frozen=True, slots=True)
class RightRowChanged:
    """Sends a change of a right row to all left rows that have subscribed to it."""

    store: SubscriptionStore

    def process(self, record: Record) -> Iterable[Record]:
        """An answer for each left row."""
        right_key, change, timestamp, headers = record
        for key, digest in self.store.of(right_key) if right_key is not None else ():
            yield Record(key, (digest, change.new), timestamp, headers)


@dataclass(slots=True)
class JoinAnswer:
    """Joins an answer with the left row, unless the left row has changed since the request.

    An answer that is dropped may have been the one that deletes a result. Another one follows for the row as it is now,
    in the same batch. If that one says that there was no result before, it deletes one nevertheless.
    """

    left: Getter
    joiner: Joiner
    key_format: Format
    format: Format
    is_left: bool
    _dropped: set[bytes] = field(default_factory=set)
    _unchanged: set[bytes] = field(default_factory=set)
    """The keys whose answers were dropped in this batch, and those whose row has no result and had none before."""

    def begin_batch(self) -> None:
        """Forgets the last batch."""
        self._dropped.clear()
        self._unchanged.clear()

    def process(self, record: Record) -> Iterable[Record]:
        """The new row of the result, null for a deletion."""
        key, (answered, right), timestamp, headers = record
        left = value_of(self.left(key))
        key_bytes = self.key_format.key_bytes(key)
        digest, is_change = _of_answer(answered)
        if digest_of(left, self.format) != digest:
            self._dropped.add(key_bytes)
        elif is_change:
            self._forget(key_bytes)
            is_row = left is not None and (right is not None or self.is_left)
            return (Record(key, self.joiner(left, right) if is_row else None, timestamp, headers),)
        else:
            self._unchanged.add(key_bytes)
        if key_bytes not in self._dropped or key_bytes not in self._unchanged:
            return ()
        self._forget(key_bytes)
        return (Record(key, None, timestamp, headers),)

    def _forget(self, key_bytes: bytes) -> None:
        self._dropped.discard(key_bytes)
        self._unchanged.discard(key_bytes)


def _of_answer(answered: bytes | None) -> tuple[bytes | None, bool]:
    """The digest of an answer, and whether the result may have changed."""
    if answered is None or len(answered) == DIGEST_BYTES:
        return answered, True
    return answered.removesuffix(_NO_RESULT) or None, False
