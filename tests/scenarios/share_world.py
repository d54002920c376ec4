"""The window of a share partition, its log, its members and its writes, driven by commands of one line.

    settings name=number ...                 before the window's first use; also delay=first/max, dead_letters=1
    log 0-9 10-19 20-29!                     batches of the log; ! marks an aborted one
    acquire NAME RECORDS [limit] [size=n]    from the fetch offset on; `limit` is the mode record_limit
    accept NAME 0-4 7 ...                    also release, reject, gap, renew; all in one request
    close NAME                               NAME's session ends
    written, failed                          the end of the oldest change
    advance MS                               the time passes, and the window's deadlines come
    start OFFSET                             the log begins there
    copied                                   the dead letters are copied
    restart                                  another leader reads the written state
    show

The trace shows what a change writes: start offset, done offsets, and batches with their state.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from felice.protocol.errors import ErrorCode
from felice.replication.share.acknowledgements import AcknowledgedRange, AcknowledgeType
from felice.replication.share.acquiring import AcquireMode, LogBatch, LogRead, Wanted
from felice.replication.share.runs import NEVER_MS, Run
from felice.replication.share.settings import ReleaseDelay, WindowSettings
from felice.replication.share.states import RecordState, StateBatch
from felice.replication.share.window import Change, Window


@dataclass
class ShareWorld:
    config: WindowSettings = field(default_factory=WindowSettings)
    log: list[LogBatch] = field(default_factory=list)
    changes: deque[Change] = field(default_factory=deque)
    stored: dict[int, StateBatch] = field(default_factory=dict)
    stored_start: int = 0
    now_ms: int = 0
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.window = Window(0, self.config)

    def execute(self, line: str) -> list[str]:
        verb, *words = line.split()
        self.lines = []
        if verb.upper() in AcknowledgeType.__members__:
            self._acknowledge(AcknowledgeType[verb.upper()], *words)
        else:
            getattr(self, f"do_{verb}")(*words)
        return self.lines

    # Commands

    def do_settings(self, *words: str) -> None:
        values: dict[str, object] = {}
        for name, _, text in (word.partition("=") for word in words):
            if name == "delay":
                first_ms, _, max_ms = text.partition("/")
                values["release_delay"] = ReleaseDelay(int(first_ms), int(max_ms))
            elif name == "dead_letters":
                values["has_dead_letters"] = text == "1"
            else:
                values[name] = int(text)
        self.config = WindowSettings(**values)  # type: ignore[arg-type]
        self.window.settings = self.config

    def do_log(self, *words: str) -> None:
        self.log = [LogBatch(*_range(word.rstrip("!")), word.endswith("!")) for word in words]

    def do_acquire(self, name: str, records: str, *words: str) -> None:
        mode = AcquireMode.RECORD_LIMIT if "limit" in words else AcquireMode.BATCH_OPTIMIZED
        sizes = [int(word.removeprefix("size=")) for word in words if word.startswith("size=")]
        offset = self.window.fetch_offset
        read = LogRead(offset, [batch for batch in self.log if batch.last >= offset])
        wanted = Wanted(int(records), sizes[0] if sizes else 500, mode)
        found = self.window.acquire(name, read, wanted, self.now_ms)
        got = [f"{_name(part.first, part.last)} (delivery {part.deliveries})" for part in found.ranges]
        self.lines.append(f"{name}: {', '.join(got) or 'nothing'}")
        self._note(found.change)

    def _acknowledge(self, type_: AcknowledgeType, name: str, *words: str) -> None:
        ranges = [AcknowledgedRange(*_range(word), [type_]) for word in words]
        is_renewal = type_ is AcknowledgeType.RENEW
        result = self.window.acknowledge(name, ranges, self.now_ms, is_renewal=is_renewal)
        if isinstance(result, ErrorCode):
            self.lines.append(f"{name}: {result.name}")
        else:
            self._note(result)

    def do_close(self, name: str) -> None:
        self._note(self.window.release(name))

    def do_written(self) -> None:
        change = self.changes.popleft()
        self.stored_start = max(self.stored_start, change.start_offset)
        for batch in change.batches:
            for at in range(batch.first, batch.last + 1):
                self.stored[at] = StateBatch(at, at, batch.state, batch.deliveries)
        self._settle(change, is_written=True)

    def do_failed(self) -> None:
        self._settle(self.changes.popleft(), is_written=False)

    def _settle(self, change: Change, *, is_written: bool) -> None:
        self.window.settle(change, is_written=is_written)
        if self.window.next_deadline_ms <= self.now_ms:
            self.do_advance("0")
        self.do_show()

    def do_advance(self, ms: str) -> None:
        self.now_ms += int(ms)
        self._note(self.window.on_time(self.now_ms))
        assert self.window.next_deadline_ms > self.now_ms, "a timer would fire again and again"

    def do_start(self, offset: str) -> None:
        self._note(self.window.log_start(int(offset)))

    def do_copied(self) -> None:
        self._note(self.window.copied(self.window.dead_letters))

    def do_restart(self) -> None:
        stored = [batch for at, batch in sorted(self.stored.items()) if at >= self.stored_start]
        self.window = Window.loaded(self.stored_start, stored, self.config)
        self.changes.clear()
        self.do_show()

    def do_show(self) -> None:
        window = self.window
        window.check()
        self.lines.append(
            f"start {window.start_offset}, next fetch at {window.fetch_offset}, done {window.done_count}"
        )
        self.lines += [f"{_name(run.first, run.last)} {self._text(run)}" for run in window.runs]
        for letter in window.dead_letters:
            self.lines.append(f"dead letter: {_name(letter.first, letter.last)} after {letter.deliveries}")

    # Traces

    def _note(self, change: Change | None) -> None:
        if change is not None:
            self.changes.append(change)
            self.lines.append(
                f"write: start {change.start_offset}, done {change.done_count}{_batches(change.batches)}"
            )

    def _text(self, run: Run) -> str:
        words = [run.state.name.lower(), f"after {run.deliveries}"]
        if run.holder:
            words.append(f"by {run.holder}")
        if run.deadline_ms != NEVER_MS:
            words.append(f"for {run.deadline_ms - self.now_ms} ms")
        if run.pending is not None:
            words.append(f"-> {run.pending.state.name.lower()}")
        return " ".join(words)


def _range(word: str) -> tuple[int, int]:
    first, _, last = word.partition("-")
    return int(first), int(last or first)


def _name(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def _batches(batches: Iterable[StateBatch]) -> str:
    return "".join(
        f", {_name(batch.first, batch.last)} {RecordState(batch.state).name.lower()} after {batch.deliveries}"
        for batch in batches
    )
