"""The logs in which Spark keeps the offsets of a query's batches: `offsets/N` and `commits/N` of a checkpoint.

A file of offsets has a line with a version, a line of metadata, and a line for each source; `-` stands for a source
that has no offset yet.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from felice.pipelines.streams.on_spark.directory import CheckpointError, last_number, write_durably

_LINES_BEFORE = 2
NO_OFFSET = "-"


class SparkLogs(NamedTuple):
    """The logs of one checkpoint."""

    checkpoint: Path

    def last_done_offsets(self, source: int) -> str | None:
        """Where the last finished batch ended in a source; None before the first batch."""
        done = last_number(self.checkpoint / "commits")
        if done < 0:
            return None
        offset = self._lines(done)[_LINES_BEFORE + source]
        return None if offset == NO_OFFSET else offset

    def planned_offsets(self, number: int) -> str | None:
        """Where a batch ends in the first source; None if Spark has not planned it, or no longer knows it."""
        if not self._path(number).exists():
            return None
        offset = self._lines(number)[_LINES_BEFORE]
        return None if offset == NO_OFFSET else offset

    def keep_topics(self, is_read: Callable[[str], bool]) -> None:
        """Remove the offsets of other topics from those of the first source. A later version of the program
        that reads such a topic again begins at the topic's `start`, and not at these offsets.
        """
        for number in self._last_two():
            lines = self._lines(number)
            if lines[_LINES_BEFORE] == NO_OFFSET:
                continue
            offsets = json.loads(lines[_LINES_BEFORE])
            kept = {topic: at for topic, at in offsets.items() if is_read(topic)}
            if kept != offsets:
                lines[_LINES_BEFORE] = json.dumps(kept)
                self._write(number, lines)

    def set_sources(self, wanted: int) -> None:
        """Make the logs those of a query with another number of sources: the last one has come, or is gone.

        Spark refuses to continue with another number. Only the last two batches matter to it.
        """
        for number in self._last_two():
            lines = self._lines(number)
            sources = len(lines) - _LINES_BEFORE
            if abs(sources - wanted) > 1:
                raise CheckpointError(
                    f"{self._path(number)} has the offsets of {sources} sources, and the application has {wanted}; use "
                    "another checkpoint"
                )
            if sources != wanted:
                self._write(number, [*lines, NO_OFFSET] if sources < wanted else lines[:-1])

    def _last_two(self) -> list[int]:
        planned = last_number(self.checkpoint / "offsets")
        return [number for number in range(max(0, planned - 1), planned + 1) if self._path(number).exists()]

    def _write(self, number: int, lines: Sequence[str]) -> None:
        path = self._path(number)
        # Hadoop's checksum of the file would no longer be right.
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
        write_durably(path, "\n".join(lines))

    def _lines(self, number: int) -> list[str]:
        return self._path(number).read_text().splitlines()

    def _path(self, number: int) -> Path:
        return self.checkpoint / "offsets" / str(number)
