"""The model of a share partition's window: a dictionary of offsets, each with its own state, and no runs at all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from felice.protocol.errors import ErrorCode
from felice.replication.share.acknowledgements import AcknowledgedRange
from felice.replication.share.acquiring import AcquireMode, LogRead, Wanted
from felice.replication.share.settings import WindowSettings
from felice.replication.share.states import RecordState, StateBatch

FREE, HELD, ACKED, COPYING, GONE = RecordState
ENDS = (ACKED, GONE)
Written = dict[int, tuple[int, int]]
"""State and deliveries of each offset that a change writes."""


@dataclass(frozen=True)
class Cell:
    state: RecordState = FREE
    deliveries: int = 0
    holder: str = ""
    deadline_ms: int | None = None
    change: int | None = None
    next_state: RecordState | None = None
    next_deadline_ms: int | None = None

    @property
    def is_free(self) -> bool:
        return self.state is FREE and self.deadline_ms is None and self.change is None

    @property
    def will_be_done(self) -> bool:
        return (self.next_state if self.change is not None else self.state) in ENDS


@dataclass
class Model:
    start: int
    settings: WindowSettings
    cells: dict[int, Cell] = field(default_factory=dict)
    end: int = -1
    number: int = 0

    def __post_init__(self) -> None:
        self.end = max([self.start - 1, *self.cells])
        for offset in range(self.start, self.end + 1):
            self.cells.setdefault(offset, Cell())
        self.pass_done()

    @property
    def done(self) -> int:
        return sum(cell.will_be_done for cell in self.cells.values())

    @property
    def fetch_offset(self) -> int:
        return min((offset for offset, cell in self.cells.items() if cell.is_free), default=self.end + 1)

    @property
    def earliest_ms(self) -> int | None:
        waiting = [cell.deadline_ms for cell in self.cells.values() if cell.change is None]
        return min((deadline for deadline in waiting if deadline is not None), default=None)

    def pass_done(self) -> None:
        while self.start in self.cells and self.cells[self.start].state in ENDS:
            del self.cells[self.start]
            self.start += 1

    def held(self, member: str) -> list[int]:
        return [
            offset
            for offset, cell in sorted(self.cells.items())
            if cell.state is HELD and cell.holder == member
        ]

    def _known(self, offsets: Iterable[int]) -> None:
        """New offsets of the window; those before them that nobody looked at are available."""
        for offset in range(self.end + 1, max([self.end, *offsets]) + 1):
            self.cells[offset] = Cell()
            self.end = offset

    # Events: each returns what its change writes

    def acquire(
        self, member: str, read: LogRead, wanted: Wanted, now_ms: int
    ) -> tuple[dict[int, int], Written]:
        taken: dict[int, int] = {}
        archived: list[int] = []
        old_end = self.end

        def has_room() -> bool:
            return max([old_end, *taken, *archived]) - self.start + 1 < self.settings.max_record_locks

        def candidates(first: int, last: int) -> list[int]:
            inside = [at for at in range(first, min(last, old_end) + 1) if at in self.cells]
            new = list(range(max(first, old_end + 1), last + 1)) if has_room() else []
            return [at for at in inside if self.cells[at].is_free] + new

        at = max(read.offset, self.start)
        for batch in read.batches:
            if batch.last < at:
                continue
            if len(taken) >= wanted.max_records:
                break
            archived += candidates(at, batch.first - 1)
            at = max(at, batch.first)
            free = candidates(at, batch.last)
            at = batch.last + 1
            if batch.is_aborted:
                archived += free
            elif not self._take(free, batch.last - batch.first + 1, taken, old_end, has_room, wanted):
                break
        self._known([*taken, *archived])
        for offset in taken:
            deliveries = self.cells[offset].deliveries + 1
            taken[offset] = deliveries
            deadline_ms = now_ms + self.settings.lock_duration_ms
            self.cells[offset] = Cell(HELD, deliveries, member, deadline_ms)
        return taken, self._at_once(archived, lambda cell: GONE)

    def _take(
        self,
        free: list[int],
        batch_size: int,
        taken: dict[int, int],
        old_end: int,
        has_room: Callable[[], bool],
        wanted: Wanted,
    ) -> bool:
        is_limited = wanted.mode is AcquireMode.RECORD_LIMIT
        for offset in free:
            deliveries = self.cells.get(offset, Cell()).deliveries
            if deliveries >= max(2, (self.settings.delivery_count_limit + 1) // 2):
                if not taken:
                    alone = self._isolated(offset, free, deliveries, batch_size)
                    taken.update(dict.fromkeys(alone[: wanted.max_records] if is_limited else alone, 0))
                return False
            if is_limited and (len(taken) >= wanted.max_records or (offset > old_end and not has_room())):
                return False
            taken[offset] = 0
        return True

    def _isolated(self, first: int, free: Sequence[int], deliveries: int, batch_size: int) -> list[int]:
        limit = self.settings.delivery_count_limit
        most = batch_size
        for _ in range(deliveries - max(2, (limit + 1) // 2) + 1):
            most //= 2
        if limit > 2 and deliveries >= limit - 1:
            most = 1
        together = []
        for offset in range(first, first + max(most, 1)):
            if offset not in free or self.cells.get(offset, Cell()).deliveries != deliveries:
                break
            together.append(offset)
        return together

    def acknowledge(
        self, member: str, ranges: Sequence[AcknowledgedRange], now_ms: int, is_renewal: bool
    ) -> ErrorCode | Written:
        before = -1
        types: dict[int, int] = {}
        for asked in ranges:
            size = asked.last - asked.first + 1
            if asked.first <= before or size < 1 or len(asked.types) not in (1, size):
                return ErrorCode.INVALID_REQUEST
            if not all(0 <= number <= (4 if is_renewal else 3) for number in asked.types):
                return ErrorCode.INVALID_REQUEST
            before = asked.last
        for asked in ranges:
            if asked.last > self.end and asked.last >= self.start:
                return ErrorCode.INVALID_REQUEST if self.cells else ErrorCode.INVALID_RECORD_STATE
            for index, offset in enumerate(range(asked.first, asked.last + 1)):
                if offset < self.start:
                    continue
                cell = self.cells[offset]
                lasts = cell.deadline_ms is not None and cell.deadline_ms > now_ms
                if cell.state is not HELD or cell.holder != member or not lasts or cell.change is not None:
                    return ErrorCode.INVALID_RECORD_STATE
                types[offset] = asked.types[index if len(asked.types) > 1 else 0]
        if 4 in types.values() and not self.settings.may_renew:
            return ErrorCode.INVALID_RECORD_STATE
        for offset in [offset for offset, number in types.items() if number == 4]:
            self.cells[offset] = replace(
                self.cells[offset], deadline_ms=now_ms + self.settings.lock_duration_ms
            )
            del types[offset]
        written: Written = {}
        for offset, number in types.items():
            cell = self.cells[offset]
            state = (GONE, ACKED, self.after_release(cell), self.dead)[number]
            delay = self.settings.release_delay
            until_ms = None
            if number == 2 and state is FREE and delay is not None:
                until_ms = now_ms + min(delay.first_ms * 2 ** (cell.deliveries - 1), delay.max_ms)
            self._begin(offset, state, until_ms, written)
        return self._numbered(written)

    @property
    def dead(self) -> RecordState:
        return COPYING if self.settings.has_dead_letters else GONE

    def after_release(self, cell: Cell) -> RecordState:
        return self.dead if cell.deliveries >= self.settings.delivery_count_limit else FREE

    def release(self, member: str) -> Written:
        written: Written = {}
        for offset in self.held(member):
            if self.cells[offset].change is None:
                self._begin(offset, self.after_release(self.cells[offset]), None, written)
        return self._numbered(written)

    def copied(self, offsets: Iterable[int]) -> Written:
        written: Written = {}
        for offset in offsets:
            cell = self.cells.get(offset)
            if cell is not None and cell.state is COPYING and cell.change is None:
                self._begin(offset, GONE, None, written)
        return self._numbered(written)

    def on_time(self, now_ms: int) -> Written:
        due = [
            offset
            for offset, cell in self.cells.items()
            if cell.change is None and cell.deadline_ms is not None and cell.deadline_ms <= now_ms
        ]
        for offset in due:
            if self.cells[offset].state is FREE:
                self.cells[offset] = Cell(FREE, self.cells[offset].deliveries)
        return self._at_once([at for at in due if self.cells[at].state is HELD], self.after_release)

    def log_start(self, offset: int) -> bool:
        if offset <= self.start:
            return False
        self.number += 1
        self.start = offset
        self.end = max(self.end, offset - 1)
        self.cells = {at: cell for at, cell in self.cells.items() if at >= offset}
        return True

    def settle(self, number: int, is_written: bool) -> None:
        for offset, cell in list(self.cells.items()):
            if cell.change != number:
                continue
            if is_written:
                assert cell.next_state is not None
                self.cells[offset] = Cell(cell.next_state, cell.deliveries, "", cell.next_deadline_ms)
            else:
                self.cells[offset] = Cell(cell.state, cell.deliveries, cell.holder, cell.deadline_ms)
        self.pass_done()

    def _begin(self, offset: int, state: RecordState, until_ms: int | None, written: Written) -> None:
        cell = self.cells[offset]
        self.cells[offset] = replace(
            cell, change=self.number + 1, next_state=state, next_deadline_ms=until_ms
        )
        written[offset] = state, cell.deliveries

    def _at_once(self, offsets: Iterable[int], state_of: Callable[[Cell], RecordState]) -> Written:
        written: Written = {}
        for offset in offsets:
            cell = self.cells[offset]
            self.cells[offset] = Cell(state_of(cell), cell.deliveries)
            written[offset] = self.cells[offset].state, cell.deliveries
        return self._numbered(written)

    def _numbered(self, written: Written) -> Written:
        self.number += bool(written)
        return written


def by_offset(batches: Iterable[StateBatch]) -> Written:
    """State and deliveries of each offset in the batches."""
    return {
        offset: (batch.state, batch.deliveries)
        for batch in batches
        for offset in range(batch.first, batch.last + 1)
    }
