"""How cleaned segments replace the segments they were made from, even if a crash interrupts the replacement.

Keeps true: whichever file operation a crash interrupts, the log holds either all the old segments of a group or
            the new one, with the indexes that belong to it.

The cleaner writes and syncs the new segment under `.cleaned` names. The swap renames these to `.swap` (its log
last), syncs the directory, renames the old files to `.deleted` (each log last) and then the new ones to their
final names (the log last). So while `N.log.swap` exists, the new segment is whole, and `finish` completes the
swap. Before that, `finish` drops the `.cleaned` and `.swap` files. The names and rules are Kafka's.
The last batch of a new segment ends where the old segments ended, so its file shows which segments it replaces.
"""

from __future__ import annotations

import logging
from pathlib import Path

from felice.log.files import OpenFiles
from felice.log.recovery import verified_batches
from felice.log.segment import CLEANED_SUFFIX, LOG_SUFFIX, SUFFIXES, SWAP_SUFFIX

_log = logging.getLogger("felice.log")


def finish(files: OpenFiles, directory: Path) -> list[str]:
    """Completes or drops what an interrupted cleaner left, before the log is opened. May raise `CorruptLog`.

    Returns the names in the directory afterwards.
    """
    disk = files.disk
    names = disk.listdir(directory)
    cleaned = [name for name in names if name.endswith(CLEANED_SUFFIX)]
    swaps = [name for name in names if name.endswith(SWAP_SUFFIX)]
    if not cleaned and not swaps:
        return names
    # A `.cleaned` file beside `.swap` files means that the renaming was not complete (KAFKA-6264).
    first_invalid = min(map(_base_of, cleaned), default=None)
    for name in [*cleaned, *swaps]:
        if name in cleaned or (first_invalid is not None and _base_of(name) >= first_invalid):
            disk.remove(directory / name)
            swaps = [swap for swap in swaps if swap != name]
    for base_offset in sorted({_base_of(name) for name in swaps}):
        _complete(files, directory, base_offset)
    disk.sync_dir(directory)
    return disk.listdir(directory)


def _base_of(name: str) -> int:
    stem = name.partition(".")[0]
    return int(stem) if stem.isdigit() else 0


def _complete(files: OpenFiles, directory: Path, base_offset: int) -> None:
    disk = files.disk
    log_swap = directory / f"{base_offset:020d}{LOG_SUFFIX}{SWAP_SUFFIX}"
    if disk.exists(log_swap):
        _log.warning("an interrupted swap is completed", extra={"path": str(log_swap)})
        _remove_replaced(files, directory, base_offset, _end_of(files, log_swap, base_offset))
    for suffix in reversed(SUFFIXES):
        path = directory / f"{base_offset:020d}{suffix}"
        if disk.exists(swap := path.with_name(path.name + SWAP_SUFFIX)):
            disk.rename(swap, path)


def _end_of(files: OpenFiles, log_swap: Path, base_offset: int) -> int:
    next_offset = base_offset
    for header in verified_batches(files.get(log_swap), base_offset):
        next_offset = header.next_offset
    files.forget(log_swap)
    return next_offset


def _remove_replaced(files: OpenFiles, directory: Path, base_offset: int, end_offset: int) -> None:
    """Removes the old segments in `base_offset..end_offset`, the log of each last."""
    disk = files.disk
    for name in disk.listdir(directory):
        stem, _, kind = name.partition(".")
        if f".{kind}" != LOG_SUFFIX or not stem.isdigit() or not base_offset <= int(stem) < end_offset:
            continue
        for suffix in reversed(SUFFIXES):
            if disk.exists(path := directory / f"{stem}{suffix}"):
                disk.remove(path)
