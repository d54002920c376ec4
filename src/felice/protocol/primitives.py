"""The basic types of the wire format: varints and uuids, and the errors of decoding and encoding.

Keeps true:  reading never goes past the buffer, and no varint is longer than its type allows.
             Every fault of received bytes raises `MalformedMessage`, with message, field and position.
             Every fault of a message to encode raises `UnencodableMessage`.
The compiled readers and writers of `decoder` and `encoder` inline the one-byte case and call here for the rest.
"""

from __future__ import annotations

import uuid
from functools import lru_cache
from typing import Protocol, TypeAlias, runtime_checkable

Buffer: TypeAlias = bytes | bytearray | memoryview

ZERO_UUID = uuid.UUID(int=0)

_MAX_UVARINT_BYTES = 5


@runtime_checkable
class SizedSource(Protocol):
    """Bytes that are not in memory, such as a slice of a file. Framing needs only their size."""

    @property
    def size_bytes(self) -> int:
        """The number of bytes that `read` returns."""
        ...

    def read(self) -> bytes:
        """All bytes, in memory."""
        ...


class Fault(Exception):
    """An error in compiled code. The codec adds message, field and position."""


class Encoded:
    """The bytes of one struct of an array, encoded before the message around it, for one version of that message."""

    __slots__ = ("cls", "data", "message", "version")

    def __init__(self, cls: type, message: type, version: int, data: bytes) -> None:
        self.cls = cls
        self.message = message
        self.version = version
        self.data = data


class TooManyElements(Fault):
    """A message has more elements than the limit. `elements` counts those read so far."""

    def __init__(self, limit: int, elements: int) -> None:
        super().__init__(f"{elements} elements, at most {limit} are taken")
        self.elements = elements


class MalformedMessage(ValueError):
    """The bytes are not a valid message."""

    def __init__(self, message: str, field: str, position: int, reason: str) -> None:
        super().__init__(f"{message}: {field} at byte {position}: {reason}")
        self.message = message
        self.field = field
        self.position = position
        self.reason = reason


class OversizedMessage(MalformedMessage):
    """A message, valid so far, has more elements than the limit."""

    def __init__(self, message: str, field: str, position: int, reason: str, elements: int) -> None:
        super().__init__(message, field, position, reason)
        self.elements = elements


class UnencodableMessage(ValueError):
    """A message cannot be encoded in the requested version."""

    def __init__(self, message: str, field: str, reason: str) -> None:
        super().__init__(f"{message}: {field}: {reason}")
        self.message = message
        self.field = field
        self.reason = reason


def read_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Return the value and the position after it."""
    byte = buffer[position]
    if byte < 128:
        return byte, position + 1
    return read_uvarint_rest(buffer, position + 1, byte)


def read_uvarint_rest(buffer: Buffer, position: int, first: int) -> tuple[int, int]:
    """Read the rest of a varint of more than one byte, whose first byte was already read."""
    value = first & 0x7F
    for count in range(1, _MAX_UVARINT_BYTES):
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << (7 * count)
        if byte < 128:
            if value > 0xFFFFFFFF:
                raise Fault("varint does not fit 32 bits")
            return value, position
    raise Fault(f"varint longer than {_MAX_UVARINT_BYTES} bytes")


def uvarint(value: int) -> bytes:
    """Encode an unsigned varint."""
    if value < 128:
        return value.to_bytes(1, "big")
    out = bytearray()
    while value > 127:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def skip_tags(buffer: Buffer, position: int, end: int, count: int) -> int:
    """Skip `count` unknown tagged fields. The caller limits their number."""
    for _ in range(count):
        _, position = read_uvarint(buffer, position)
        size, position = read_uvarint(buffer, position)
        if size > end - position:
            raise Fault(f"tagged field of {size} bytes, {end - position} left")
        position += size
    return position


@lru_cache(maxsize=1024)
def uuid_from_bytes(data: bytes) -> uuid.UUID:
    """Return a UUID from a cache: topic ids repeat in every request, and creating a `uuid.UUID` takes a microsecond."""
    return uuid.UUID(bytes=data)


def size_of(value: object) -> int:
    """Return the size in bytes of a value of a `bytes` or `records` field."""
    if isinstance(value, memoryview):
        return value.nbytes
    if isinstance(value, bytes | bytearray):
        return len(value)
    size = getattr(value, "size_bytes", None)
    if not isinstance(size, int):
        raise Fault(f"expected bytes, got {type(value).__name__}")
    return size
