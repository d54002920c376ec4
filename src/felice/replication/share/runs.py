"""The offsets of a share partition's window, as a sorted list of runs.

Keeps true:  Q1  the runs cover each offset from the window's start to its end exactly once.
             Two neighbours differ in more than their offsets: equal ones are joined.
How:         `rewrite` is the only place where runs are split, changed and joined. 2,000 offsets are a few runs until
             a member acknowledges them one by one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import NamedTuple, TypeVar

from felice.protocol.errors import BrokenInvariant
from felice.replication.share.states import DONE, RecordState

T = TypeVar("T")

NEVER_MS = 2**62
"""A deadline that never comes."""

_first = itemgetter(0)


class Pending(NamedTuple):
    """The state that a run gets when the change with this number is written."""

    change: int
    state: RecordState
    deadline_ms: int


class Run(NamedTuple):
    """Neighbouring offsets with the same state, deliveries, holder, deadline and pending change.

    An ACQUIRED run has a holder, and its lock ends at `deadline_ms`. An AVAILABLE run with a deadline is delayed: it
    cannot be acquired before. While a change is being written, a run keeps its state, and `pending` has the next one.
    """

    first: int
    last: int
    state: RecordState
    deliveries: int = 0
    holder: str = ""
    deadline_ms: int = NEVER_MS
    pending: Pending | None = None

    @property
    def size(self) -> int:
        """The number of offsets."""
        return self.last - self.first + 1

    @property
    def is_free(self) -> bool:
        """Whether a member may acquire the run now."""
        return self.state is RecordState.AVAILABLE and self.deadline_ms == NEVER_MS and self.pending is None

    def is_held(self, member: str, now_ms: int) -> bool:
        """Whether the member may acknowledge, renew or release the run."""
        return (
            self.state is RecordState.ACQUIRED
            and self.holder == member
            and self.deadline_ms > now_ms
            and self.pending is None
        )

    @property
    def done(self) -> int:
        """The number of offsets that are done, or will be once their change is written."""
        state = self.state if self.pending is None else self.pending.state
        return self.size if state in DONE else 0


class Runs:
    """The runs from `start` to `end`; with `end` = `start` - 1 there are none."""

    __slots__ = ("_no_free_before", "_runs", "done", "start")

    def __init__(self, start: int) -> None:
        self.start = start
        self.done = 0
        """The sum of `Run.done`."""
        self._runs: list[Run] = []
        # A lower bound, so that each search for free runs goes on where the last one ended.
        self._no_free_before = start

    def __iter__(self) -> Iterator[Run]:
        return iter(self._runs)

    def __len__(self) -> int:
        return len(self._runs)

    @property
    def end(self) -> int:
        """The last offset of the window."""
        return self._runs[-1].last if self._runs else self.start - 1

    @property
    def size(self) -> int:
        """The number of offsets, done or not."""
        return self.end - self.start + 1

    def within(self, first: int, last: int) -> Iterator[Run]:
        """The runs that have offsets from `first` to `last`, whole."""
        runs = self._runs
        for index in range(self._index(first), len(runs)):
            run = runs[index]
            if run.first > last:
                return
            yield run

    @property
    def first_free(self) -> int:
        """The first offset of the first free run, else the offset behind the end."""
        runs = self._runs
        found = self.end + 1
        for index in range(self._index(self._no_free_before), len(runs)):
            if runs[index].is_free:
                found = runs[index].first
                break
        self._no_free_before = found
        return found

    def _index(self, offset: int) -> int:
        """The index of the run with the offset; for an offset before the start, the first."""
        return max(0, bisect_right(self._runs, offset, key=_first) - 1)

    # Changes

    def append(self, run: Run) -> None:
        """Adds a run at the end of the window."""
        if run.first != self.end + 1 or run.last < run.first:
            raise _broken("a run does not begin at the end of the window", self.end, run)
        _add(self._runs, run)
        self._note(run)

    def rewrite(self, pieces: Sequence[tuple[int, int, T]], make: Callable[[Run, T], Run]) -> None:
        """Changes offsets: calls `make` with each part of a run that lies in a piece, and with the piece's value. It
        returns the run that replaces the part.

        Pieces are first and last offset with a value, in order, without overlaps, and inside the window.
        """
        if not pieces:
            return
        runs = self._runs
        low = at = self._index(pieces[0][0])
        # The run before takes part, so that the first new run can join it.
        low = max(0, low - 1)
        new: list[Run] = runs[low:at]
        rest: Run | None = runs[at] if at < len(runs) else None
        for first, last, value in pieces:
            while rest is not None and rest.last < first:
                _add(new, rest)
                at, rest = self._next(at)
            if rest is None or first < rest.first or last < first:
                raise _broken("a change lies outside the window", self.end, (first, last))
            if rest.first < first:
                _add(new, Run(rest.first, first - 1, *rest[2:]))
                rest = Run(first, *rest[1:])
            while rest is not None and rest.last <= last:
                _add(new, self._made(rest, make(rest, value)))
                at, rest = self._next(at)
            if rest is not None and rest.first <= last:
                part = Run(rest.first, last, *rest[2:])
                _add(new, self._made(part, make(part, value)))
                rest = Run(last + 1, *rest[1:])
            elif rest is None and new[-1].last < last:
                raise _broken("a change lies outside the window", self.end, (first, last))
        if rest is not None:
            _add(new, rest)
            at, rest = self._next(at)
        if rest is not None:
            # The first run after the change may join it.
            _add(new, rest)
            at += 1
        runs[low:at] = new

    def _next(self, at: int) -> tuple[int, Run | None]:
        at += 1
        return at, self._runs[at] if at < len(self._runs) else None

    def _made(self, part: Run, made: Run) -> Run:
        if part.first != made.first or part.last != made.last:
            raise _broken("a change moves offsets", part, made)
        self.done -= part.done
        self._note(made)
        return made

    def _note(self, run: Run) -> None:
        self.done += run.done
        if run.first < self._no_free_before and run.is_free:
            self._no_free_before = run.first

    def cut(self, start: int) -> None:
        """Drops the offsets before `start`, which may lie behind the end."""
        if start < self.start:
            raise _broken("the start goes back", self.start, start)
        end = self.end
        if start > end:
            self._runs = []
            self.done = 0
        else:
            index = self._index(start)
            dropped = self._runs[:index]
            self.done -= sum([run.done for run in dropped])
            del self._runs[:index]
            run = self._runs[0]
            kept = Run(start, *run[1:])
            self.done += kept.done - run.done
            self._runs[0] = kept
        self.start = start

    def pass_done(self) -> None:
        """Moves the start behind the done offsets at the front."""
        start = next((run.first for run in self._runs if run.state not in DONE), self.end + 1)
        if start > self.start:
            self.cut(start)

    def check(self) -> None:
        """Raises `BrokenInvariant` if Q1 does not hold: for tests, since it looks at every run."""
        at, done = self.start, 0
        before: Run | None = None
        for run in self._runs:
            if run.first != at or run.last < run.first or (before is not None and before[2:] == run[2:]):
                raise _broken("runs overlap, leave a gap, or are not joined", at, run)
            at, before, done = run.last + 1, run, done + run.done
        if done != self.done:
            raise _broken("the done offsets are counted wrongly", done, self.done)


def _add(runs: list[Run], run: Run) -> None:
    """Appends a run, or joins it to the last one."""
    if runs:
        before = runs[-1]
        if run.first != before.last + 1:
            raise _broken("a run does not begin where the one before ends", before, run)
        if before[2:] == run[2:]:
            runs[-1] = Run(before.first, *run[1:])
            return
    runs.append(run)


def _broken(what: str, expected: object, found: object) -> BrokenInvariant:
    return BrokenInvariant("Q1", what, expected=expected, found=found)
