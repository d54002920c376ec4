"""The topic id of a partition's directory: `partition.metadata`.

Text: `version: 0`, then `topic_id: ` and the id as Kafka writes it, 16 bytes in
base64url without padding. If the id differs from the topic's id, the directory
belongs to a deleted topic of the same name.
"""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

from felice.config import parse_properties
from felice.env import Disk
from felice.log.errors import CorruptLog
from felice.protocol.uuids import format_uuid, parse_uuid

FILE_NAME = "partition.metadata"


def looks_damaged(found: UUID | None, expected: UUID) -> bool:
    """Whether `found` is `expected` with a flipped bit: ids of two topics never differ in only one character."""
    if found is None:
        return False
    pairs = zip(format_uuid(found), format_uuid(expected), strict=True)
    return sum(one != other for one, other in pairs) == 1


def read(disk: Disk, directory: Path) -> UUID | None:
    """The topic id, None if the directory has none. Raises `CorruptLog` if the file is damaged."""
    path = directory / FILE_NAME
    try:
        data = disk.read_bytes(path)
    except FileNotFoundError:
        return None
    if not data.strip(b"\0"):
        # The power failed after the file was created and before the first flush, so it is empty or all zeros. The
        # topic's metadata has the id.
        return None
    try:
        fields = parse_properties(data.decode("ascii"))
        if fields["version"] != "0":
            raise ValueError(f"version {fields['version']} is not 0")
        return parse_uuid(fields["topic_id"])
    except (KeyError, ValueError) as error:
        raise CorruptLog(
            path,
            0,
            f"not a {FILE_NAME} file ({error}); write it again with the lines 'version: 0' and 'topic_id: ID', the id "
            "that `felice topics describe` shows",
        ) from error


def look(disk: Disk, directory: Path) -> UUID | None:
    """The topic id; None if the directory has none, or if it cannot be read."""
    try:
        return read(disk, directory)
    except (CorruptLog, OSError):
        return None


def write(disk: Disk, directory: Path, topic_id: UUID) -> None:
    """Writes the file without a sync: the log's first flush syncs it."""
    file = disk.open(directory / FILE_NAME, create=True)
    try:
        file.truncate(0)
        file.pwrite(f"version: 0\ntopic_id: {format_uuid(topic_id)}".encode("ascii"), 0)
    finally:
        file.close()
