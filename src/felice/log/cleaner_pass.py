"""One pass of the cleaner over one log: keeps the last record of every key, and what Kafka's rules keep beside it.

Keeps true: L10 below the clean point every key keeps its last record, with its offset and its timestamp.
            L11 memory is bounded by the offset map and a buffer: if the map is full the pass ends there, and the
                next pass continues.
            L12 damage is not spread: the CRC of each batch is checked before the batch is used.

How: `index` reads the dirty part and stores the last offset of each key. `clean` writes each group of segments as
one new segment under `.cleaned` names, synced. Both block and run on a cleaner thread; they touch nothing that the
log's owner changes. `Log.replace_segments` swaps the new segment in, on the owner's thread.
An empty batch stays if it is the last of its producer or of its group: so offsets continue, sequences stay known,
and a new segment ends where the old ones ended (`segment_swap` needs that).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from felice.dataclass import dataclass
from felice.log import cleaner_plan
from felice.log.cleaner_batches import BatchCleaner, control_type_of
from felice.log.cleaner_plan import SegmentFacts
from felice.log.cleaner_transactions import CleanedTransactions, last_of_producers
from felice.log.errors import CorruptLog
from felice.log.log import Log
from felice.log.segment import CLEANED_SUFFIX, Segment
from felice.log.throttle import Throttle
from felice.protocol.primitives import Buffer
from felice.records.batch import HEADER_SIZE, BatchHeader, verify_crc
from felice.records.kernels import OffsetMap
from felice.records.reader import records_payload

SLOT_BYTES = 24


class CleaningAborted(Exception):
    """The log was truncated, closed or deleted meanwhile, or the broker stops. The log is not damaged."""


class _SourceGone(Exception):
    """Retention deleted the segment meanwhile, and with it all older ones."""


@dataclass(frozen=True, slots=True)
class CleanerSettings:
    """The share of the broker's options that one thread may use."""

    map_bytes: int
    load_factor: float
    buffer_bytes: int
    secret: bytes


@dataclass(slots=True)
class CleanerStats:
    """Statistics of a pass. Its thread writes them; any thread may read them at any time."""

    bytes_indexed: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_kept: int = 0
    keys: int = 0
    map_slots: int = 0
    is_map_full: bool = False
    segments_before: int = 0
    segments_after: int = 0


@dataclass(frozen=True, slots=True)
class Source:
    """A segment to clean, as it was when the pass began."""

    segment: Segment
    facts: SegmentFacts
    dirty_position: int
    """Position of the first batch that is new since the last pass; the segment's size if there is none."""


class _Output:
    """Batches that wait to be written to the new segment."""

    def __init__(self, segment: Segment, index_interval_bytes: int) -> None:
        self.segment = segment
        self.is_changed = False
        self._index_interval_bytes = index_interval_bytes
        self._data = bytearray()
        self._headers: list[BatchHeader] = []

    @property
    def waiting_bytes(self) -> int:
        """Bytes that were added and not yet written."""
        return len(self._data)

    def add(self, batch: Buffer, header: BatchHeader) -> None:
        """Adds a batch without writing it."""
        self._data += batch
        self._headers.append(header)

    def write(self) -> None:
        """Appends the waiting batches to the segment. Raises OSError."""
        if self._data:
            self.segment.append(self._data, self._headers, self._index_interval_bytes)
            self._data, self._headers = bytearray(), []


class CleaningPass:
    """One pass. Create it, and call `swap_in`, on the log's own thread; call `index` and `clean` on a cleaner thread.

    `index` comes first, then for each of `groups`: `clean`, and `swap_in` or `discard`. `index` and `clean` raise
    `CleaningAborted`, `ApiError` (damage: `CorruptLog` or an error of `records`) or OSError.
    """

    def __init__(
        self,
        log: Log,
        found: cleaner_plan.Cleanable,
        settings: CleanerSettings,
        throttle: Throttle,
        *,
        now_ms: int,
    ) -> None:
        self.log = log
        self.stats = CleanerStats()
        self.first_dirty_offset = found.first_dirty_offset
        self.end_offset = found.end_offset
        """Offset where the pass ends: lower than requested once the map is full."""
        self._truncations = log.truncations
        self._config = log.config
        self._settings = settings
        self._throttle = throttle
        self._now_ms = now_ms
        # A segment that ends behind the last stable offset may hold an open transaction: it waits for a later pass,
        # even if it begins below. Recovery can merge new records into a segment that was cleaned.
        self._sources = [
            source
            for source in map(self._source, log.segments[:-1])
            if source.facts.next_offset <= found.end_offset
        ]
        self._aborted = log.aborted_transactions(log.segments[0].base_offset, found.end_offset)
        self._last_of_producers = last_of_producers(log.producers)
        self._batch_cleaner: BatchCleaner | None = None

    def _source(self, segment: Segment) -> Source:
        return Source(segment, facts_of(segment), segment.position_of(self.first_dirty_offset))

    # -- the dirty part --------------------------------------------------------------------------------

    def index(self) -> None:
        """Reads the dirty part and stores the last offset of each key in it, until the map is full."""
        slots, max_keys = self._map_size()
        offsets = OffsetMap(slots, self._settings.secret)
        self.stats.map_slots = slots
        transactions = CleanedTransactions(self._aborted)
        for source in self._sources:
            stopped = self._index_source(source, offsets, max_keys, transactions)
            if stopped >= 0:
                self.stats.is_map_full = True
                self.end_offset = stopped
                break
        self.stats.keys = len(offsets)
        self._batch_cleaner = BatchCleaner(
            offsets,
            self.end_offset,
            CleanedTransactions(self._aborted),
            self._last_of_producers,
            self._now_ms,
            self._config.delete_retention_ms,
        )

    def _index_source(
        self, source: Source, offsets: OffsetMap, max_keys: int, transactions: CleanedTransactions
    ) -> int:
        """Returns the offset at which the map was full, -1 if it was not."""
        try:
            for window, header, _ in self._batches(source, source.dirty_position):
                self.stats.bytes_indexed += header.size_bytes
                if _is_passed_over(window, header, transactions):
                    continue
                stopped = offsets.put_records(
                    records_payload(window, header),
                    header.record_count,
                    header.base_offset,
                    self.first_dirty_offset,
                    max_keys,
                )
                if stopped >= 0:
                    return stopped
        except _SourceGone:
            # Older segments are gone too, so this segment's keys have no older record to replace.
            pass
        return -1

    def _map_size(self) -> tuple[int, int]:
        """Returns the map's slots and how many may be used. Capped by the number of dirty offsets."""
        load_factor = self._settings.load_factor
        needed = int((self.end_offset - self.first_dirty_offset) / load_factor) + 2
        slots = max(min(self._settings.map_bytes // SLOT_BYTES, needed), 1)
        return slots, max(int(slots * load_factor), 1)

    # -- writing ---------------------------------------------------------------------------------------

    def groups(self) -> list[list[Source]]:
        """Groups of segments, each to become one segment, up to the offset that `index` reached."""
        below = {
            source.facts.base_offset: source
            for source in self._sources
            if source.facts.base_offset < self.end_offset
        }
        grouped = cleaner_plan.groups(
            [source.facts for source in below.values()],
            segment_bytes=self._config.segment_bytes,
            index_bytes=self._config.segment_index_bytes,
        )
        return [[below[facts.base_offset] for facts in group] for group in grouped]

    def clean(self, group: Sequence[Source]) -> Segment | None:
        """The new segment, written and synced under `.cleaned` names; None if it would equal the old one."""
        self._check_wanted()
        segment = Segment.create(
            self.log.files,
            self.log.directory,
            group[0].facts.base_offset,
            index_bytes=self._config.segment_index_bytes,
            created_ms=group[-1].segment.created_ms,
            suffix=CLEANED_SUFFIX,
        )
        output = _Output(segment, self._config.index_interval_bytes)
        try:
            for source in group:
                self._clean_source(source, output, is_last=source is group[-1])
            self._finish(output)
        except _SourceGone:
            self.discard(segment)
            return None
        except BaseException:
            self.discard(segment)
            raise
        if len(group) == 1 and not output.is_changed:
            self.discard(segment)
            return None
        return segment

    def swap_in(self, group: Sequence[Source], segment: Segment) -> bool:
        """Replaces the group by the new segment, on the log's own thread; False if retention deleted the group."""
        old = [source.segment for source in group]
        if not self.log.replace_segments(old, segment, truncations=self._truncations):
            return False
        self.stats.segments_before += len(group)
        self.stats.segments_after += 1
        return True

    def discard(self, segment: Segment) -> None:
        """Removes the new segment's files. Its directory may have been deleted with the topic."""
        try:
            segment.remove_files()
        except OSError:
            if self.log.offline_reason is None:
                raise

    def _clean_source(self, source: Source, output: _Output, *, is_last: bool) -> None:
        assert self._batch_cleaner is not None, "index comes first"
        stats = self.stats
        for window, header, ends_segment in self._batches(source, 0):
            cleaned = self._batch_cleaner.clean(window, header, ends_group=is_last and ends_segment)
            stats.bytes_read += header.size_bytes
            stats.records_read += header.record_count
            if cleaned is None or cleaned.is_changed:
                output.is_changed = True
            if cleaned is not None:
                stats.records_kept += cleaned.header.record_count
                output.add(cleaned.data, cleaned.header)
            if output.waiting_bytes >= self._settings.buffer_bytes:
                self._write(output)

    def _write(self, output: _Output) -> None:
        self._throttle.take(output.waiting_bytes)
        self._check_wanted()
        self.stats.bytes_written += output.waiting_bytes
        output.write()

    def _finish(self, output: _Output) -> None:
        assert self._batch_cleaner is not None
        self._write(output)
        kept = self._batch_cleaner.transactions.kept
        for aborted in kept:
            output.segment.transaction_index.append(aborted)
        kept.clear()
        output.segment.seal()
        for file in output.segment.open_files(with_indexes=True):
            file.sync()

    # -- reading ---------------------------------------------------------------------------------------

    def _batches(self, source: Source, position: int) -> Iterator[tuple[Buffer, BatchHeader, bool]]:
        """Yields (window, header, whether it is the last) for each batch from `position` on.

        The position in the header is that in the window.
        """
        path, end = source.segment.log_path, source.facts.size_bytes
        window, start = b"", position
        while position < end:
            at = position - start
            header = BatchHeader.parse(window, at) if len(window) - at >= HEADER_SIZE else None
            if header is None or header.end > len(window):
                wanted = max(self._settings.buffer_bytes, header.size_bytes if header else 0, HEADER_SIZE)
                window, start = self._read(source, position, min(wanted, end - position)), position
                if len(window) < min(wanted, HEADER_SIZE):
                    raise CorruptLog(path, position, "it ends inside a batch")
                if header is not None and header.size_bytes > len(window):
                    raise CorruptLog(
                        path, position, f"a batch of {header.size_bytes} bytes goes beyond its end"
                    )
                continue
            if not verify_crc(window, header):
                raise CorruptLog(
                    path, position, f"the CRC of the batch at offset {header.base_offset} does not hold"
                )
            position += header.size_bytes
            yield window, header, position >= end

    def _read(self, source: Source, position: int, size_bytes: int) -> bytes:
        self._throttle.take(size_bytes)
        self._check_wanted()
        try:
            file = source.segment.log_file()
        except FileNotFoundError:
            self._check_wanted()
            if source.segment in self.log.segments:
                raise
            raise _SourceGone from None
        return file.pread(size_bytes, position)

    def _check_wanted(self) -> None:
        log = self.log
        if (
            self._throttle.stopping.is_set()
            or log.offline_reason is not None
            or log.truncations != self._truncations
        ):
            raise CleaningAborted(f"cleaning of {log.name} was aborted")


def _is_passed_over(window: Buffer, header: BatchHeader, transactions: CleanedTransactions) -> bool:
    """Whether the keys of the batch do not count: the batch is control, aborted or empty."""
    if header.is_control:
        transactions.is_spent(header, control_type_of(window, header))
        return True
    return transactions.is_aborted(header) or header.record_count == 0


def facts_of(segment: Segment, *, with_first_timestamp: bool = False) -> SegmentFacts:
    """The facts that the plan needs of a segment. The first timestamp costs a read, so it is optional."""
    first_timestamp = segment.first_timestamp if with_first_timestamp else None
    return SegmentFacts(
        segment.base_offset,
        segment.next_offset,
        segment.size_bytes,
        segment.index_bytes,
        segment.largest_timestamp_or_mtime,
        first_timestamp or 0,
    )


def log_facts(log: Log, last_stable_offset: int, clean_offset: int | None) -> cleaner_plan.LogFacts:
    """The input of `cleaner_plan`. Call it on the log's own thread."""
    with_first = log.config.max_compaction_lag_ms < 2**63 - 1
    return cleaner_plan.LogFacts(
        [facts_of(segment, with_first_timestamp=with_first) for segment in log.segments],
        log.log_start_offset,
        log.log_end_offset,
        last_stable_offset,
        clean_offset,
        log.config,
    )
