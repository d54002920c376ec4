"""The reading side of one partition's commit log.

Keeps true:  L2  a read returns whole batches as they were stored, all below the
                 offset that the caller may see.
             T1  last stable offset <= high watermark; every transaction below it is decided.

How: a read finds the segment that holds the offset and returns a slice of its file. Damage and I/O
errors take the log offline: then it refuses reads and appends until it is loaded again.

Leaves: changing the segments (`segmented`) and appending (`log`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

from felice.env import FileSlice
from felice.log import timestamps
from felice.log.answers import TimestampOffset
from felice.log.errors import CorruptLog, LogOffline, is_shortage
from felice.log.files import OpenFiles
from felice.log.opening import LoadedLog
from felice.log.timestamps import BatchSearch, Find
from felice.log.transaction_index import AbortedTransaction
from felice.protocol.errors import ApiError, BrokenInvariant, ErrorCode

_log = logging.getLogger("felice.log")


class ReadableLog:
    """See the module. `on_failure` is called with the log and the error of each failed operation."""

    # A broker has thousands of logs, most of them idle: slots keep them small.
    __slots__ = (
        "_files",
        "_offline",
        "directory",
        "epochs",
        "lacks_room",
        "log_end_offset",
        "log_start_offset",
        "on_failure",
        "partition",
        "producers",
        "segments",
        "topic",
        "topic_id",
    )

    def __init__(
        self, files: OpenFiles, directory: Path, topic_partition: tuple[str, int], loaded: LoadedLog
    ) -> None:
        self.topic, self.partition = topic_partition
        self.topic_id = loaded.topic_id
        self.directory = directory
        self.epochs = loaded.epochs
        self.producers = loaded.producers
        self.segments = loaded.segments
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.segments.end_offset
        self.on_failure: Callable[[ReadableLog, Exception], None] | None = None
        # Whether the log is offline only because the disk had no room, or no descriptor was free. Its files can be
        # loaded again.
        self.lacks_room = False
        self._files = files
        self._offline: str | None = None

    @property
    def name(self) -> str:
        """The partition's name, `topic-partition`, as its directory is called."""
        return f"{self.topic}-{self.partition}"

    @property
    def size_bytes(self) -> int:
        """Size of all segments without their indexes."""
        return sum(segment.size_bytes for segment in self.segments)

    @property
    def offline_reason(self) -> str | None:
        """Why the log refuses appends and reads; None while it is online."""
        return self._offline

    # -- going offline ---------------------------------------------------------------------------------

    def _fail(self, error: Exception) -> LogOffline:
        """Takes the log offline, because the state of its files is unknown now."""
        if self._offline is None:
            self._offline = f"partition {self.name} is offline: {error}"
            self.lacks_room = isinstance(error, OSError) and is_shortage(error)
            if self.on_failure is not None:
                self.on_failure(self, error)
        return LogOffline(self._offline)

    def broken(self, name: str, what: str, **facts: object) -> BrokenInvariant:
        """Takes the log offline until the broker restarts, because an invariant is broken. Returns the error."""
        error = BrokenInvariant(name, what, **facts)
        self._fail(error)
        return error

    def take_offline(self, reason: str) -> None:
        """Refuses appends and reads from now on, because the log was closed or its log directory failed."""
        if self._offline is None:
            self._offline = f"partition {self.name} is offline: {reason}"

    def _check_online(self) -> None:
        if self._offline is not None:
            raise LogOffline(self._offline)

    # -- reading ---------------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, *, end_offset: int, min_one: bool = True) -> FileSlice | None:
        """Returns whole batches, starting with the one that holds `offset`, all below `end_offset`; None if none.

        With `min_one` the first batch is returned even if it is larger than `max_bytes` (KIP-74).
        """
        self._check_online()
        if offset < self.log_start_offset or offset > self.log_end_offset:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.name} holds offsets {self.log_start_offset} to {self.log_end_offset}, not {offset}",
            )
        if offset >= end_offset:
            return None
        try:
            segment = self.segments.holding(offset)
            return segment.read(offset, max_bytes, end_offset=end_offset, min_one=min_one)
        except CorruptLog as error:
            self._fail(error)
            raise
        except OSError as error:
            raise self._read_failed(error) from error

    def _read_failed(self, error: OSError) -> LogOffline:
        """A read changes nothing, so a read that found no free descriptor fails alone; the log stays online."""
        if is_shortage(error):
            return LogOffline(f"{self.name} cannot be read at the moment: {error}")
        return self._fail(error)

    def read_bytes(self, offset: int, max_bytes: int, *, end_offset: int, min_one: bool = True) -> bytes:
        """Same as `read`, but copies the bytes; empty if there is no batch."""
        found = self.read(offset, max_bytes, end_offset=end_offset, min_one=min_one)
        return found.read() if found is not None else b""

    def offset_for_timestamp(
        self, timestamp: int, *, end_offset: int, find: Find = BatchSearch.find
    ) -> TimestampOffset | None:
        """Returns the first record at or after `timestamp`, in offset order; None if none is below `end_offset`."""
        return self._found_below(
            end_offset, lambda: timestamps.first_since(self.segments, timestamp, self.log_start_offset, find)
        )

    def offset_of_max_timestamp(
        self, end_offset: int, find: Find = BatchSearch.find
    ) -> TimestampOffset | None:
        """Returns the first record with the log's largest timestamp; None if it is not below `end_offset`."""
        return self._found_below(
            end_offset, lambda: timestamps.first_largest(self.segments, self.log_start_offset, find)
        )

    def _found_below(
        self, end_offset: int, find: Callable[[], TimestampOffset | None]
    ) -> TimestampOffset | None:
        self._check_online()
        try:
            found = find()
        except CorruptLog as error:
            self._fail(error)
            raise
        except OSError as error:
            raise self._read_failed(error) from error
        return found if found is not None and found.offset < end_offset else None

    # -- transactions ----------------------------------------------------------------------------------

    def last_stable_offset(self, high_watermark: int) -> int:
        """T1: every transaction with records below this offset is decided for a read_committed consumer."""
        first_unstable = self.producers.first_unstable_offset(high_watermark)
        if first_unstable is None:
            return high_watermark
        return min(high_watermark, max(first_unstable, self.log_start_offset))

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Aborted transactions with records in `start_offset..end_offset`, ordered by first offset."""
        try:
            found = list(self._aborted_between(start_offset, end_offset))
        except OSError as error:
            raise self._read_failed(error) from error
        return sorted(found, key=lambda aborted: aborted.first_offset)

    def _aborted_between(self, start_offset: int, end_offset: int) -> Iterator[AbortedTransaction]:
        for segment in self.segments.since(start_offset):
            for aborted in segment.transaction_index.entries():
                if aborted.last_offset >= start_offset and aborted.first_offset < end_offset:
                    yield aborted
                if aborted.last_stable_offset >= end_offset:
                    return
