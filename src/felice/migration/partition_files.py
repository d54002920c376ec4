"""The files of a partition's directory: which of them are copied, which are linked, and which are left.

Keeps true: a file that has two names after the copy is never written again under either of them. That holds for the
            log of a segment that is closed and that ends below the recovery point and the high watermark. A recovery
            rewrites nothing below the recovery point, and a follower truncates nothing below the high watermark.
            Retention and compaction only remove or replace names. All other files are copied, indexes too: both sides
            rewrite them in place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

from felice.dataclass import dataclass
from felice.env import Disk, shared_files
from felice.log import epochs, partition_metadata, snapshots
from felice.log.segment import CLEANED_SUFFIX, LOG_SUFFIX, SUFFIXES, SWAP_SUFFIX

_OFFSET_DIGITS = 20
_REPLACEMENTS = (SWAP_SUFFIX, CLEANED_SUFFIX)
_INDEXES = tuple(suffix for suffix in SUFFIXES if suffix != LOG_SUFFIX)


@dataclass(frozen=True, slots=True)
class Taken:
    """A file to take, and whether by a hard link instead of a copy."""

    name: str
    is_linked: bool = False


@dataclass(frozen=True, slots=True)
class Trust:
    """Everything below the recovery point is on disk, and everything below the high watermark is committed."""

    recovery_point: int
    high_watermark: int
    was_clean: bool


def choose(names: Sequence[str], trust: Trust) -> list[Taken]:
    """The files of a partition to take. Pure."""
    bases = base_offsets(names)
    ends = dict(pairwise(bases))
    # An interrupted replacement of segments is completed at the next start, which renames and removes files.
    is_replacing = any(name.endswith(_REPLACEMENTS) for name in names)
    taken = []
    for name in names:
        stem, _, rest = name.partition(".")
        base, suffix = (int(stem), f".{rest}") if _is_offset(stem) else (None, "")
        if base is None:
            if name in (epochs.FILE_NAME, partition_metadata.FILE_NAME):
                taken.append(Taken(name))
        elif suffix == LOG_SUFFIX:
            end = ends.get(base)
            is_final = end is not None and end <= min(trust.recovery_point, trust.high_watermark)
            taken.append(Taken(name, is_linked=is_final and not is_replacing))
        elif suffix in _INDEXES:
            # Above the recovery point a crash leaves indexes that hold zeros, and they are built again.
            if trust.was_clean or ends.get(base, trust.recovery_point + 1) <= trust.recovery_point:
                taken.append(Taken(name))
        elif suffix == snapshots.SUFFIX or suffix.endswith(_REPLACEMENTS):
            taken.append(Taken(name))
    return taken


def base_offsets(names: Sequence[str]) -> list[int]:
    """The base offsets of the segments, ascending."""
    stems = (name.removesuffix(LOG_SUFFIX) for name in names if name.endswith(LOG_SUFFIX))
    return sorted(int(stem) for stem in stems if _is_offset(stem))


def _is_offset(stem: str) -> bool:
    return len(stem) == _OFFSET_DIGITS and stem.isascii() and stem.isdigit()


def take(
    disk: Disk,
    source: Path,
    target: Path,
    files: Sequence[Taken],
    on_bytes: Callable[[int], object],
    *,
    may_link: bool,
) -> tuple[int, int]:
    """Copies and links files into a new directory, on disk when this returns.

    Returns the bytes that were copied, and those that were linked. `on_bytes` hears of the sizes of logs.
    """
    disk.mkdir(target)
    copied_bytes = linked_bytes = 0
    for file in files:
        old, new = source / file.name, target / file.name
        size_bytes = disk.size(old)
        if file.is_linked and may_link and shared_files.link(old, new):
            linked_bytes += size_bytes
        else:
            shared_files.copy(old, new)
            copied_bytes += size_bytes
        if file.name.endswith(LOG_SUFFIX):
            on_bytes(size_bytes)
    disk.sync_dir(target)
    return copied_bytes, linked_bytes
