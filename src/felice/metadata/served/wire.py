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
from typing import TypeAlias

from felice.metadata import store
from felice.metadata.store import Check, Create, Delete, Node, Operation, SetData, StoreError

_LENGTH = struct.Struct(">I")
# The largest message is the state of a cluster of some ten thousand partitions.
MAX_FRAME_BYTES = 256 * 1024 * 1024

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
Message: TypeAlias = list[Json]


async def read_message(reader: StreamReader) -> Message:
    """The next message; raises EOFError at the end of the stream."""
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    if length > MAX_FRAME_BYTES:
        raise EOFError(f"a frame of {length} bytes")
    message: Json = json.loads(await reader.readexactly(length))
    if not isinstance(message, list):
        raise ValueError(f"a frame holds {message!r}, not a list")
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


def decode_operation(message: Json) -> Operation:
    """The operation in such a list. Raises ValueError for anything else."""
    match message:
        case ["create", str(path), str(data), bool(ephemeral), bool(sequential)]:
            return Create(path, _bytes(data), ephemeral, sequential)
        case ["set", str(path), str(data), int(version)]:
            return SetData(path, _bytes(data), version)
        case ["delete", str(path), int(version)]:
            return Delete(path, version)
        case ["check", str(path), int(version)]:
            return Check(path, version)
    raise ValueError(f"{message!r} is no operation")


def encode_nodes(nodes: Sequence[Node | None]) -> list[Json]:
    """Nodes as lists that JSON can hold; null stands for a missing node."""
    return [None if node is None else _encode_node(node) for node in nodes]


def _encode_node(node: Node) -> Json:
    return [_text(node.data), node.version, node.created_zxid, node.modified_zxid, node.ephemeral_owner]


def decode_nodes(rows: Json) -> list[Node | None]:
    """The nodes in such lists."""
    assert isinstance(rows, list)
    return [None if row is None else _decode_node(row) for row in rows]


def _decode_node(row: Json) -> Node:
    match row:
        case [str(data), int(version), int(created_zxid), int(modified_zxid), int(owner)]:
            return Node(_bytes(data), version, created_zxid, modified_zxid, owner)
    raise ValueError(f"{row!r} is no node")


def decode_outcomes(rows: Json) -> list[str | int | None]:
    """The results of a `multi`: path, version or nothing for each operation."""
    assert isinstance(rows, list)
    return [row if isinstance(row, str | int) else None for row in rows]


def decode_children(rows: Json) -> list[list[str] | None]:
    """The names of each node's children; None for a missing node."""
    assert isinstance(rows, list)
    return [[str(name) for name in row] if isinstance(row, list) else None for row in rows]


def encode_error(error: StoreError) -> Message:
    """Class name, path and text of an error."""
    return [type(error).__name__, error.path, str(error)]


def decode_error(message: Json) -> StoreError:
    """The error as the server's own store would raise it."""
    match message:
        case [str(kind), str(path), str(text)]:
            pass
        case _:
            raise ValueError(f"{message!r} is no error")
    error: StoreError = StoreError.__new__(getattr(store, kind, StoreError))
    Exception.__init__(error, text)
    error.path = path
    return error


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text)
