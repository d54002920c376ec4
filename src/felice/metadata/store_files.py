"""The embedded store's two files, `snapshot` and `journal`: read at a start, shown to people, repaired.

Keeps true: no acknowledged write is left out silently. A torn last write is dropped with a warning;
            damage, or writes that are missing between two others, raise `CorruptStore`.
            Reading changes nothing. `repair` first copies the journal that it replaces.
Leaves out: the lock of the directory, which is the caller's.
"""

from __future__ import annotations

import logging
from pathlib import Path

from felice.dataclass import dataclass
from felice.env import Disk
from felice.metadata.frames import Damage, Frame, Reading, TornTail, encode_frame, read_frames
from felice.metadata.journal import decode_changes, decode_snapshot
from felice.metadata.tree import Change, Tree

_log = logging.getLogger("felice.metadata")

JOURNAL = "journal"
SNAPSHOT = "snapshot"


class CorruptStore(Exception):
    """The files of the store are damaged; the message names file and position, and what to do."""


@dataclass(frozen=True, slots=True)
class Contents:
    """What the files hold. `tree` is the snapshot with all whole frames before the tail."""

    snapshot_zxid: int | None
    journal: bytes
    reading: Reading
    tree: Tree


@dataclass(frozen=True, slots=True)
class Repair:
    """What `repair` did: the copy of the old journal, header fields put right, bytes and whole frames cut off."""

    copy: Path | None
    recovered: int
    dropped_bytes: int
    dropped: tuple[Frame, ...]


def load_tree(disk: Disk, directory: Path) -> Tree:
    """The tree that the files hold. Brings the journal to disk once more; raises `CorruptStore`."""
    path = directory / JOURNAL
    contents = read_contents(disk, directory)
    match contents.reading.tail:
        case Damage() as damage:
            raise CorruptStore(_refusal(path, len(contents.journal), damage))
        case TornTail(position, size_bytes):
            _log.warning(
                "the end of the metadata journal was dropped: its last write was not complete",
                extra={"path": str(path), "offset": position, "bytes": size_bytes},
            )
    if contents.journal:
        _write_again(disk, path, contents)
    return contents.tree


def _write_again(disk: Disk, path: Path, contents: Contents) -> None:
    """Writes the whole frames once more and syncs them, before new writes follow.

    If a sync failed in an earlier process, the page cache may hold data that the disk lacks and that no later sync
    would write (`log.failed_sync`).
    """
    whole = contents.reading.frames[-1].end if contents.reading.frames else 0
    journal = disk.open(path)
    journal.truncate(whole)
    journal.pwrite(contents.journal[:whole], 0)
    journal.sync()
    journal.close()


def read_contents(disk: Disk, directory: Path) -> Contents:
    """Both files, without changing them; raises `CorruptStore` where the snapshot is damaged or the journal gone."""
    tree = Tree()
    snapshot_zxid = _load_snapshot(disk, directory / SNAPSHOT, tree)
    journal = _journal_bytes(disk, directory / JOURNAL, snapshot_zxid)
    reading = _without_gaps(read_frames(journal, tree.zxid), tree.zxid)
    for frame in reading.frames:
        if frame.zxid > tree.zxid:
            tree.apply(decode_changes(frame.body)[1])
    return Contents(snapshot_zxid, journal, reading, tree)


def _load_snapshot(disk: Disk, path: Path, tree: Tree) -> int | None:
    if not disk.exists(path):
        return None
    reading = read_frames(disk.read_bytes(path))
    if len(reading.frames) != 1 or reading.tail is not None:
        raise CorruptStore(
            f"{path}: the snapshot is damaged (its checksum does not match); restore the directory from a backup"
        )
    tree.restore(*decode_snapshot(reading.frames[0].body))
    return tree.zxid


def _journal_bytes(disk: Disk, path: Path, snapshot_zxid: int | None) -> bytes:
    if disk.exists(path):
        return disk.read_bytes(path)
    if snapshot_zxid is None:
        return b""
    raise CorruptStore(
        f"{path} is missing beside a snapshot, and with it every write since the snapshot; restore the directory "
        f"from a backup, or create an empty file of that name to go on without them"
    )


def _without_gaps(reading: Reading, zxid: int) -> Reading:
    """The frames up to the first write that is missing: every write has the zxid after the one before."""
    for number, frame in enumerate(reading.frames):
        if frame.zxid > zxid + 1:
            reason = f"the writes {zxid + 1} to {frame.zxid - 1} are missing"
            gap = Damage(frame.start, reason, reading.frames[number:], None)
            return Reading(reading.frames[:number], gap)
        zxid = max(zxid, frame.zxid)
    return reading


def _refusal(path: Path, size_bytes: int, damage: Damage) -> str:
    return (
        f"{path} is damaged at byte {damage.position} of {size_bytes}: {damage.reason}. The broker does not start, so "
        "that no topic is lost; nothing was changed. See what the journal holds with `felice metadata journal show "
        f"{path.parent}`, then repair it with `felice metadata journal repair {path.parent}` or restore a backup"
    )


def changes_of(frame: Frame) -> list[Change]:
    """The changes of the write that a journal frame holds."""
    return decode_changes(frame.body)[1]


def repair(disk: Disk, directory: Path, *, cut: bool) -> Repair:
    """Makes a damaged journal readable, and keeps the old one beside it.

    A frame with a damaged header and a whole body is kept. What cannot be put right is cut off, with all that follows,
    where `cut` allows it; else it raises `CorruptStore` and changes nothing.
    """
    path = directory / JOURNAL
    contents = read_contents(disk, directory)
    old = new = contents.journal
    reading, recovered, dropped_bytes = contents.reading, 0, 0
    dropped: tuple[Frame, ...] = ()
    while isinstance(damage := reading.tail, Damage):
        if damage.recovered is not None:
            whole = damage.recovered
            new = new[: damage.position] + encode_frame(whole.body) + new[whole.end :]
            recovered += 1
        elif cut:
            dropped, dropped_bytes = damage.following, len(new) - damage.position
            new = new[: damage.position]
        else:
            raise CorruptStore(
                f"{path}: the damage at byte {damage.position} cannot be repaired ({damage.reason}); with --cut the "
                f"damaged write and the {len(damage.following)} complete writes behind it are dropped (`felice "
                "metadata journal show` lists them)"
            )
        base = contents.snapshot_zxid or 0
        reading = _without_gaps(read_frames(new, base), base)
    if new == old:
        return Repair(None, 0, 0, ())
    copy = _free_name(disk, path)
    for file, data in ((copy, old), (path, new)):
        disk.write_atomic(file, data)
        disk.restrict(file)
    return Repair(copy, recovered, dropped_bytes, dropped)


def _free_name(disk: Disk, path: Path) -> Path:
    number = 1
    while disk.exists(copy := path.with_name(f"{path.name}.damaged-{number}")):
        number += 1
    return copy
