"""Where a message says which schema it has: before its data, or in a header; pure.

    value = 0, id (4 bytes, big-endian), data                        the usual form
    value = data, with the header `__value_schema_id` = 1, GUID      (16 bytes; `__key_schema_id` for a key)

In Protobuf's messages the message indexes follow the id or GUID: the path of the message's type in its file, as
zigzag varints after their number; one zero byte stands for the path [0].

The functions may be given to serializers (`schema.id.serializer`) and deserializers (`schema.id.deserializer`); an
application may give its own instead.
"""

from __future__ import annotations

import io
import struct
import uuid
from collections.abc import Iterable

from felice.client.schema_registry.model import PROTOBUF
from felice.client.serialization import MessageField, SerializationContext, SerializationError

MAGIC_ID = 0
MAGIC_GUID = 1
HEADERS = {True: "__key_schema_id", False: "__value_schema_id"}
"""The header's name, by whether the data is a key."""

MAX_MESSAGE_INDEXES = 1000
"""The longest path of a Protobuf type. Protobuf itself refuses types that are nested more than 32 deep."""

_ID = struct.Struct(">BI")
_VARINT_BYTES = 10


class SchemaId:
    """The identity of a schema in a message: its id, or its GUID, and Protobuf's message indexes."""

    __slots__ = ("guid", "id", "message_indexes", "schema_type")

    def __init__(
        self,
        schema_type: str,
        schema_id: int | None = None,
        guid: str | None = None,
        message_indexes: list[int] | None = None,
    ) -> None:
        self.schema_type = schema_type
        self.id = schema_id
        self.guid = None if guid is None else uuid.UUID(guid)
        self.message_indexes = message_indexes

    def from_bytes(self, payload: io.BytesIO) -> io.BytesIO:
        """Read the identity, and return the rest. Raises `SerializationError` for bytes without one."""
        magic = payload.read(1)
        if magic == b"\x00":
            (self.id,) = struct.unpack(">I", _exactly(payload, 4))
        elif magic == b"\x01":
            self.guid = uuid.UUID(bytes=_exactly(payload, 16))
        else:
            raise SerializationError(_no_schema(magic))
        if self.schema_type == PROTOBUF:
            self.message_indexes = read_indexes(payload)
        return payload

    def id_to_bytes(self) -> bytes:
        """Return the bytes that stand before the data."""
        if self.id is None:
            raise SerializationError("the schema's id is not known")
        return _ID.pack(MAGIC_ID, self.id) + indexes_to_bytes(self.message_indexes)

    def guid_to_bytes(self) -> bytes:
        """Return the bytes of the header."""
        if self.guid is None:
            raise SerializationError("the schema's GUID is not known: the registry did not return it")
        return bytes((MAGIC_GUID,)) + self.guid.bytes + indexes_to_bytes(self.message_indexes)


def _no_schema(magic: bytes) -> str:
    begin = f"begins with the byte {magic[0]}" if magic else "is empty"
    return f"the data {begin}, and has no schema id: data of a schema registry's serializer begins with 0"


def _exactly(payload: io.BytesIO, size: int) -> bytes:
    found = payload.read(size)
    if len(found) < size:
        raise SerializationError(f"the data ends within its schema id, {size - len(found)} bytes too early")
    return found


def _varint(number: int) -> bytes:
    rest, out = number << 1, bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def indexes_to_bytes(indexes: Iterable[int] | None) -> bytes:
    """The bytes of message indexes; none for None."""
    if indexes is None:
        return b""
    path = list(indexes)
    return b"\x00" if path == [0] else b"".join(map(_varint, [len(path), *path]))


def _read_varint(payload: io.BytesIO) -> int:
    value = 0
    for place in range(_VARINT_BYTES):
        byte = _exactly(payload, 1)[0]
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value >> 1 ^ -(value & 1)
    raise SerializationError("a message index has more than 10 bytes")


def read_indexes(payload: io.BytesIO) -> list[int]:
    """Read the message indexes before Protobuf data. Raises `SerializationError` for bytes without them."""
    size = _read_varint(payload)
    if not 0 <= size <= MAX_MESSAGE_INDEXES:
        raise SerializationError(
            f"the data has {size} message indexes; at most {MAX_MESSAGE_INDEXES} are read"
        )
    return [_read_varint(payload) for _ in range(size)] or [0]


def prefix_schema_id_serializer(
    payload: bytes, ctx: SerializationContext | None, schema_id: SchemaId
) -> bytes:
    """Put the schema's id before the data."""
    return schema_id.id_to_bytes() + payload


def header_schema_id_serializer(
    payload: bytes, ctx: SerializationContext | None, schema_id: SchemaId
) -> bytes:
    """Put the schema's GUID into the message's headers: the list or dict that the application gave to `produce`."""
    if ctx is None:
        raise SerializationError("a schema id in headers needs a SerializationContext")
    name, value = HEADERS[ctx.field == MessageField.KEY], schema_id.guid_to_bytes()
    if isinstance(ctx.headers, list):
        ctx.headers.append((name, value))
    elif isinstance(ctx.headers, dict):
        ctx.headers[name] = value
    else:
        given = type(ctx.headers).__name__
        raise SerializationError(f"a schema id in headers needs the headers as a list or dict, not {given}")
    return payload


def prefix_schema_id_deserializer(
    payload: bytes, ctx: SerializationContext | None, schema_id: SchemaId
) -> io.BytesIO:
    """Read the schema's id before the data, and return the data."""
    return schema_id.from_bytes(io.BytesIO(payload))


def dual_schema_id_deserializer(
    payload: bytes, ctx: SerializationContext | None, schema_id: SchemaId
) -> io.BytesIO:
    """Read the schema's GUID in the headers, otherwise its id before the data, and return the data."""
    header = None if ctx is None else _header(ctx)
    if header is None:
        return schema_id.from_bytes(io.BytesIO(payload))
    schema_id.from_bytes(io.BytesIO(header))
    return io.BytesIO(payload)


def _header(ctx: SerializationContext) -> bytes | None:
    name = HEADERS[ctx.field == MessageField.KEY]
    if isinstance(ctx.headers, dict):
        found: bytes | None = ctx.headers.get(name)
        return found
    if isinstance(ctx.headers, list):
        return next((value for key, value in ctx.headers if key == name), None)
    return None
