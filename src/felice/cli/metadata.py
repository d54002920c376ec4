"""The files of the metadata store that a broker without ZooKeeper keeps in its first log directory.

`show` and `export` only read, also beside a running broker. `repair` needs the broker to be stopped.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from felice.cli.command_group import CommandGroup
from felice.cli.faults import Fault
from felice.cli.options import json_option
from felice.cli.output import node_row, show_json, show_table

if TYPE_CHECKING:
    from felice.env import Disk
    from felice.metadata.frames import Damage, Frame, TornTail
    from felice.metadata.store_files import Contents, Repair
    from felice.metadata.tree import Change

_MOST_CHANGES_SHOWN = 5

directory_argument = click.argument(
    "directory", type=click.Path(exists=True, file_okay=False, path_type=Path), metavar="DIRECTORY"
)


@click.group(cls=CommandGroup)
def metadata() -> None:
    """Look into the metadata journal of a broker without ZooKeeper, and repair it.

    \b
    felice metadata journal show /var/lib/felice
    felice metadata journal export /var/lib/felice > nodes.json
    felice metadata journal repair /var/lib/felice
    """


@metadata.group(cls=CommandGroup)
def journal() -> None:
    """Show, export and repair the journal. DIRECTORY is the first of log.dirs, or `metadata` in it.

    \b
    felice metadata journal show /var/lib/felice
    felice metadata journal show /var/lib/felice/metadata --json
    """


@journal.command("show")
@directory_argument
@json_option
def show_command(directory: Path, as_json: bool) -> None:
    """Print every write in the journal, also those behind damage; exit code 1 if there is damage.

    \b
    felice metadata journal show /var/lib/felice
    """
    from felice.env import SystemDisk
    from felice.metadata.frames import Damage

    contents = _read(SystemDisk(), _store_directory(directory))
    tail = contents.reading.tail
    if as_json:
        show_json(_facts(contents))
    else:
        _print(contents)
    if isinstance(tail, Damage):
        raise Fault(f"the journal is damaged at byte {tail.position}: {tail.reason}")


@journal.command("export")
@directory_argument
def export_command(directory: Path) -> None:
    """Print the nodes that snapshot and journal hold, as one JSON object; damage ends them.

    The output holds the SCRAM credentials and passwords of the cluster, as the directory does: keep it as safe.

    \b
    felice metadata journal export /var/lib/felice > nodes.json
    """
    from felice.env import SystemDisk

    contents = _read(SystemDisk(), _store_directory(directory))
    nodes = [node_row(path, node) for path, node, _ in contents.tree.walk()]
    show_json({"zxid": contents.tree.zxid, **_tail_facts(contents.reading.tail), "nodes": nodes})


@journal.command("repair")
@directory_argument
@click.option("--cut", is_flag=True, help="Drop what cannot be repaired, with every write behind it.")
@json_option
def repair_command(directory: Path, cut: bool, as_json: bool) -> None:
    """Repair a damaged journal; the old one is kept beside it. The broker must be stopped.

    \b
    felice metadata journal repair /var/lib/felice
    felice metadata journal repair /var/lib/felice --cut
    """
    from felice.env import SystemDisk
    from felice.metadata.store_files import CorruptStore, repair

    store, disk = _store_directory(directory), SystemDisk()
    with _locked(disk, store):
        try:
            done = repair(disk, store, cut=cut)
        except CorruptStore as error:
            raise Fault(str(error)) from error
    if as_json:
        show_json(
            {
                "copy": done.copy,
                "recovered_frames": done.recovered,
                "dropped_bytes": done.dropped_bytes,
                "dropped_frames": [_frame_facts(frame) for frame in done.dropped],
            }
        )
    else:
        _print_repair(done)


def _store_directory(directory: Path) -> Path:
    from felice.metadata.store_files import JOURNAL, SNAPSHOT
    from felice.server.membership.store_sources import STORE_DIRECTORY

    for candidate in (directory, directory / STORE_DIRECTORY):
        if (candidate / JOURNAL).exists() or (candidate / SNAPSHOT).exists():
            return candidate
    raise Fault(
        f"{directory} has no metadata journal: expected the first of log.dirs of a broker without ZooKeeper, or the "
        f"directory {STORE_DIRECTORY} in it"
    )


@contextmanager
def _locked(disk: Disk, store: Path) -> Iterator[None]:
    from felice.env import DiskLocked

    try:
        lock = disk.lock(store / ".lock")
    except DiskLocked:
        raise Fault(f"{store} is in use by a broker; stop it first") from None
    try:
        yield
    finally:
        lock.release()


def _read(disk: Disk, store: Path) -> Contents:
    from felice.metadata.store_files import CorruptStore, read_contents

    try:
        return read_contents(disk, store)
    except CorruptStore as error:
        raise Fault(str(error)) from error


def _facts(contents: Contents) -> dict[str, object]:
    tail = contents.reading.tail
    return {
        "snapshot_zxid": contents.snapshot_zxid,
        "zxid": contents.tree.zxid,
        "size_bytes": len(contents.journal),
        "frames": [_frame_facts(frame) for frame in contents.reading.frames],
        **_tail_facts(tail),
        "frames_behind_damage": [_frame_facts(frame) for frame in _behind(tail)],
    }


def _frame_facts(frame: Frame) -> dict[str, object]:
    from felice.metadata.store_files import changes_of

    return {
        "position": frame.start,
        "size_bytes": frame.end - frame.start,
        "version": frame.version,
        "zxid": frame.zxid,
        "changes": [
            {"kind": _kind(change), "path": change.path, "data": change.data, "owner": change.owner or None}
            for change in changes_of(frame)
        ],
    }


def _tail_facts(tail: TornTail | Damage | None) -> dict[str, object]:
    from felice.metadata.frames import TornTail

    if tail is None:
        return {"torn_tail": None, "damage": None}
    if isinstance(tail, TornTail):
        return {"torn_tail": {"position": tail.position, "size_bytes": tail.size_bytes}, "damage": None}
    recoverable = tail.recovered is not None
    return {
        "torn_tail": None,
        "damage": {"position": tail.position, "reason": tail.reason, "recoverable": recoverable},
    }


def _behind(tail: TornTail | Damage | None) -> tuple[Frame, ...]:
    from felice.metadata.frames import Damage

    return tail.following if isinstance(tail, Damage) else ()


def _print(contents: Contents) -> None:
    from felice.metadata.frames import Damage, TornTail

    nodes = sum(1 for _ in contents.tree.walk())
    snapshot = "none" if contents.snapshot_zxid is None else f"up to zxid {contents.snapshot_zxid}"
    click.echo(f"Snapshot: {snapshot}. Journal: {len(contents.journal)} bytes. Together {nodes} nodes.")
    _print_frames(contents.reading.frames)
    match contents.reading.tail:
        case TornTail(position, size_bytes):
            click.echo(
                f"Byte {position}: {size_bytes} bytes of a write that was not completed; a start drops them."
            )
        case Damage() as damage:
            recoverable = "its changes can be recovered" if damage.recovered else "its changes are lost"
            click.echo(f"Byte {damage.position}: {damage.reason}; {recoverable}.")
            _print_frames(damage.following)


def _print_frames(frames: tuple[Frame, ...]) -> None:
    if frames:
        show_table([_row(frame) for frame in frames])


def _row(frame: Frame) -> dict[str, object]:
    from felice.metadata.store_files import changes_of

    changes = changes_of(frame)
    shown = [f"{_kind(change)} {change.path}" for change in changes[:_MOST_CHANGES_SHOWN]]
    more = len(changes) - len(shown)
    return {
        "byte": frame.start,
        "size": frame.end - frame.start,
        "zxid": frame.zxid,
        "changes": shown + ([f"and {more} more (--json has them)"] if more else []),
    }


def _kind(change: Change) -> str:
    return change.kind.name.lower()


def _print_repair(done: Repair) -> None:
    if done.copy is None:
        click.echo("The journal is not damaged; nothing was changed.")
        return
    click.echo(f"Repaired. Frames recovered: {done.recovered}. The old journal is kept as {done.copy}.")
    if done.dropped_bytes:
        click.echo(f"Dropped: {done.dropped_bytes} bytes, including these complete writes:")
        _print_frames(done.dropped)
