"""Names of the directories inside a log directory: partitions, and what was a partition and is set aside.

A partition's directory is `topic-partition`. A deleted or stray replica, and a copy that is not complete yet, are named
`topic-partition.<32 hex digits>-delete`, `-stray` or `-future`, as in Kafka.

Keeps true: a partition has one name, so that no two directories of a log directory are the same partition.
"""

from __future__ import annotations

import re
from pathlib import Path

from felice.env import Clock
from felice.protocol.topic_partition import PartitionKey

DELETE_SUFFIX = "-delete"
STRAY_SUFFIX = "-stray"
FUTURE_SUFFIX = "-future"

_PARTITION_NAME = r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<partition>0|[1-9][0-9]{0,9})"
_SET_ASIDE_NAME = r".+\.[0-9a-f]{32}(-delete|-stray|-future)"
_NAME_MAX_LENGTH = 255
_PARTITION_MAX = 2**31 - 1
# The metadata store of Felice, the index cache of Kafka's tiered storage, and what file systems put there.
OTHERS = frozenset(("metadata", "remote-log-index-cache", "lost+found"))
"""Directories that are often beside partitions."""


def is_set_aside(name: str) -> bool:
    """Whether the name is that of a replica that is no longer, or not yet, a partition of the directory."""
    if re.fullmatch(_SET_ASIDE_NAME, name) is None:
        return False
    # The end of a very long name was cut off. A copy has its whole name: from it the move goes on.
    is_cut = len(name) >= _NAME_MAX_LENGTH and not name.endswith(FUTURE_SUFFIX)
    return is_cut or set_aside_partition_of(name) is not None


def partition_of(name: str) -> PartitionKey | None:
    """The topic and the partition that a directory belongs to; None if it is not a partition's.

    `t-00` and `t-٣` are none: beside `t-0` and `t-3` they would be the same partition once more.
    """
    match = re.fullmatch(_PARTITION_NAME, name)
    if match is None or match["topic"] in (".", "..") or int(match["partition"]) > _PARTITION_MAX:
        return None
    return match["topic"], int(match["partition"])


def set_aside_partition_of(name: str) -> PartitionKey | None:
    """The topic and the partition of a deleted or stray replica; None if the end of its name was cut off."""
    is_whole = len(name) < _NAME_MAX_LENGTH or name.endswith(FUTURE_SUFFIX)
    return partition_of(name.rpartition(".")[0]) if is_whole else None


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
