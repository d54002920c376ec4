"""A client that does exactly one thing at a time: frames over a real socket, with nothing smoothed over.

`Wire` sends a request object of `felice.protocol` in the version named and returns the decoded reply; `send_raw`
and `read_frame` work with bytes, so a test can also break every rule.
"""

import socket
import struct
import uuid
from types import TracebackType
from typing import Any

from felice.protocol.api import API, Api
from felice.protocol.codec import decode, encode
from waiting import LIMIT_S

DEFAULT_TIMEOUT_S = 150.0
CLIENT_ID = "wire"


class ConnectionClosed(AssertionError):
    """The broker closed the connection while a reply was expected."""


def api_of(message: Any) -> Api:
    name = type(message).__name__
    for api in API.by_key.values():
        if type(message) in (api.request, api.response):
            return api
    raise LookupError(f"{name} belongs to no API")


def api_named(name: str) -> Api:
    for api in API.by_key.values():
        if api.request.__name__ == f"{name}Request":
            return api
    raise LookupError(f"no API {name}")


def latest_version(message: Any) -> int:
    return api_of(message).versions.max


def request_header(
    api_key: int, version: int, correlation_id: int, client_id: str | None, header_version: int
) -> bytes:
    """A request header built by hand: even in v2 the client id has a plain int16 length (rule 12)."""
    head = struct.pack(">hhi", api_key, version, correlation_id)
    if header_version >= 1:
        name = client_id.encode() if client_id is not None else None
        head += struct.pack(">h", -1) if name is None else struct.pack(">h", len(name)) + name
    if header_version >= 2:
        head += b"\0"
    return head


class Wire:
    def __init__(self, bootstrap: str, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        host, _, port = bootstrap.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation_id = 100

    def send(self, message: Any, version: int | None = None, client_id: str | None = CLIENT_ID) -> int:
        """Sends one request without waiting; returns its correlation id."""
        api = api_of(message)
        chosen = latest_version(message) if version is None else version
        self._correlation_id += 1
        header = request_header(
            api.key, chosen, self._correlation_id, client_id, api.request_header_version(chosen)
        )
        self.send_frame(header + encode(message, chosen))
        return self._correlation_id

    def receive(self, request: Any, version: int | None = None, correlation_id: int | None = None) -> Any:
        """Returns the reply to `request`, decoded to its last byte."""
        api = api_of(request)
        chosen = latest_version(request) if version is None else version
        body = self.receive_body(api.response_header_version(chosen), correlation_id)
        return decode(api.response, body, chosen)

    def receive_body(self, header_version: int, correlation_id: int | None = None) -> bytes:
        frame = self.read_frame()
        seen = struct.unpack_from(">i", frame)[0]
        expected = self._correlation_id if correlation_id is None else correlation_id
        assert seen == expected, f"a reply to {seen} where {expected} was due"
        if header_version == 0:
            return frame[4:]
        assert frame[4] == 0, "a flexible response header ends in an empty tag buffer"
        return frame[5:]

    def ask(self, message: Any, version: int | None = None, client_id: str | None = CLIENT_ID) -> Any:
        self.send(message, version, client_id)
        return self.receive(message, version)

    def send_frame(self, payload: bytes) -> None:
        self.send_raw(struct.pack(">i", len(payload)) + payload)

    def send_raw(self, data: bytes) -> None:
        self.socket.sendall(data)

    def read_frame(self) -> bytes:
        size = struct.unpack(">i", self._read_exactly(4))[0]
        return self._read_exactly(size)

    def _read_exactly(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            try:
                part = self.socket.recv(size - len(parts))
            except ConnectionResetError:
                part = b""
            if not part:
                raise ConnectionClosed(f"closed after {len(parts)} of {size} bytes")
            parts += part
        return bytes(parts)

    def is_closed_by_peer(self, within_s: float = LIMIT_S) -> bool:
        """Whether the broker closes the connection without sending another byte."""
        self.socket.settimeout(within_s)
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False

    def is_silent_for(self, seconds: float) -> bool:
        """Whether nothing arrives and the connection stays open."""
        self.socket.settimeout(seconds)
        try:
            self.socket.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            return True
        finally:
            self.socket.settimeout(DEFAULT_TIMEOUT_S)
        return False

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> "Wire":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def unique_name(prefix: str) -> str:
    return f"{prefix}-{uuid.uuid4().hex[:10]}"
