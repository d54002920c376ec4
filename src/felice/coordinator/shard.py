"""The contract of a coordinator's state machine: one shard is one partition of an internal topic.

Keeps true:  a shard is a function of its log. Replaying the records that it wrote gives the durable part of
             its state again; the rest (waiting callers, deadlines) may be lost without harm.
How:         an event goes in with the time and comes out as an `Outcome`: records to write, answers that may go
             out now, and continuations that must wait for the records. Deadlines are data: the shell asks
             `next_deadline_ms` and calls `on_time`. A record that changes state gives the way back, so that a
             refused write leaves nothing behind.
Leaves:      logs, clocks, sockets and futures to `runtime`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from felice.protocol.errors import ErrorCode

R = TypeVar("R")

NO_PRODUCER_ID = -1
NEVER_MS = 2**62
"""A deadline that does not come."""

Undo = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Instant:
    """The time of an event: on the wall for what is stored, steady for what is waited for."""

    wall_ms: int
    steady_ms: int


class Waiter(Protocol):
    """A caller who waits for an answer. A shard keeps it and gives it back, and never looks inside."""

    def answer(self, response: Any) -> None: ...


@dataclass(frozen=True, slots=True)
class Reply:
    waiter: Waiter
    response: Any


class AfterWrite(Protocol[R]):
    """What follows once this event's records, and all before them, are committed or refused."""

    def on_committed(self, now: Instant) -> Outcome[R]: ...

    def on_failed(self, error: ErrorCode, now: Instant) -> Outcome[R]: ...


@dataclass(frozen=True, slots=True)
class TransactionalProducer:
    """In whose transaction records are written."""

    producer_id: int
    epoch: int


@dataclass(slots=True)
class Outcome(Generic[R]):
    """What the shell must do after one event: send the replies, write the records, then go on.

    With a `producer` the records belong to its transaction and wait for its marker.
    """

    replies: list[Reply] = field(default_factory=list)
    records: list[R] = field(default_factory=list)
    after_write: list[AfterWrite[R]] = field(default_factory=list)
    producer: TransactionalProducer | None = None

    def reply(self, waiter: Waiter, response: Any) -> None:
        self.replies.append(Reply(waiter, response))

    def extend(self, other: Outcome[R]) -> None:
        self.replies += other.replies
        self.records += other.records
        self.after_write += other.after_write


@dataclass(frozen=True, slots=True)
class ReplyAfterWrite(Generic[R]):
    """The usual continuation: an answer when the records are safe, another when they are not.

    Without records it is a read that waits for the writes before it, so that nobody is told what may yet vanish.
    """

    waiter: Waiter
    response: Any
    failure: Callable[[ErrorCode], Any]

    def on_committed(self, now: Instant) -> Outcome[R]:
        return Outcome([Reply(self.waiter, self.response)])

    def on_failed(self, error: ErrorCode, now: Instant) -> Outcome[R]:
        return Outcome([Reply(self.waiter, self.failure(error))])


class RecordCodec(Protocol[R]):
    """A shard's records as keys and values of its topic."""

    def encode(self, record: R) -> tuple[bytes, bytes | None]: ...

    def decode(self, key: bytes, value: bytes | None) -> R | None:
        """None for a record of a kind that this version does not know: it is passed over."""
        ...


class Shard(Protocol[R]):
    """One partition's state machine. All methods are synchronous and deterministic."""

    def replay(self, record: R, producer_id: int = NO_PRODUCER_ID) -> Undo:
        """Apply a record, from the log or just written; a transactional one waits for its marker."""
        ...

    def replay_marker(self, producer_id: int, committed: bool) -> None:
        """A transaction ended: its records count from now on, or never did."""
        ...

    def on_loaded(self, now: Instant) -> Outcome[R]:
        """The whole log is replayed; the first caller may come."""
        ...

    def on_unloaded(self, error: ErrorCode) -> list[Reply]:
        """This broker coordinates no longer; whoever waits is told `error`."""
        ...

    def next_deadline_ms(self) -> int:
        """The steady time of the earliest deadline (or somewhat before it), `NEVER_MS` if there is none."""
        ...

    def on_time(self, now: Instant) -> Outcome[R]: ...
