"""Names of the directories inside a log directory: partitions, and what was a partition and is set aside.

A partition's directory is `topic-partition`. A deleted or stray replica, and a copy that is not complete yet, are named
`topic-partition.<32 hex digits>-delete`, `-stray` or `-future`, as in Kafka.
"""

from __future__ import annotations

import re
from pathlib import Path

from felice.env import Clock
from felice.protocol.topic_partition import PartitionKey

DELETE_SUFFIX = "-delete"
STRAY_SUFFIX = "-stray"
FUTURE_SUFFIX = "-future"

_PARTITION_NAME = r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>\d+)"
_SET_ASIDE_NAME = r".+\.[0-9a-f]{32}(-delete|-stray|-future)"
_NAME_MAX_LENGTH = 255


def is_set_aside(name: str) -> bool:
    """Whether the name is that of a replica that is no longer, or not yet, a partition of the directory."""
    return re.fullmatch(_SET_ASIDE_NAME, name) is not None


def partition_of(name: str) -> PartitionKey | None:
    """The topic and the partition that a directory belongs to; None if it is not a partition's."""
    match = re.fullmatch(_PARTITION_NAME, name)
    return (match["topic"], int(match["partition"])) if match else None


def copied_partition_of(name: str) -> PartitionKey:
    """The topic and the partition of a copy (`-future`)."""
    topic, _, partition = name.rpartition(".")[0].rpartition("-")
    return topic, int(partition)


class SetAsideNames:
    """Unique names for replicas that are set aside in one log directory."""

    def __init__(self, log_dir: Path, clock: Clock) -> None:
        self._log_dir = log_dir
        self._clock = clock
        self._count = 0

    def new(self, name: str, suffix: str) -> Path:
        """A path that was not given out before. The beginning of a very long partition name is kept, not its end."""
        self._count += 1
        unique = f"{self._clock.now_ms():016x}{self._count:016x}{suffix}"
        return self._log_dir / f"{name[: _NAME_MAX_LENGTH - len(unique) - 1]}.{unique}"
