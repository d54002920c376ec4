"""What the embedded store writes: the bodies of the frames (`frames.py`) of a journal and of a snapshot. Pure.

Journal body:   int64 zxid, uint32 count, then per change: uint8 kind, int64 owner,
                uint16 + path, uint32 + data.
Snapshot body:  int64 zxid, uint32 count, then per node: uint16 + path, uint32 + data,
                int32 version, int64 created zxid, int64 modified zxid, int64 owner, int64 births.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from felice.metadata.store import EventKind, Node
from felice.metadata.tree import Change

_HEAD = struct.Struct(">qI")
_CHANGE = struct.Struct(">BqH")
_LENGTH = struct.Struct(">I")
_PATH = struct.Struct(">H")
_STAT = struct.Struct(">iqqqq")
_KINDS = (EventKind.CREATED, EventKind.CHANGED, EventKind.DELETED)


def encode_changes(zxid: int, changes: Sequence[Change]) -> bytes:
    """The body of a journal frame for the write `zxid`."""
    parts = [_HEAD.pack(zxid, len(changes))]
    for change in changes:
        path = change.path.encode()
        parts += (
            _CHANGE.pack(_KINDS.index(change.kind), change.owner, len(path)),
            path,
            _LENGTH.pack(len(change.data)),
            change.data,
        )
    return b"".join(parts)


def decode_changes(body: bytes) -> tuple[int, list[Change]]:
    """The zxid and the changes of a journal frame's body."""
    zxid, count = _HEAD.unpack_from(body)
    position = _HEAD.size
    changes = []
    for _ in range(count):
        kind, owner, path_size = _CHANGE.unpack_from(body, position)
        position += _CHANGE.size
        path = body[position : position + path_size].decode()
        data, position = _read_data(body, position + path_size)
        changes.append(Change(_KINDS[kind], path, data, owner))
    return zxid, changes


def encode_snapshot(zxid: int, nodes: Sequence[tuple[str, Node, int]]) -> bytes:
    """The body of a snapshot of the tree after the write `zxid`.

    Each node comes with its path and the number of children that it ever had.
    """
    parts = [_HEAD.pack(zxid, len(nodes))]
    for path, node, births in nodes:
        name = path.encode()
        stat = (node.version, node.created_zxid, node.modified_zxid, node.ephemeral_owner, births)
        parts += (_PATH.pack(len(name)), name, _LENGTH.pack(len(node.data)), node.data, _STAT.pack(*stat))
    return b"".join(parts)


def decode_snapshot(body: bytes) -> tuple[int, list[tuple[str, Node, int]]]:
    """The zxid and the nodes of a snapshot's body, as they were given to `encode_snapshot`."""
    zxid, count = _HEAD.unpack_from(body)
    position = _HEAD.size
    nodes = []
    for _ in range(count):
        (path_size,) = _PATH.unpack_from(body, position)
        position += _PATH.size
        path = body[position : position + path_size].decode()
        data, position = _read_data(body, position + path_size)
        version, created, modified, owner, births = _STAT.unpack_from(body, position)
        position += _STAT.size
        nodes.append((path, Node(data, version, created, modified, owner), births))
    return zxid, nodes


def _read_data(body: bytes, position: int) -> tuple[bytes, int]:
    (size,) = _LENGTH.unpack_from(body, position)
    start = position + _LENGTH.size
    return body[start : start + size], start + size
