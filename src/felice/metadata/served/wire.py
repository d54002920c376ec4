"""The protocol between the server of a store and its clients: JSON in frames. Pure but for reading and writing.

A frame is four bytes of length, big-endian, and as many bytes of JSON: one list.

    to the server     [number, "multi", [operation, ...]]   [number, "get", [path, ...]]
                      [number, "children", [path, ...]]     [number, "renew"]   [number, "ping"]   [number, "close"]
    from the server   [number, "done", result]              [number, "refused", error]
                      [0, "event", kind, path]              [0, "expired"]
"""

from __future__ import annotations

import base64
import json
import struct
from asyncio import StreamReader, StreamWriter
from collections.abc import Sequence
from typing import Any

from felice.metadata import store
from felice.metadata.store import Check, Create, Delete, Node, Operation, SetData, StoreError

_LENGTH = struct.Struct(">I")
# The largest message is the state of a cluster of some ten thousand partitions.
MAX_FRAME_BYTES = 256 * 1024 * 1024

Message = list[Any]


async def read_message(reader: StreamReader) -> Message:
    """The next message; raises EOFError at the end of the stream."""
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    if length > MAX_FRAME_BYTES:
        raise EOFError(f"a frame of {length} bytes")
    message: Message = json.loads(await reader.readexactly(length))
    return message


def write_message(writer: StreamWriter, message: Message) -> None:
    """Writes a frame. The caller drains the writer."""
    body = json.dumps(message, separators=(",", ":")).encode()
    writer.write(_LENGTH.pack(len(body)) + body)


def encode_operation(operation: Operation) -> Message:
    """An operation as a list that JSON can hold; data is base64."""
    match operation:
        case Create(path, data, ephemeral, sequential):
            return ["create", path, _text(data), ephemeral, sequential]
        case SetData(path, data, version):
            return ["set", path, _text(data), version]
        case Delete(path, version):
            return ["delete", path, version]
        case Check(path, version):
            return ["check", path, version]


def decode_operation(message: Message) -> Operation:
    """The operation in such a list. Raises ValueError for anything else."""
    match message:
        case ["create", path, data, ephemeral, sequential]:
            return Create(path, _bytes(data), ephemeral, sequential)
        case ["set", path, data, version]:
            return SetData(path, _bytes(data), version)
        case ["delete", path, version]:
            return Delete(path, version)
        case ["check", path, version]:
            return Check(path, version)
    raise ValueError(f"{message!r} is no operation")


def encode_nodes(nodes: Sequence[Node | None]) -> list[Any]:
    """Nodes as lists that JSON can hold; null stands for a missing node."""
    return [
        node and [_text(node.data), node.version, node.created_zxid, node.modified_zxid, node.ephemeral_owner]
        for node in nodes
    ]


def decode_nodes(rows: Sequence[Any]) -> list[Node | None]:
    """The nodes in such lists."""
    return [row and Node(_bytes(row[0]), *row[1:]) for row in rows]


def encode_error(error: StoreError) -> Message:
    """Class name, path and text of an error."""
    return [type(error).__name__, error.path, str(error)]


def decode_error(message: Message) -> StoreError:
    """The error as the server's own store would raise it."""
    kind, path, text = message
    error: StoreError = StoreError.__new__(getattr(store, kind, StoreError))
    Exception.__init__(error, text)
    error.path = path
    return error


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text)
