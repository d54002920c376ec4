"""The owner of a log directory: `meta.properties`.

Java properties. Version 1 (KRaft's) has node.id, cluster.id and directory.id.
Version 0 (ZooKeeper's) has broker.id and cluster.id and is accepted unchanged.
"""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

from felice.config import format_properties, parse_properties
from felice.dataclass import dataclass
from felice.env import Disk
from felice.log.errors import LogDirectoryError
from felice.protocol.uuids import format_uuid, parse_uuid

FILE_NAME = "meta.properties"
_NODE_ID_KEYS = {"0": "broker.id", "1": "node.id"}


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """The content of `meta.properties`. Version 0 has no directory id."""

    node_id: int
    cluster_id: str
    directory_id: UUID | None


def read(disk: Disk, directory: Path) -> MetaProperties | None:
    """The content of the file, None if the directory is new. Raises `LogDirectoryError` if it is damaged."""
    path = directory / FILE_NAME
    if not disk.exists(path):
        return None
    try:
        fields = parse_properties(disk.read_bytes(path).decode("utf-8"))
        if (version := fields["version"]) not in _NODE_ID_KEYS:
            raise ValueError(f"version {version} is not 0 or 1")
        node_id = int(fields[_NODE_ID_KEYS[version]])
        directory_id = parse_uuid(fields["directory.id"]) if "directory.id" in fields else None
        return MetaProperties(node_id, fields["cluster.id"], directory_id)
    except (KeyError, ValueError) as error:
        raise LogDirectoryError(
            directory,
            f"has a damaged {FILE_NAME} ({_reason(error)}); restore it, or write it again with the lines version=1, "
            "node.id=N and cluster.id=ID, which the broker's other log directories or `felice cluster` show",
        ) from error


def _reason(error: KeyError | ValueError) -> str:
    return f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)


def write(disk: Disk, directory: Path, meta: MetaProperties) -> None:
    """Writes the file with version 1 and syncs it. Raises OSError."""
    properties = {"version": "1", "node.id": str(meta.node_id), "cluster.id": meta.cluster_id}
    if meta.directory_id is not None:
        properties["directory.id"] = format_uuid(meta.directory_id)
    disk.write_atomic(directory / FILE_NAME, format_properties(properties).encode("utf-8"))


def check(found: MetaProperties, directory: Path, *, node_id: int, cluster_id: str) -> None:
    """Raises `LogDirectoryError` if the directory belongs to another broker or cluster."""
    if found.cluster_id != cluster_id:
        raise LogDirectoryError(
            directory,
            f"belongs to cluster {found.cluster_id}, this broker to cluster {cluster_id}; "
            "choose another log.dirs, or see where zookeeper.connect, with its chroot, leads",
        )
    if found.node_id != node_id:
        raise LogDirectoryError(
            directory,
            f"belongs to node {found.node_id}, this broker is node {node_id}; choose another log.dirs or node.id",
        )
