"""The two requests of ZooKeeper 3.6 that kazoo lacks: recursive watches, and many reads in one request.

They have the interface of kazoo's own requests (`type`, `serialize`, `deserialize`), so its connection sends them.
A result of `MultiRead` is as kazoo returns it, or the exception of that one read.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import ClassVar, Protocol

from kazoo.exceptions import EXCEPTIONS
from kazoo.protocol.serialization import (
    GetChildren,
    GetData,
    MultiHeader,
    int_struct,
    read_buffer,
    read_string,
    stat_struct,
    write_string,
)
from kazoo.protocol.states import ZnodeStat

from felice.dataclass import dataclass

_ERROR = -1


class WatchMode(IntEnum):
    """The kinds of watch of ZooKeeper's AddWatch request that Felice uses."""

    PERSISTENT_RECURSIVE = 1


class Request(Protocol):
    """A request, one of kazoo's or one of this module's. `type` is None for the request that begins a session."""

    @property
    def type(self) -> int | None:
        """The operation's number in ZooKeeper's protocol."""
        ...

    def serialize(self) -> bytes:
        """The request's body."""
        ...


@dataclass(frozen=True, slots=True)
class AddWatch:
    """Watches a path and everything below it, until the connection ends."""

    path: str
    mode: WatchMode = WatchMode.PERSISTENT_RECURSIVE

    type: ClassVar[int] = 106

    def serialize(self) -> bytes:
        """The request's body."""
        return bytes(write_string(self.path) + int_struct.pack(self.mode))

    @classmethod
    def deserialize(cls, data: bytes, offset: int) -> None:
        """The answer's body is empty."""
        # An empty answer confirms the watch.
        return


@dataclass(frozen=True, slots=True)
class MultiRead:
    """Reads, `GetData` and `GetChildren` without watchers, in one request."""

    reads: Sequence[Request]

    type: ClassVar[int] = 22

    def serialize(self) -> bytes:
        """The request's body: the reads one after the other, each with a header, and a header that ends the list."""
        body = bytearray()
        for read in self.reads:
            body += MultiHeader(read.type, False, -1).serialize() + read.serialize()
        return bytes(body + MultiHeader(-1, True, -1).serialize())

    @classmethod
    def deserialize(cls, data: bytes, offset: int) -> list[object]:
        """The result of each read, or the exception that refused it."""
        results: list[object] = []
        header, offset = MultiHeader.deserialize(data, offset)
        while not header.done:
            result, offset = _result(header.type, data, offset)
            results.append(result)
            header, offset = MultiHeader.deserialize(data, offset)
        return results


def _result(kind: int, data: bytes, offset: int) -> tuple[object, int]:
    if kind == GetData.type:
        value, offset = read_buffer(data, offset)
        return (value, ZnodeStat._make(stat_struct.unpack_from(data, offset))), offset + stat_struct.size
    if kind == GetChildren.type:
        names = []
        [count] = int_struct.unpack_from(data, offset)
        offset += int_struct.size
        for _ in range(count):
            name, offset = read_string(data, offset)
            names.append(name)
        return names, offset
    assert kind == _ERROR, f"result of kind {kind} in an answer to reads"
    [code] = int_struct.unpack_from(data, offset)
    return EXCEPTIONS[code](), offset + int_struct.size
