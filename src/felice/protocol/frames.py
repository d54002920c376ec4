"""Encodes and decodes the sizes and headers of requests and responses.

Keeps true:  a request header can be read in any version, so that the broker can answer an ApiVersions request of an
             unknown version. The client id keeps its plain 16-bit length in flexible headers too, and
             the response to ApiVersions has header v0 (KIP-511).
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from felice.protocol.api import API, API_VERSIONS_KEY, Api
from felice.protocol.codec import Part, decode, encode_frame, join_parts
from felice.protocol.errors import ErrorCode
from felice.protocol.kernels import request_header
from felice.protocol.primitives import Buffer, Fault, MalformedMessage, read_uvarint, skip_tags

_REQUEST_HEADER = struct.Struct(">hhih")
_REQUEST_FRAME = struct.Struct(">ihhi")
_RESPONSE_FRAME = struct.Struct(">ii")
_NO_TAGS = b"\x00"
_HEADER_TAGS_MAX = 1000
_UNSUPPORTED_VERSION = ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")


class RequestHeader(NamedTuple):
    """The header of a request."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def decode_request_header(frame: Buffer) -> tuple[RequestHeader, int]:
    """Read a header. Return it and the position of the body. Raises `MalformedMessage`.

    For an unknown API or version it reads only the fields that all header versions share, and the position is not that
    of the body.
    """
    api_key, version, correlation_id, client_id, position = request_header(frame) or plain_request_header(
        frame
    )
    # Without `_make`, which is a Python function.
    header = tuple.__new__(RequestHeader, (api_key, version, correlation_id, client_id))
    api = API.by_key.get(api_key)
    if api is not None and version in api.accepted and version in api.flexible:
        if position < len(frame) and frame[position] == 0:
            return header, position + 1  # no tags, from every client that we know
        position = _skip_header_tags(frame, position)
    return header, position


def plain_request_header(frame: Buffer) -> tuple[int, int, int, str | None, int]:
    """The fields of a header without its tags, and the position behind them. As `kernels.request_header`."""
    try:
        api_key, version, correlation_id, length = _REQUEST_HEADER.unpack_from(frame)
    except struct.error:
        raise MalformedMessage("RequestHeader", "header", 0, f"{len(frame)} bytes are too few") from None
    client_id, position = _client_id(frame, length)
    return api_key, version, correlation_id, client_id, position


def _client_id(frame: Buffer, length: int) -> tuple[str | None, int]:
    start = _REQUEST_HEADER.size
    if length == -1:
        return None, start
    if length < 0 or start + length > len(frame):
        reason = f"length {length}, {len(frame) - start} bytes left"
        raise MalformedMessage("RequestHeader", "client_id", start, reason)
    try:
        return str(frame[start : start + length], "utf-8"), start + length
    except UnicodeDecodeError:
        raise MalformedMessage("RequestHeader", "client_id", start, "not UTF-8") from None


def _skip_header_tags(frame: Buffer, position: int, header: str = "RequestHeader") -> int:
    try:
        count, start = read_uvarint(frame, position)
        if count > _HEADER_TAGS_MAX:
            raise Fault(f"{count} tagged fields, at most {_HEADER_TAGS_MAX} are read")
        return skip_tags(frame, start, len(frame), count)
    except Fault as error:
        raise MalformedMessage(header, "tags", position, str(error)) from None
    except IndexError:
        raise MalformedMessage(header, "tags", position, "ends too early") from None


def encode_request(
    api_key: int, version: int, correlation_id: int, client_id: str | None, message: object
) -> bytes:
    """Return the frame of a request: size, header and body. Raises `UnencodableMessage`."""
    return join_parts(encode_request_parts(api_key, version, correlation_id, client_id, message))


def encode_request_parts(
    api_key: int, version: int, correlation_id: int, client_id: str | None, message: object
) -> list[Part]:
    """Return the frame of a request in parts: size, header and body. Records are not copied."""
    raw = b"" if client_id is None else client_id.encode()
    length = struct.pack(">h", -1 if client_id is None else len(raw))
    tags = _NO_TAGS if API.by_key[api_key].is_flexible(version) else b""
    head = _REQUEST_FRAME.pack(0, api_key, version, correlation_id) + length + raw + tags
    return encode_frame(message, version, head)


def encode_response_parts(api_key: int, version: int, correlation_id: int, message: object) -> list[Part]:
    """Return the frame of a response in parts: size, header and body. Records are not copied."""
    head = _RESPONSE_FRAME.pack(0, correlation_id)
    if version in API.by_key[api_key].flexible and api_key != API_VERSIONS_KEY:
        head += _NO_TAGS
    return encode_frame(message, version, head)


def encode_response(api_key: int, version: int, correlation_id: int, message: object) -> bytes:
    """Return the frame of a response: size, header and body. Raises `UnencodableMessage`."""
    return join_parts(encode_response_parts(api_key, version, correlation_id, message))


def decode_correlation_id(frame: Buffer) -> int:
    """Return the correlation id at the start of a response. Raises `MalformedMessage`."""
    if len(frame) < 4:
        raise MalformedMessage("ResponseHeader", "correlation_id", 0, f"{len(frame)} bytes are too few")
    return int.from_bytes(frame[:4], "big", signed=True)


def decode_response(api: Api, version: int, frame: Buffer) -> object:
    """Decode the body of a complete response to a request of `version`.

    A broker that does not know this version of ApiVersions responds in version 0 (KIP-511). Raises `MalformedMessage`.
    """
    if api.key == API_VERSIONS_KEY and frame[4:6] == _UNSUPPORTED_VERSION:
        version = 0
    position = 4
    if api.response_header_version(version) == 1:
        position = _skip_header_tags(frame, position, "ResponseHeader")
    message: object = decode(api.response, frame, version, position)
    return message


__all__ = [
    "API_VERSIONS_KEY",
    "RequestHeader",
    "decode_correlation_id",
    "decode_request_header",
    "decode_response",
    "encode_request",
    "encode_request_parts",
    "encode_response",
    "encode_response_parts",
]
