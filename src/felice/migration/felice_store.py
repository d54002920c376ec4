"""Writes the files of an embedded metadata store, and reads them without changing them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from felice.env import Disk
from felice.metadata.frames import encode_frame
from felice.metadata.journal import encode_snapshot
from felice.metadata.store import EventKind, parent_of
from felice.metadata.store_files import JOURNAL, SNAPSHOT, CorruptStore, read_contents
from felice.metadata.tree import Change, Tree
from felice.migration.errors import MigrationError, explained

STORE_DIRECTORY = "metadata"
_NEW = "metadata.new"


def encode_store(nodes: Mapping[str, bytes]) -> bytes:
    """The snapshot of a store with these nodes and their parents. Pure."""
    tree = Tree()
    wanted = {ancestor: b"" for path in nodes for ancestor in _ancestors(path)} | dict(nodes)
    tree.apply([Change(EventKind.CREATED, path, wanted[path]) for path in sorted(wanted)])
    return encode_frame(encode_snapshot(tree.zxid, list(tree.walk())))


def _ancestors(path: str) -> Iterator[str]:
    while (path := parent_of(path)) != "/":
        yield path


def write(disk: Disk, log_directory: Path, nodes: Mapping[str, bytes]) -> None:
    """Writes the store and gives it its name. Raises OSError."""
    directory = log_directory / _NEW
    disk.mkdir(directory)
    # The nodes hold SCRAM credentials and passwords.
    disk.restrict(directory)
    for name, data in ((SNAPSHOT, encode_store(nodes)), (JOURNAL, b"")):
        disk.write_atomic(directory / name, data)
        disk.restrict(directory / name)
    disk.rename(directory, log_directory / STORE_DIRECTORY)
    disk.sync_dir(log_directory)


def read(disk: Disk, log_directory: Path) -> dict[str, bytes]:
    """The nodes of a store. Raises `MigrationError` if there is none, or if it is damaged."""
    directory = log_directory / STORE_DIRECTORY
    if not any(disk.exists(directory / name) for name in (JOURNAL, SNAPSHOT)):
        raise MigrationError(
            f"{log_directory} has no metadata: name the first of log.dirs of a broker without ZooKeeper first. The "
            "metadata of a broker of a cluster is with ZooKeeper, or with the process that started its brokers"
        )
    with explained(str(directory), CorruptStore, OSError):
        contents = read_contents(disk, directory)
    if contents.reading.tail is not None:
        raise MigrationError(
            f"the metadata journal in {directory} does not end in a whole write; start and stop the broker, or repair "
            f"it with `felice metadata journal repair {directory}`"
        )
    return {path: node.data for path, node, _ in contents.tree.walk() if not node.ephemeral_owner}
