"""Encodes and decodes messages.

Keeps true:  decoding consumes exactly the bytes of one message, or raises `MalformedMessage` that names the
             message, the field and the position. Decoding what was encoded gives an equal message.
             Nothing but `MalformedMessage` comes out of decoding any bytes.
How:         compiled tables (`kernels`) read and write ordinary messages. The plain codec does the rest, including
             everything malformed: the first use of a message in a version compiles its reader or writer (`decoder`,
             `encoder`), and later uses find it in a dictionary. Error texts are derived from the failing line only if
             an error occurs.
Leaves:      sizes, correlation ids and headers to `frames`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NoReturn, TypeAlias, TypeVar

from felice.protocol import kernels
from felice.protocol.decoder import compile_decoder
from felice.protocol.encoder import compile_element_encoder, compile_encoder
from felice.protocol.primitives import (
    Buffer,
    Encoded,
    Fault,
    MalformedMessage,
    OversizedMessage,
    SizedSource,
    TooManyElements,
    UnencodableMessage,
    size_of,
)
from felice.protocol.schema import schema_of
from felice.protocol.source import Compiled

M = TypeVar("M")
Part: TypeAlias = Buffer | SizedSource

ANY_NUMBER = 2**62
"""No limit on the elements of a message: for messages from a broker that the client chose, or from this disk."""

_tables: dict[tuple[type, int], kernels.Table | None] = {}
_SIZE = struct.Struct(">i")
_decoders: dict[tuple[type, int], Compiled] = {}
_encoders: dict[tuple[type, int], Compiled] = {}
_element_encoders: dict[tuple[type, type, int], Compiled] = {}


def decode(cls: type[M], buffer: Buffer, version: int, position: int = 0) -> M:
    """Read the message that fills `buffer` from `position` to its end.

    Raises `MalformedMessage`, also if bytes are left over, and `ValueError` for a version that the class does not have.
    """
    message, end = decode_prefix(cls, buffer, version, position)
    if end != len(buffer):
        raise MalformedMessage(_label(cls, version), "end", end, f"{len(buffer) - end} bytes left over")
    return message


def decode_prefix(
    cls: type[M], buffer: Buffer, version: int, position: int = 0, max_elements: int = ANY_NUMBER
) -> tuple[M, int]:
    """Read the message at `position`; return it and the position after it.

    Raises `MalformedMessage`; its subclass `OversizedMessage` as soon as the message announces more than `max_elements`
    elements.
    """
    key = cls, version
    table = _tables[key] if key in _tables else _table(cls, version)
    if table is not None and (read := table.read(buffer, position, max_elements)) is not None:
        return read
    return decode_plain(cls, buffer, version, position, max_elements)


def decode_plain(
    cls: type[M], buffer: Buffer, version: int, position: int, max_elements: int
) -> tuple[M, int]:
    """As `decode_prefix`, without the compiled table."""
    compiled = _decoders.get((cls, version)) or _decoder(cls, version)
    try:
        found: tuple[M, int] = compiled.call(buffer, position, len(buffer), max_elements)
        return found
    except (Fault, struct.error, IndexError, UnicodeDecodeError) as error:
        _explain_decode(cls, version, compiled, error, len(buffer))


def encode(message: object, version: int) -> bytes:
    """Return the bytes of `message`. Records in files are read. Raises `UnencodableMessage`."""
    return join_parts(encode_parts(message, version))


def encode_element(element: object, message: type, version: int) -> Encoded:
    """The bytes of a struct, for an array of `message` that is declared with `may_be_encoded`."""
    key = type(element), message, version
    compiled = _element_encoders.get(key)
    if compiled is None:
        _check_version(message, version)
        compiled = _element_encoders.setdefault(key, compile_element_encoder(*key))
    parts: list[Part] = []
    try:
        compiled.call(element, bytearray(), parts)
    except (Fault, struct.error, TypeError, AttributeError, UnicodeEncodeError) as error:
        _explain_encode(type(element), version, compiled, error)
    return Encoded(*key, join_parts(parts))


def encode_parts(message: object, version: int, head: bytes = b"") -> list[Part]:
    """Return `head` and `message` as parts. Records in files are parts of their own and are not read.

    Raises `UnencodableMessage`.
    """
    key = type(message), version
    table = _tables[key] if key in _tables else _table(*key)
    if table is not None and (written := table.write(message, head)) is not None:
        return written
    return encode_plain(message, version, head)


def encode_frame(message: object, version: int, head: bytes) -> list[Part]:
    """As `encode_parts`, for a `head` whose first four bytes become the size of all that follows them."""
    key = type(message), version
    table = _tables[key] if key in _tables else _table(*key)
    if table is not None and (written := table.write(message, head, True)) is not None:
        return written
    return _sized(encode_plain(message, version, head))


def encode_plain(message: object, version: int, head: bytes = b"") -> list[Part]:
    """As `encode_parts`, without the compiled table."""
    cls = type(message)
    compiled = _encoders.get((cls, version)) or _encoder(cls, version)
    parts: list[Part] = []
    try:
        compiled.call(message, bytearray(head), parts)
    except (Fault, struct.error, TypeError, AttributeError, UnicodeEncodeError) as error:
        _explain_encode(cls, version, compiled, error)
    return parts


def join_parts(parts: Sequence[Part]) -> bytes:
    """Concatenate all parts."""
    if len(parts) == 1 and isinstance(parts[0], bytearray):
        return bytes(parts[0])
    return b"".join(part.read() if isinstance(part, SizedSource) else part for part in parts)


def parts_size(parts: Sequence[Part]) -> int:
    """Return the size of all parts together in bytes."""
    return sum(map(size_of, parts))


def _sized(parts: list[Part]) -> list[Part]:
    first = parts[0]
    assert isinstance(first, bytearray)
    size = len(first) if len(parts) == 1 else parts_size(parts)
    _SIZE.pack_into(first, 0, size - _SIZE.size)
    return parts


def encode_data(message: object, version: int = 0) -> bytes:
    """Return two bytes and the message: its version or, if it is the key of a record, its record type."""
    schema = schema_of(type(message))
    lead = schema.api_key if schema.kind == "key" else version
    return join_parts(encode_parts(message, version, struct.pack(">h", lead)))


def decode_data(cls: type[M], buffer: Buffer) -> M:
    """Decode the result of `encode_data`.

    As Kafka requires for data between consumers, data of an unknown newer version is decoded as the newest known
    version, and further bytes are ignored. Raises `MalformedMessage`.
    """
    schema = schema_of(cls)
    lead = data_version(buffer, schema.name)
    if schema.kind == "key":
        if lead != schema.api_key:
            raise MalformedMessage(schema.name, "type", 0, f"expected type {schema.api_key}, got {lead}")
        return decode(cls, buffer, 0, 2)
    if schema.kind == "data" and lead > schema.versions.max:
        return decode_prefix(cls, buffer, schema.versions.max, 2)[0]
    if lead not in schema.versions:
        raise MalformedMessage(schema.name, "version", 0, f"expected {schema.versions}, got {lead}")
    return decode(cls, buffer, lead, 2)


def data_version(buffer: Buffer, name: str = "data") -> int:
    """Return the leading number: a version, or in a record's key the type of the record."""
    if len(buffer) < 2:
        raise MalformedMessage(name, "version", 0, f"expected 2 bytes, got {len(buffer)}")
    return int.from_bytes(buffer[:2], "big", signed=True)


def _label(cls: type, version: int) -> str:
    return f"{schema_of(cls).name} v{version}"


def _check_version(cls: type, version: int) -> None:
    schema = schema_of(cls)
    if version not in schema.versions:
        raise ValueError(f"{schema.name} has versions {schema.versions}, not {version}")


def _table(cls: type, version: int) -> kernels.Table | None:
    _check_version(cls, version)
    return _tables.setdefault((cls, version), kernels.table(cls, version))


def _decoder(cls: type, version: int) -> Compiled:
    _check_version(cls, version)
    return _decoders.setdefault((cls, version), compile_decoder(cls, version))


def _encoder(cls: type, version: int) -> Compiled:
    _check_version(cls, version)
    return _encoders.setdefault((cls, version), compile_encoder(cls, version))


def _explain_decode(cls: type, version: int, compiled: Compiled, error: Exception, end: int) -> NoReturn:
    fields, local = compiled.fields_at(error.__traceback__)
    position = local.get("pos", 0)
    assert isinstance(position, int)
    name = fields[0][0] if fields else "message"
    reason = str(error)
    if isinstance(error, TooManyElements):
        where = _label(cls, version), name or "message", position
        raise OversizedMessage(*where, reason, error.elements) from None
    if isinstance(error, UnicodeDecodeError):
        reason = "not UTF-8"
    elif not isinstance(error, Fault):
        for name, width in fields:  # noqa: B007  the error names the first field that does not fit
            if position + width > end:
                break
            position += width
        reason = "ends too early"
    raise MalformedMessage(_label(cls, version), name or "message", position, reason) from None


def _explain_encode(cls: type, version: int, compiled: Compiled, error: Exception) -> NoReturn:
    fields, _ = compiled.fields_at(error.__traceback__)
    names = ", ".join(dict.fromkeys(path for path, _ in fields if path)) or "message"
    raise UnencodableMessage(_label(cls, version), names, _reason(error)) from None


def _reason(error: Exception) -> str:
    if isinstance(error, Fault):
        return str(error)
    return f"a value of the wrong type or range ({error})"
