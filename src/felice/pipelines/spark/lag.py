"""How far a stream is behind its topics: committed to a consumer group, and computed from Spark's progress.

Keeps true: an offset is committed to the group only when the batch that ends there is done. The group is for
            operators and tools: the query reads from its checkpoint and ignores the group, and a failed commit does
            not stop the query.
How:        Spark asks for the next batch's end with the end of the last batch that is done, so that is when the
            reader commits the offsets. The group's name contains the query's id, which Spark passes to tasks but not
            to the reader. So a task of the first batch commits its start offset with the reader's mark, and the
            reader finds the group by this mark.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Literal, Protocol

from felice.client.blocking import BlockingClient
from felice.client.blocking.coordinators import BlockingCoordinators
from felice.client.error import KafkaException
from felice.client.group.requests import CommittedOffset
from felice.dataclass import dataclass
from felice.pipelines.spark.offsets import Offsets, Partition, from_checkpoint
from felice.pipelines.spark.options import SourceOptions

log = logging.getLogger(__name__)

PATIENCE_MS = 3_000
PAUSE_AFTER_FAILURE_S = 10.0
SINK_SUFFIX = "-sink"


class GroupOffsets:
    """The group of one reader, in the driver. `find_group` may not know it yet."""

    def __init__(
        self,
        coordinators: BlockingCoordinators,
        find_group: Callable[[], str | None],
        monotonic: Callable[[], float] = time.monotonic,
        close: Callable[[], None] = lambda: None,
    ) -> None:
        self.close = close
        self._coordinators = coordinators
        self._find_group = find_group
        self._monotonic = monotonic
        self._group: str | None = None
        self._told: Offsets = {}
        self._quiet_until = float("-inf")

    @property
    def is_known(self) -> bool:
        """Whether the group's name has been found."""
        return self._group is not None

    def done(self, offsets: Offsets) -> None:
        """Commits the offsets, because all records before them are processed."""
        if offsets == self._told or self._monotonic() < self._quiet_until:
            return
        try:
            self._group = self._group or self._find_group()
            if self._group is not None:
                rows = {key: CommittedOffset(offset) for key, offset in offsets.items()}
                self._coordinators.commit_offsets(self._group, rows)
                self._told = dict(offsets)
        except KafkaException as error:
            self._quiet_until = self._monotonic() + PAUSE_AFTER_FAILURE_S
            log.warning(
                "the offsets of the query were not committed to group %s: %s", self._group, error.error.str()
            )


@dataclass(frozen=True, slots=True)
class Announcement:
    """What a task commits to the query's group: the batch's start in one partition, with the reader's mark."""

    mark: str
    key: Partition
    start: int

    def make(self, options: SourceOptions, query_id: str) -> None:
        """Commits the start offset to the query's group. An error is logged, and the task continues."""
        row = CommittedOffset(self.start, metadata=self.mark)
        group = f"{options.group_prefix}-{query_id}"
        with BlockingClient(options.client, retry_timeout_ms=PATIENCE_MS) as client:
            try:
                BlockingCoordinators(client).commit_offsets(group, {self.key: row})
            except KafkaException as error:
                log.warning(
                    "the offsets of the query were not committed to group %s: %s", group, error.error.str()
                )


def find_marked(coordinators: BlockingCoordinators, prefix: str, mark: str) -> str | None:
    """Returns the group in which a task committed the mark; None if there is none yet."""
    for group in coordinators.list_groups(f"{prefix}-"):
        if group.endswith(SINK_SUFFIX):
            continue
        if any(row.metadata == mark for row in coordinators.committed(group).values()):
            return group
    return None


def open_group(options: SourceOptions, mark: str) -> GroupOffsets:
    """Returns the group to which the query commits its progress; `mark` finds it if the group's name is not known."""
    client = BlockingClient(options.client, retry_timeout_ms=PATIENCE_MS)
    coordinators = BlockingCoordinators(client)

    def find() -> str | None:
        return options.group_id or find_marked(coordinators, options.group_prefix, mark)

    return GroupOffsets(coordinators, find, close=client.close)


class Progress(Protocol):
    """A progress report of Spark, as a dictionary."""

    def __getitem__(self, key: Literal["sources"], /) -> Iterable[Mapping[str, object]]:
        """The reports of the query's sources."""
        ...


def offsets_behind(progress: Progress) -> dict[str, float]:
    """Computes the lag metrics of Spark's own Kafka source from a query's progress, for all its `felice` sources.

    `minOffsetsBehindLatest`, `maxOffsetsBehindLatest` and `avgOffsetsBehindLatest` are of partitions,
    `offsetsBehindLatest` is their sum. The result is empty until a source has reported an end offset.
    """
    behind = [
        max(0, latest - done.get(key, 0))
        for source in progress["sources"]
        if (ends := _offsets(source["latestOffset"])) and (done := _offsets(source["endOffset"])) is not None
        for key, latest in ends.items()
    ]
    if not behind:
        return {}
    return {
        "minOffsetsBehindLatest": min(behind),
        "maxOffsetsBehindLatest": max(behind),
        "avgOffsetsBehindLatest": sum(behind) / len(behind),
        "offsetsBehindLatest": sum(behind),
    }


def _offsets(document: object) -> Offsets | None:
    """Parses the offsets of a source in the format of this package; None for those of another source."""
    try:
        if isinstance(document, str):
            document = json.loads(document)
        return None if document is None else from_checkpoint(document)
    except ValueError:
        return None
