"""Both ends of one connection, without a socket: bytes to requests and responses, replies in order.

Keeps true:  S1  replies leave a connection in request order, however the answers are made.
             A frame is handed on once, whole, in memory that is not reused while a view of it exists and that the
             log may write to. A large frame takes memory only as its bytes arrive, so a peer that announces one
             and sends nothing costs nothing.
             After a frame that breaks the protocol no further frame is read (`failure`); earlier frames are handled.
How:         small frames are read into a scratch buffer that serves many connections, and copied out; a frame
             that does not fit continues in a buffer of its own by `recv_into`, and is not copied again.
Leaves:      sockets, timeouts and how many requests may wait to `server.net.session` and `client.net`;
             the memory to `frame_memory`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from felice.dataclass import dataclass
from felice.protocol.api import API, Api
from felice.protocol.codec import ANY_NUMBER, Part, decode_prefix
from felice.protocol.frame_memory import FrameMemory
from felice.protocol.frames import (
    decode_correlation_id,
    decode_request_header,
    decode_response,
    encode_request_parts,
    encode_response_parts,
)
from felice.protocol.kernels import whole_frames
from felice.protocol.primitives import Buffer, MalformedMessage, OversizedMessage

SMALL_REQUEST_ELEMENTS = 1000
"""Up to here a request is decoded and handled as it comes: that takes milliseconds."""

LARGE_REQUEST_BYTES = 64 * 1024
"""From here on a request counts for the memory of large requests."""

_SIZE_BYTES = 4
_HTTP_METHODS = (b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI", b"PATC", b"CONN", b"PRI ")


class ProtocolViolation(Exception):
    """The peer broke the protocol, and later bytes cannot repair that; the connection must be closed."""


class FrameReader:
    """Cuts a byte stream into frames.

    Ask `get_buffer()` where the next bytes belong, put them there, then call `received(count)`. Several readers may
    share a `FrameMemory` if no reader is called between these two calls of another.
    """

    def __init__(self, max_frame_bytes: int, memory: FrameMemory | None = None) -> None:
        self.failure: ProtocolViolation | None = None
        self.max_frame_bytes = max_frame_bytes
        self._memory = memory or FrameMemory()
        self._scratch = self._memory.scratch
        self._head = b""
        self._frame: memoryview | None = None
        self.incomplete_bytes = 0
        """How much has arrived of the frame that is received into memory of its own; 0 without one."""

    def get_buffer(self, sizehint: int = -1) -> memoryview:
        """Where the next bytes belong; never empty. `sizehint` is what asyncio's transports say; it does not matter."""
        if self._frame is not None:
            return self._frame[self.incomplete_bytes :]
        if self._head:
            self._scratch[: len(self._head)] = self._head
            return self._scratch[len(self._head) :]
        return self._scratch

    def received(self, count: int) -> list[memoryview]:
        """Take note of `count` bytes in the buffer; return the frames that are whole now."""
        if self.failure is not None:
            return []
        if self._frame is None:
            end = len(self._head) + count
            self._head = b""
            frames, position = whole_frames(self._scratch, end, self.max_frame_bytes)
            return frames if position == end else self._cut(frames, position, end)
        self.incomplete_bytes += count
        if self.incomplete_bytes < len(self._frame):
            return []
        frame, self._frame, self.incomplete_bytes = self._frame, None, 0
        return [frame]

    @property
    def missing_bytes(self) -> int:
        """How much has not arrived of the frame that is received into memory of its own; 0 without one."""
        return 0 if self._frame is None else len(self._frame) - self.incomplete_bytes

    def drop(self) -> None:
        """Lets go of a frame that will not become whole."""
        self._frame, self.incomplete_bytes = None, 0

    def feed(self, data: Buffer) -> list[memoryview]:
        """Take bytes that were received elsewhere."""
        frames: list[memoryview] = []
        rest = memoryview(data)
        while rest and self.failure is None:
            buffer = self.get_buffer()
            count = min(len(buffer), len(rest))
            buffer[:count] = rest[:count]
            rest = rest[count:]
            frames += self.received(count)
        return frames

    def _cut(self, frames: list[memoryview], position: int, end: int) -> list[memoryview]:
        """Adds the frames between `position` and `end` to `frames`, and keeps the start of an incomplete one."""
        scratch = self._scratch
        while end - position >= _SIZE_BYTES:
            start = position + _SIZE_BYTES
            size = int.from_bytes(scratch[position:start], "big", signed=True)
            if not 0 <= size <= self.max_frame_bytes:
                self.failure = ProtocolViolation(
                    _foreign(scratch[position:start])
                    or f"frame of {size} bytes, at most {self.max_frame_bytes} allowed"
                )
                return frames
            position = start + size
            if position > end:
                self._begin(size, scratch[start:end])
                return frames
            frames.append(memoryview(bytearray(scratch[start:position])))
        if position < end:
            self._head = bytes(scratch[position:end])
        return frames

    def _begin(self, size: int, data: memoryview) -> None:
        self._frame, self.incomplete_bytes = self._memory.take(size), len(data)
        self._frame[: len(data)] = data


def _foreign(size: Buffer) -> str | None:
    """Names the other protocol to which the four bytes of a frame's size belong; None if they are no known one."""
    found = bytes(size)
    if found[:2] == b"\x16\x03":
        return "not Kafka's protocol: the client begins with TLS, and this listener speaks plain text"
    if found[:2] == b"\x15\x03":
        return "not Kafka's protocol: a TLS alert; the listener needs TLS, see security.protocol"
    if found in _HTTP_METHODS:
        return "not Kafka's protocol: an HTTP request"
    return None


@dataclass(slots=True, eq=False)
class Request:
    """A request and the place of its reply.

    `reply` is what `encode_reply` returns, or empty for a request that has no reply: Produce with acks=0.
    `message` is None if this is ApiVersions in a version that we do not know: to be answered with error 35 and
    the row of ApiVersions, which `encode_reply` encodes in version 0.
    A request of more than `SMALL_REQUEST_ELEMENTS` comes out before its body is read: `undecoded` is that body, and
    `ServerConnection.read_large` reads it when its turn has come.
    """

    api: Api
    version: int
    correlation_id: int
    client_id: str | None
    message: object
    size_bytes: int
    reply: list[Part] | None = None
    undecoded: memoryview | None = None
    timing: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Set by the session: seconds in the queue, seconds on the event loop, and a time of the monotonic clock: when the
    handler left the event loop or, once the reply was made, when that was.
    """


class ServerConnection:
    """The broker's end: requests out one by one, replies in, whenever they are ready."""

    def __init__(
        self,
        max_request_bytes: int,
        apis: Mapping[int, Api] = API.by_key,
        memory: FrameMemory | None = None,
        max_request_elements: int = ANY_NUMBER,
    ) -> None:
        self.failure: Exception | None = None
        self.client_id: str | None = None
        self.frames: deque[memoryview | ProtocolViolation] = deque()
        """The whole requests that were not handed out, and after the last one the failure of the stream."""
        self.unanswered: deque[Request] = deque()
        """The requests that were handed out, up to the first whose reply was not taken: the session bounds them."""
        self.large_request_bytes = 0
        """Memory of large requests: of the one that arrives, and of those whose replies were not taken."""
        self._max_elements = max_request_elements
        self._reader = FrameReader(max_request_bytes, memory)
        self._apis = apis
        # Where the next bytes belong. A call less for each read of the socket.
        self.get_buffer = self._reader.get_buffer

    @property
    def incomplete_bytes(self) -> int:
        """How much has arrived of a request that has not arrived whole."""
        return self._reader.incomplete_bytes

    def limit_frames(self, max_bytes: int) -> None:
        """Refuses larger requests from now on."""
        self._reader.max_frame_bytes = max_bytes

    def drop(self) -> None:
        """The connection has ended: nothing more is handed out, and no reply is kept."""
        self.frames.clear()
        self.unanswered.clear()
        self._reader.drop()
        self.large_request_bytes = 0

    def received(self, count: int) -> None:
        """Take note of `count` bytes in the buffer."""
        reader = self._reader
        if reader.failure is not None:
            return
        incomplete_bytes = reader.incomplete_bytes
        for frame in reader.received(count):
            self.frames.append(frame)
            if len(frame) >= LARGE_REQUEST_BYTES:
                self.large_request_bytes += len(frame)
        self.large_request_bytes += reader.incomplete_bytes - incomplete_bytes
        if reader.failure is not None:
            self.frames.append(reader.failure)

    def next_request(self) -> Request | None:
        """The next whole request, whose reply has its place from now on; None if there is none, or `failure`."""
        if self.failure is not None or not self.frames:
            return None
        frame = self.frames.popleft()
        try:
            request = self._request(frame)
        except (MalformedMessage, ProtocolViolation) as error:
            self.failure = error
            return None
        self.unanswered.append(request)
        return request

    def read_large(self, request: Request) -> None:
        """Reads the body of a large request. It may be malformed or too large (`failure`). May run on a thread."""
        assert request.undecoded is not None
        api, version = request.api, request.version
        try:
            request.message, _ = decode_prefix(api.request, request.undecoded, version, 0, self._max_elements)
        except MalformedMessage as error:
            self.failure = error
        request.undecoded = None

    def take_replies(self) -> list[Part]:
        """The replies that may leave now, in parts, in request order."""
        parts: list[Part] = []
        unanswered = self.unanswered
        while unanswered and (reply := unanswered[0].reply) is not None:
            request = unanswered.popleft()
            if request.size_bytes >= LARGE_REQUEST_BYTES:
                self.large_request_bytes -= request.size_bytes
            parts += reply
        return parts

    def _request(self, frame: memoryview | ProtocolViolation) -> Request:
        if isinstance(frame, ProtocolViolation):
            raise frame
        (key, version, correlation_id, client_id), position = decode_request_header(frame)
        self.client_id = client_id
        api = self._apis.get(key)
        if api is not None and version in api.accepted:
            # Bytes after the request are ignored, as in Kafka: librdkafka's Metadata request for all topics has
            # three bytes too many (the old form of an array's length).
            small = min(SMALL_REQUEST_ELEMENTS, self._max_elements)
            try:
                message, _ = decode_prefix(api.request, frame, version, position, small)
            except OversizedMessage as error:
                if error.elements > self._max_elements:
                    raise
                undecoded = frame[position:]
                return Request(api, version, correlation_id, client_id, None, len(frame), undecoded=undecoded)
            return Request(api, version, correlation_id, client_id, message, len(frame))
        if api is API.API_VERSIONS:
            return Request(api, version, correlation_id, client_id, None, len(frame))
        raise ProtocolViolation(_unsupported(key, version, api))


def _unsupported(api_key: int, version: int, api: Api | None) -> str:
    if api is None:
        return f"API key {api_key} in version {version} is not supported"
    versions = f"{api.accepted[0]}-{api.accepted[-1]}"
    return f"{api.name} in version {version} is not supported; versions {versions} are"


def encode_reply(request: Request, message: object) -> list[Part]:
    """The parts of a reply; needs nothing of the connection, and may run on a thread."""
    version = 0 if request.message is None else request.version
    return encode_response_parts(request.api.key, version, request.correlation_id, message)


@dataclass(frozen=True, slots=True)
class Response:
    """A response and which request it answers."""

    correlation_id: int
    api: Api
    version: int
    message: object


class ClientConnection:
    """The client's end: numbers requests and matches responses to them."""

    def __init__(self, client_id: str | None, max_response_bytes: int) -> None:
        self.reader = FrameReader(max_response_bytes)
        self.failure: Exception | None = None
        self.unreadable: int | None = None
        """The correlation id of the request whose response could not be decoded, so that its outcome stays unknown."""
        self._client_id = client_id
        self._next_correlation_id = 0
        self._expected: deque[tuple[int, Api, int]] = deque()

    @property
    def in_flight(self) -> int:
        """How many responses are to come."""
        return len(self._expected)

    def send(
        self, api: Api, version: int, message: object, *, expect_response: bool = True
    ) -> tuple[int, list[Part]]:
        """Return the request's correlation id and its bytes in parts."""
        correlation_id = self._next_correlation_id
        parts = encode_request_parts(api.key, version, correlation_id, self._client_id, message)
        self._next_correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        if expect_response:
            self._expected.append((correlation_id, api, version))
        return correlation_id, parts

    def get_buffer(self) -> memoryview:
        """Where the next bytes belong."""
        return self.reader.get_buffer()

    def received(self, count: int) -> list[Response]:
        """Take note of `count` bytes in the buffer; return the responses that are whole now."""
        return self._responses(self.reader.received(count))

    def feed(self, data: Buffer) -> list[Response]:
        """Take bytes that were received elsewhere."""
        return self._responses(self.reader.feed(data))

    def _responses(self, frames: list[memoryview]) -> list[Response]:
        responses = []
        for frame in frames:
            if self.failure is not None:
                break
            try:
                responses.append(self._response(frame))
            except (MalformedMessage, ProtocolViolation) as error:
                self.failure = error
        self.failure = self.failure or self.reader.failure
        return responses

    def _response(self, frame: memoryview) -> Response:
        correlation_id = decode_correlation_id(frame)
        if not self._expected:
            raise ProtocolViolation(f"response {correlation_id} to no request")
        expected, api, version = self._expected.popleft()
        if correlation_id != expected:
            raise ProtocolViolation(f"response {correlation_id} where {expected} was due")
        try:
            return Response(correlation_id, api, version, decode_response(api, version, frame))
        except MalformedMessage:
            self.unreadable = correlation_id
            raise
