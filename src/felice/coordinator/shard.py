"""The contract of a coordinator's state machine: one shard is one partition of an internal topic.

Keeps true:  a shard is a function of its log. Replaying the records that it wrote restores the durable part of its
             state; the rest (waiting requests, deadlines) may be lost without harm.
How:         an event goes in with the time and comes out as an `Outcome`: records to write, answers that may be sent
             now, and continuations that must wait for the records. Long computations are data, too (`Work`): the
             shell runs them in a thread, and their results are events. Deadlines are data: the shell reads
             `next_deadline_ms` and calls `on_time`. Applying a record returns a function that undoes it, so that a
             refused write leaves no trace.
Leaves:      logs, clocks, sockets and futures to `hosted_shard` and `runtime`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Generic, Protocol, TypeVar

from felice.dataclass import dataclass
from felice.protocol.errors import ApiError, ErrorCode

R = TypeVar("R")
A = TypeVar("A")
A_contra = TypeVar("A_contra", contravariant=True)

NO_PRODUCER_ID = -1
NEVER_MS = 2**62
"""A deadline that never comes."""

Undo = Callable[[], None]


def undo_nothing() -> None:
    """Undoes a record that changed nothing."""


@dataclass(frozen=True, slots=True)
class Instant:
    """The time of an event: wall time for stored timestamps, steady time for deadlines."""

    wall_ms: int
    steady_ms: int


class Waiter(Protocol[A_contra]):
    """A request that waits for its answer, of type `A_contra`. A shard keeps it, and never looks inside."""

    def answer(self, response: A_contra) -> None:
        """Gives the request its response. Each request gets one."""
        ...


@dataclass(frozen=True, slots=True)
class Reply(Generic[A]):
    """A response and the request that gets it."""

    waiter: Waiter[A]
    response: A

    def send(self) -> None:
        """Gives the request its response."""
        self.waiter.answer(self.response)


class Sendable(Protocol):
    """A reply of any type."""

    def send(self) -> None:
        """Gives the request its response."""
        ...


class AfterWrite(Protocol[R]):
    """Continues after this event's records, and all before them, were committed or refused."""

    def on_committed(self, now: Instant) -> Outcome[R]:
        """The records are committed."""
        ...

    def on_failed(self, error: ErrorCode, now: Instant) -> Outcome[R]:
        """The records were refused, or their commit took too long."""
        ...


@dataclass(frozen=True, slots=True)
class TransactionalProducer:
    """The producer in whose transaction records are written."""

    producer_id: int
    epoch: int


class Work(Protocol[R]):
    """A computation that would block the event loop for long. It reads only immutable values, and no shard.

    The shard must limit how many computations one request can begin.
    """

    @property
    def name(self) -> str:
        """For the log."""
        ...

    def run(self) -> None:
        """Computes, in another thread, and keeps the result."""
        ...

    def on_done(self, now: Instant, fault: Exception | None) -> Outcome[R]:
        """Continues in the shard with the result of `run`.

        `fault` is the exception that `run` raised, or the error with which the event's records were refused.
        """
        ...


@dataclass(slots=True)
class Outcome(Generic[R]):
    """The result of one event. The shell sends the replies, writes the records, then runs the continuations.

    With a `producer` the records belong to its transaction and wait for its marker. `work` runs in a thread when
    the records are committed, and its result is another event.
    """

    replies: list[Sendable] = field(default_factory=list)
    records: list[R] = field(default_factory=list)
    after_write: list[AfterWrite[R]] = field(default_factory=list)
    producer: TransactionalProducer | None = None
    work: list[Work[R]] = field(default_factory=list)

    def reply(self, waiter: Waiter[A], response: A) -> None:
        """Adds a reply that may be sent at once."""
        self.replies.append(Reply(waiter, response))

    def extend(self, other: Outcome[R]) -> None:
        """Adds the replies, records, continuations and work of another outcome."""
        self.replies += other.replies
        self.records += other.records
        self.after_write += other.after_write
        self.work += other.work


@dataclass(frozen=True, slots=True)
class ReplyAfterWrite(Generic[R, A]):
    """The usual continuation: one answer when the records are committed, another one when they are refused.

    Without records it is a read that waits for all earlier writes, so that no answer shows a state that may be lost.
    """

    waiter: Waiter[A]
    response: A
    failure: Callable[[ErrorCode], A]

    def on_committed(self, now: Instant) -> Outcome[R]:
        """The response."""
        return Outcome([Reply(self.waiter, self.response)])

    def on_failed(self, error: ErrorCode, now: Instant) -> Outcome[R]:
        """The response that `failure` makes of the error."""
        return Outcome([Reply(self.waiter, self.failure(error))])


@dataclass(frozen=True, slots=True)
class BeginWork(Generic[R]):
    """Begins a computation when the records of its event are committed, because they may be refused."""

    work: Work[R]

    def on_committed(self, now: Instant) -> Outcome[R]:
        """The computation may begin."""
        return Outcome(work=[self.work])

    def on_failed(self, error: ErrorCode, now: Instant) -> Outcome[R]:
        """Drops the computation. A later event may begin it again."""
        return self.work.on_done(now, ApiError(error))


class RecordCodec(Protocol[R]):
    """Encodes a shard's records as keys and values of its topic."""

    def encode(self, record: R) -> tuple[bytes, bytes | None]:
        """Key and value of a record; no value is a tombstone."""
        ...

    def decode(self, key: bytes, value: bytes | None) -> R | None:
        """None for a record of a kind that this version does not know; it is skipped."""
        ...


class Shard(Protocol[R]):
    """The state machine of one partition. All methods are synchronous and deterministic."""

    def replay(self, record: R, producer_id: int = NO_PRODUCER_ID) -> Undo:
        """Applies a record, from the log or just written; a transactional record waits for its marker."""
        ...

    def replay_marker(self, producer_id: int, committed: bool) -> None:
        """A transaction ended: its records count from now on, or are dropped."""
        ...

    def on_loaded(self, now: Instant) -> Outcome[R]:
        """The whole log is replayed; requests may arrive now."""
        ...

    def on_unloaded(self, error: ErrorCode) -> list[Sendable]:
        """This broker is no longer the coordinator: returns `error` for every waiting request."""
        ...

    def next_deadline_ms(self) -> int:
        """The steady time of the earliest deadline (or somewhat earlier), `NEVER_MS` without one."""
        ...

    def on_time(self, now: Instant) -> Outcome[R]:
        """A deadline may have come: does everything that is due."""
        ...
