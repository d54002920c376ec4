"""HTTP/2: the same application, with `h2` itself as the client."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from itertools import repeat, takewhile
from typing import Any

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    DataReceived,
    Event,
    InformationalResponseReceived,
    ResponseReceived,
    StreamEnded,
    StreamReset,
)
from h2.exceptions import ProtocolError, StreamClosedError
from h2.settings import SettingCodes
from hyperframe.frame import GoAwayFrame

import felice.web.http2.switching as switching
from felice.web.http2 import calm
from felice.web.http2.turns import SHARE_S, Turns
from felice.web.limits import Limits
from felice.web.login import Login, WrongLogin
from unit.web.serving_app import Serving, parse, request_of, run
from waiting import until

PATIENT = Limits(head_s=600, body_s=600, linger_s=600, unread_s=600, idle_s=600, stop_s=0.1)
LARGE = 5_000_000
NO_ERROR, PROTOCOL_ERROR, FRAME_SIZE_ERROR, REFUSED, CANCEL, CALM = 0, 1, 6, 7, 8, 11
GET = ((":method", "GET"), (":scheme", "http"), (":authority", "localhost"))
POST = ((":method", "POST"), *GET[1:])


def frame(kind: int, body: bytes = b"", flags: int = 0, stream: int = 0) -> bytes:
    return len(body).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + body


class Client:
    """Reads what the server sends, and opens its windows, unless `reads` is false."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer = reader, writer
        self.h2 = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        self.events: list[Event] = []
        self.bodies: dict[int, bytearray] = {}
        self.opens_windows = True
        self.is_closed = False
        self._bytes = bytearray()
        self._news = asyncio.Event()
        self.reading: asyncio.Task[None] | None = None

    def begin(self) -> None:
        self.h2.initiate_connection()
        self.flush()
        self.read()

    def read(self) -> None:
        self.reading = asyncio.ensure_future(self._read())

    def flush(self) -> None:
        self.writer.write(self.h2.data_to_send())

    async def _read(self) -> None:
        try:
            while data := await self._reader.read(65_536):
                self._bytes += data
                with suppress(ProtocolError):  # streams that a test began by hand are unknown to the library
                    self._take(data)
                self._news.set()
        except ConnectionError:
            pass
        self.is_closed = True
        self._news.set()

    def _take(self, data: bytes) -> None:
        for event in self.h2.receive_data(data):
            self.events.append(event)
            if isinstance(event, DataReceived):
                self.bodies.setdefault(event.stream_id, bytearray()).extend(event.data)
                if self.opens_windows:
                    self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        self.flush()

    def ask(
        self, path: str, *, first: Iterable[tuple[str, str]] = GET, ends: bool = True, **more: str
    ) -> int:
        id = self.h2.get_next_available_stream_id()
        self.h2.send_headers(id, [*first, (":path", path), *more.items()], end_stream=ends)
        self.flush()
        return id

    def send(self, id: int, data: bytes, *, ends: bool = False) -> None:
        self.h2.send_data(id, data, end_stream=ends)
        self.flush()

    async def send_all(self, id: int, data: bytes) -> None:
        """As the server opens the window."""
        while data:
            size = min(self.h2.local_flow_control_window(id), 16_384, len(data))
            if size:
                self.send(id, data[:size], ends=size == len(data))
                data = data[size:]
            else:
                await self.happens(lambda: self.h2.local_flow_control_window(id) > 0)

    async def happens(self, condition: Callable[[], Any]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                assert not self.is_closed, self.events
                self._news.clear()
                await self._news.wait()

    def of(self, kind: type[Any], id: int | None = None) -> list[Any]:
        return [one for one in self.events if isinstance(one, kind) and (id is None or one.stream_id == id)]

    async def answer(self, id: int) -> tuple[int, dict[str, str], bytes]:
        await self.happens(lambda: self.of(StreamEnded, id) or self.of(StreamReset, id))
        (head,) = self.of(ResponseReceived, id)
        headers = dict(head.headers)
        return int(headers[":status"]), headers, bytes(self.bodies.get(id, b""))

    async def got(self, path: str) -> tuple[int, dict[str, str], bytes]:
        return await self.answer(self.ask(path))

    async def reset(self, id: int) -> int:
        """The code with which the server resets a stream."""
        await self.happens(lambda: self.of(StreamReset, id))
        return int(self.of(StreamReset, id)[0].error_code)

    async def ended(self) -> tuple[int, str]:
        """The code and the text with which the server ends the connection."""
        async with asyncio.timeout(60):
            while not self.is_closed:
                self._news.clear()
                await self._news.wait()
        at, found = 0, []
        while at < len(self._bytes):
            size = 9 + int.from_bytes(self._bytes[at : at + 3], "big")
            if self._bytes[at + 3] == 7:
                body = self._bytes[at + 9 : at + size]
                found.append((int.from_bytes(body[4:8], "big"), body[8:].decode()))
            at += size
        (gone,) = found
        return gone


@asynccontextmanager
async def connected(serving: Serving, *, begins: bool = True) -> AsyncIterator[Client]:
    client = Client(*await serving.connect())
    if begins:
        client.begin()
    try:
        yield client
    finally:
        client.writer.close()
        if client.reading is not None:
            client.reading.cancel()


def beside(scenario: Callable[[Serving, Client], Any], **options: Any) -> None:
    async def scene(serving: Serving) -> None:
        async with connected(serving) as client:
            await scenario(serving, client)

    run(scene, **{"limits": PATIENT, **options})


def test_answers_are_those_of_http1() -> None:
    async def scenario(serving: Serving, client: Client) -> None:
        for path in ("/hello", "/names/a%2Fb", "/nothing", "/refused", "/broken", "/large", "/hello?x=%ff"):
            status, headers, body = await client.got(path)
            plain = await serving.ask(request_of("GET", path))
            assert (status, body) == (plain[0], plain[2]), path
            kept = {name: value for name, value in headers.items() if name not in (":status", "date")}
            assert kept == {
                name: value for name, value in plain[1].items() if name not in ("connection", "date")
            }
            assert "date" in headers

    beside(scenario)


def test_many_streams_run_at_a_time() -> None:
    async def scenario(serving: Serving, client: Client) -> None:
        waiting = [client.ask("/wait") for _ in range(40)]
        await until(lambda: serving.waiting == 40)
        assert (await client.got("/hello"))[2] == b"hello\n"
        serving.go_on.set()
        assert [(await client.answer(id))[2] for id in waiting] == [b"waited\n"] * 40
        assert len(serving.connections) == len(serving.crowd) == 1

    beside(scenario)


def test_a_body_comes_in_parts_and_its_size_counts() -> None:
    async def scenario(serving: Serving, client: Client) -> None:
        for size in (0, 5, 200_000, 3_000_000):
            id = client.ask("/count", first=POST, ends=size == 0)
            await client.send_all(id, b"x" * size)
            assert json.loads((await client.answer(id))[2]) == {"bytes": size}

    beside(scenario)


def test_the_limits_of_bodies_are_those_of_http1() -> None:
    async def scenario(serving: Serving, client: Client) -> None:
        declared = client.ask("/count", first=POST, ends=False, **{"content-length": "20000"})
        assert (await client.answer(declared))[0] == 413
        undeclared = client.ask("/count", first=POST, ends=False)
        client.send(undeclared, b"x" * 10_001)
        assert (await client.answer(undeclared))[0] == 413
        late = client.ask("/count", first=POST, ends=False)
        assert (await client.answer(late))[0] == 408
        # What the client still wanted to send is not needed.
        assert [await client.reset(id) for id in (declared, undeclared, late)] == [NO_ERROR] * 3

    beside(scenario, limits=replace(PATIENT, body_bytes=10_000, body_s=0.3, linger_s=0.2))


def test_a_client_that_sends_all_before_it_reads_gets_the_refusal_of_its_body() -> None:
    async def scenario(serving: Serving, client: Client) -> None:
        id = client.ask("/count", first=POST, ends=False)
        await client.send_all(id, b"x" * 1_000_000)
        assert (await client.answer(id))[0] == 413
        assert not client.of(StreamReset, id)
        (connection,) = serving.connections
        await until(lambda: not connection._lingering)
        assert json.loads((await client.got("/names/next"))[2]) == {"name": "next"}

    beside(scenario, limits=replace(PATIENT, body_bytes=10_000))


@pytest.mark.parametrize("path", ["/large", "/hello", "/names/x"])
def test_head_has_no_body(path: str) -> None:
    async def scenario(serving: Serving, client: Client) -> None:
        id = client.ask(path, first=((":method", "HEAD"), *GET[1:]))
        status, headers, body = await client.answer(id)
        assert (status, body) == (200, b"")
        assert headers["content-length"] == str(len((await client.got(path))[2]))

    beside(scenario)


def test_a_client_that_waits_to_be_told_to_go_on_is_told_only_if_its_body_is_wanted() -> None:
    async def scenario(serving: Serving, client: Client) -> None:
        expect = {"expect": "100-continue"}
        id = client.ask("/count", first=POST, ends=False, **expect)
        await client.happens(lambda: client.of(InformationalResponseReceived, id))
        client.send(id, b"hello", ends=True)
        assert json.loads((await client.answer(id))[2]) == {"bytes": 5}
        id = client.ask("/nothing", first=POST, ends=False, **expect)
        assert (await client.answer(id))[0] == 404
        assert not client.of(InformationalResponseReceived, id)

    beside(scenario)


def test_the_size_of_a_head_is_limited() -> None:
    async def scenario(serving: Serving, client: Client) -> None:
        status, _, body = await client.answer(client.ask("/hello", **{"x-large": "x" * 3000}))
        assert (status, json.loads(body)["message"]) == (431, "the head of a request may have 2,000 bytes")
        assert (await client.got("/hello"))[0] == 200
        client.ask("/hello", **{"x-large": "!" * 30_000})
        assert (await client.ended())[0] == CALM

    beside(scenario, limits=replace(PATIENT, head_bytes=2000))


@pytest.mark.parametrize("path", ["/a b", "/a\x7f", "/ü"])
def test_a_path_that_http1_cannot_carry_is_refused(path: str) -> None:
    async def scenario(serving: Serving, client: Client) -> None:
        status, _, body = await client.got(path)
        assert (status, json.loads(body)["message"]) == (
            400,
            "the request is not valid HTTP/2: illegal method or path",
        )

    beside(scenario)


def test_an_unknown_host_is_refused() -> None:
    async def scenario(serving: Serving, client: Client) -> None:
        evil = (*GET[:2], (":authority", "evil.example"))
        assert (await client.answer(client.ask("/hello", first=evil)))[0] == 421

    beside(scenario)


def test_a_log_in_is_that_of_http1() -> None:
    class Known:
        async def verify(self, user: str, password: str) -> None:
            if (user, password) != ("ada", "secret"):
                raise WrongLogin("unknown")

    async def scenario(serving: Serving, client: Client) -> None:
        assert (await client.got("/user"))[0] == 401
        good = "Basic " + base64.b64encode(b"ada:secret").decode()
        assert (await client.answer(client.ask("/user", authorization=good)))[2] == b"ada"

    beside(scenario, login=Login(Known()))


def test_an_answer_that_fails_on_its_way_is_reset_and_others_go_on() -> None:
    async def scenario(serving: Serving, client: Client) -> None:
        assert await client.reset(client.ask("/broken-later")) == 2  # INTERNAL_ERROR
        assert (await client.got("/hello"))[0] == 200

    beside(scenario)


# Flow control


def test_a_client_that_opens_no_window_stops_its_answer_and_no_other() -> None:
    async def scenario(serving: Serving, client: Client) -> None:
        client.h2.increment_flow_control_window(1_000_000)
        client.opens_windows = False
        id = client.ask("/large")
        await client.happens(lambda: len(client.bodies.get(id, b"")) == 65_535)
        assert (await client.got("/hello"))[2] == b"hello\n"
        (connection,) = serving.connections
        assert connection.transport.get_write_buffer_size() == 0
        assert len(client.bodies[id]) == 65_535
        client.h2.increment_flow_control_window(LARGE, id)
        client.h2.increment_flow_control_window(LARGE)
        client.flush()
        assert len((await client.answer(id))[2]) == LARGE

    beside(scenario)


def test_an_answer_that_is_not_read_in_time_is_reset() -> None:
    async def scenario(serving: Serving, client: Client) -> None:
        client.opens_windows = False
        assert await client.reset(client.ask("/large")) == CALM
        await until(lambda: not serving.tasks)
        assert not client.is_closed

    beside(scenario, limits=replace(PATIENT, unread_s=0.3))


def test_a_window_that_opens_byte_by_byte_gains_no_time() -> None:
    async def scenario(serving: Serving, client: Client) -> None:
        client.opens_windows = False
        client.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 0})
        client.flush()
        id = client.ask("/large")
        resetting = asyncio.ensure_future(client.reset(id))
        while not resetting.done():
            # The reset may have been read, but not yet noticed here.
            with suppress(StreamClosedError):
                client.h2.increment_flow_control_window(1, id)
            client.flush()
            await asyncio.sleep(0.01)
        assert resetting.result() == CALM

    beside(scenario, limits=replace(PATIENT, unread_s=0.3))


def test_a_client_that_reads_nothing_at_all_is_cut() -> None:
    async def scenario(serving: Serving) -> None:
        async with connected(serving, begins=False) as client:
            client.writer.transport.pause_reading()
            client.h2.initiate_connection()
            client.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 2**31 - 1})
            client.h2.increment_flow_control_window(2**30)
            for _ in range(4):
                client.ask("/large")
            await until(
                lambda: getattr(serving.connections[0] if serving.connections else None, "_is_paused", False)
            )
            assert serving.connections[0].transport.get_write_buffer_size() < 200_000
            await until(lambda: not serving.connections and not serving.tasks)

    run(scenario, limits=replace(PATIENT, unread_s=0.5))


def test_a_body_that_nobody_takes_fills_only_its_window() -> None:
    async def scenario(serving: Serving, client: Client) -> None:
        id = client.ask("/parts", first=POST, ends=False)
        client.send(id, b"x")
        await until(lambda: serving.waiting)
        sending = asyncio.ensure_future(client.send_all(id, b"x" * 200_000))
        await until(lambda: client.h2.local_flow_control_window(id) == 0)
        # The connection's window is open for other streams.
        other = client.ask("/count", first=POST, ends=False)
        await client.send_all(other, b"x" * 100_000)
        assert json.loads((await client.answer(other))[2]) == {"bytes": 100_000}
        assert not sending.done()
        serving.go_on.set()
        await sending
        assert json.loads((await client.answer(id))[2]) == {"bytes": 200_001}

    beside(scenario)


# The end of streams and connections


def test_a_reset_ends_its_request_and_no_other() -> None:
    async def scenario(serving: Serving, client: Client) -> None:
        body = client.ask("/count", first=POST, ends=False)
        other = client.ask("/wait")
        await until(lambda: serving.waiting == 1)
        client.h2.reset_stream(body, CANCEL)
        client.flush()
        await until(lambda: serving.tasks == 1)
        serving.go_on.set()
        assert (await client.answer(other))[2] == b"waited\n"

    beside(scenario)


def test_a_stop_lets_streams_end_and_refuses_new_ones() -> None:
    async def scenario(serving: Serving, client: Client) -> None:
        # The library takes nothing more after GOAWAY; other clients do.
        client.h2._frame_dispatch_table[GoAwayFrame] = lambda frame: ([], [])
        id = client.ask("/wait")
        await until(lambda: serving.waiting == 1)
        serving.connections[0].shutdown()
        late = client.ask("/hello")
        assert await client.reset(late) == REFUSED
        serving.go_on.set()
        assert (await client.answer(id))[2] == b"waited\n"
        assert await client.ended() == (NO_ERROR, "")

    beside(scenario)


def test_a_client_that_says_it_goes_gets_the_answers_that_it_waits_for() -> None:
    async def scenario(serving: Serving, client: Client) -> None:
        id = client.ask("/wait")
        await until(lambda: serving.waiting == 1)
        client.writer.write(frame(7, bytes(8)))
        serving.go_on.set()
        assert (await client.answer(id))[2] == b"waited\n"
        await until(lambda: client.is_closed)

    beside(scenario)


def test_a_connection_that_is_not_used_again_ends_although_it_pings() -> None:
    async def scenario(serving: Serving, client: Client) -> None:
        await client.got("/hello")
        while not client.is_closed:
            client.writer.write(frame(6, b"12345678"))
            await asyncio.sleep(0.05)
        assert await client.ended() == (NO_ERROR, "")

    beside(scenario, limits=replace(PATIENT, idle_s=0.3))


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        switching.PREFACE[:10],
        switching.PREFACE,
        switching.PREFACE + frame(4) + frame(1, b"\x82", 0, 1),
        switching.PREFACE + frame(4) + frame(1, b"\x82\x84", 4, 1)[:-1],
    ],
    ids=["nothing", "half a preface", "a preface", "half a head", "half a frame of a head"],
)
def test_a_head_that_does_not_end_ends_its_connection(sent: bytes) -> None:
    async def scenario(serving: Serving) -> None:
        _, writer = await serving.connect()
        writer.write(sent)
        await until(lambda: serving.connections)
        await until(lambda: not serving.connections)
        writer.close()

    run(scenario, limits=replace(PATIENT, head_s=0.2, linger_s=0.1))


def test_unfinished_requests_of_one_connection_give_way() -> None:
    async def scenario(serving: Serving, client: Client) -> None:
        half = [client.ask("/count", first=POST, ends=False) for _ in range(5)]
        assert await client.reset(half[0]) == CALM
        async with connected(serving) as other:
            assert (await other.got("/hello"))[0] == 200
        client.send(half[-1], b"hello", ends=True)
        assert json.loads((await client.answer(half[-1]))[2]) == {"bytes": 5}

    beside(scenario, limits=replace(PATIENT, half_requests=4))


def test_requests_above_those_that_are_being_answered_are_refused() -> None:
    async def scenario(serving: Serving, client: Client) -> None:
        held = [client.ask("/wait") for _ in range(2)]
        await until(lambda: serving.waiting == 2)
        status, headers, _ = await serving.ask(request_of("GET", "/hello"))
        assert (status, headers["retry-after"]) == (503, "1")
        # Those that the client has reset run on, and count.
        for id in held:
            client.h2.reset_stream(id, CANCEL)
        client.flush()
        assert await client.reset(client.ask("/hello")) == REFUSED
        serving.go_on.set()
        await until(lambda: not serving.tasks)
        assert (await client.got("/hello"))[0] == 200

    beside(scenario, limits=replace(PATIENT, connections=2))


# Hostile frames

HEADERS_OF_GET = H2Connection(H2Configuration()).encoder.encode([*GET, (":path", "/hello")], huffman=False)
SETTINGS_SMALL = frame(4, b"".join(b"\0\x04" + (n % 60_000).to_bytes(4, "big") for n in range(5)))
FLOODS: dict[str, Callable[[int], bytes]] = {
    "PING": lambda n: frame(6, b"12345678"),
    "SETTINGS": lambda n: SETTINGS_SMALL,
    "PRIORITY": lambda n: frame(2, b"\0\0\0\x05\x10", 0, 2 * n + 1001),
    "WINDOW_UPDATE": lambda n: frame(8, b"\0\0\0\x01"),
    "unknown frames": lambda n: frame(99, b"x"),
    "rapid reset": lambda n: frame(1, HEADERS_OF_GET, 5, 2 * n + 1) + frame(3, b"\0\0\0\x08", 0, 2 * n + 1),
    "empty DATA": lambda n: frame(1, HEADERS_OF_GET, 4, 1) if n == 0 else frame(0, b"", 0, 1),
    "DATA of padding": lambda n: frame(1, HEADERS_OF_GET, 4, 1) if n == 0 else frame(0, b"\x03\0\0\0", 8, 1),
    "CONTINUATION": lambda n: frame(1, HEADERS_OF_GET, 1, 1) if n == 0 else frame(9, b"", 0, 1),
    "DATA for no stream": lambda n: frame(1, HEADERS_OF_GET, 5, 1) if n == 0 else frame(0, b"", 0, 1),
}


@pytest.mark.parametrize("kind", FLOODS)
def test_a_flood_ends_its_connection_and_is_told_why(kind: str) -> None:
    async def scenario(serving: Serving, client: Client) -> None:
        sent = 0
        while not client.is_closed and sent < 20_000:
            client.writer.write(b"".join(FLOODS[kind](n) for n in range(sent, sent + 50)))
            sent += 50
            await asyncio.sleep(0)
        code, _ = await client.ended()
        assert code in (CALM, PROTOCOL_ERROR, 5)  # 5 is STREAM_CLOSED
        await until(lambda: not serving.tasks)
        async with connected(serving) as other:
            assert (await other.got("/hello"))[2] == b"hello\n"

    beside(scenario, limits=replace(PATIENT, linger_s=0.1))


def test_a_flood_that_is_not_read_fills_no_memory() -> None:
    async def scenario(serving: Serving) -> None:
        async with connected(serving, begins=False) as client:
            client.writer.transport.pause_reading()
            client.writer.transport.set_write_buffer_limits(0)
            client.writer.write(switching.PREFACE + frame(4))
            await until(lambda: serving.connections and hasattr(serving.connections[0], "_calm"))
            connection = serving.connections[0]
            connection._calm.spend = lambda cost: True  # only what waits to be sent is looked at
            for _ in range(2000):
                client.writer.write(frame(6, b"12345678") * 500)
                if not connection.transport.is_reading():
                    break
                await asyncio.sleep(0)
            assert not connection.transport.is_reading()
            assert connection.transport.get_write_buffer_size() < 600_000

    run(scenario, limits=replace(PATIENT, unread_s=0.5))


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (frame(0, b"x" * 16_385, 0, 1), FRAME_SIZE_ERROR),
        (frame(6, b"short"), FRAME_SIZE_ERROR),
        (frame(1, b"\xff\xff\xff\xff\xff", 5, 1), PROTOCOL_ERROR),
        (frame(1, HEADERS_OF_GET, 5, 2), PROTOCOL_ERROR),
        (frame(0, b"x", 0, 1), PROTOCOL_ERROR),
        (frame(9, b"x", 4, 1), PROTOCOL_ERROR),
        (frame(8, bytes(4)), PROTOCOL_ERROR),
        (frame(4, b"\0\x04\xff\xff\xff\xff"), 3),
        (frame(8, b"\x7f\xff\xff\xff"), 3),
        (frame(5, b"\0\0\0\x02" + HEADERS_OF_GET, 4, 1), PROTOCOL_ERROR),
        (frame(1, HEADERS_OF_GET, 1, 1) + frame(6, b"12345678"), PROTOCOL_ERROR),
        (b"".join(frame(9 if n else 1, b"x" * 16_000, 0, 1) for n in range(9)), CALM),
        (b"GET / HTTP/1.1\r\n\r\n", FRAME_SIZE_ERROR),
    ],
)
def test_what_is_not_http2_ends_its_connection(
    sent: bytes, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(serving: Serving, client: Client) -> None:
        client.writer.write(sent)
        assert (await client.ended())[0] == code

    beside(scenario, limits=replace(PATIENT, linger_s=0.1))
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_frames_are_read_a_few_at_a_time() -> None:
    async def scenario(serving: Serving, client: Client) -> None:
        await client.got("/hello")
        (connection,) = serving.connections
        connection._calm.spend = lambda cost: True
        read, turns = connection._work, []
        connection._work = lambda: (turns.append(1), read())
        connection.data_received(frame(6, b"12345678") * 10_000)
        await until(lambda: not connection._has_more)
        assert len(turns) > 5
        assert (await client.got("/hello"))[0] == 200

    beside(scenario)


def test_a_table_of_headers_that_a_client_allows_is_not_used() -> None:
    async def scenario(serving: Serving, client: Client) -> None:
        client.h2.update_settings({SettingCodes.HEADER_TABLE_SIZE: 2**30})
        client.flush()
        assert (await client.got("/hello"))[0] == 200
        (connection,) = serving.connections
        await until(lambda: connection._h2.remote_settings.header_table_size == 2**30)
        assert connection._h2.encoder.header_table_size == 4096
        assert (await client.got("/hello"))[0] == 200

    beside(scenario)


def test_connections_have_turns_one_after_the_other() -> None:
    now, soon, done = 0.0, list[Callable[[], None]](), list[str]()
    shares = Turns(lambda: now, soon.append)

    def work(name: str) -> None:
        nonlocal now
        share = shares.share_ends() - now
        assert share <= SHARE_S * 1.001
        now += 0.002  # one frame took longer
        done.append(name)
        shares.later(lambda: work(name))

    for name in "abcd":
        shares.share_ends()
        shares.later(lambda name=name: work(name))  # type: ignore[misc]
    for turn in range(1, 4):
        (next_turn,) = soon
        soon.clear()
        next_turn()
        assert len(done) == 3 * turn  # which take all of `TURN_S`
    assert "".join(done) == "abcdabcda"


def test_the_account_of_a_client_recovers() -> None:
    now = 0.0
    account = calm.Calm(lambda: now)
    assert all(account.spend(1) for _ in range(calm.BURST))
    assert not account.spend(1)
    now = 1.0
    assert sum(1 for _ in takewhile(account.spend, repeat(1))) == calm.PER_SECOND - 1
    account.earn(5)
    assert account.spend(1)


# Beginnings


def upgrade(settings: str = "AAMAAABk", method: str = "GET", body: bytes = b"") -> bytes:
    headers = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": settings}
    return request_of(method, "/names/x" if not body else "/count", body, headers, close=False)


def test_a_request_can_be_upgraded() -> None:
    async def scenario(serving: Serving) -> None:
        async with connected(serving, begins=False) as client:
            settings = client.h2.initiate_upgrade_connection()
            client.writer.write(upgrade(settings.decode()))
            head = await client._reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 101 ")
            client.flush()
            client.read()
            assert json.loads((await client.answer(1))[2]) == {"name": "x"}
            assert (await client.got("/hello"))[2] == b"hello\n"
            assert len(serving.connections) == 1

    run(scenario, limits=PATIENT)


@pytest.mark.parametrize(
    "request_", [upgrade("!"), upgrade("AAM"), upgrade(body=b"hello", method="POST")], ids=["1", "2", "body"]
)
def test_an_upgrade_that_cannot_be_is_not_made(request_: bytes) -> None:
    async def scenario(serving: Serving) -> None:
        reader, writer = await serving.connect()
        writer.write(request_)
        assert (await serving.answer(reader))[0] == 200
        writer.close()

    run(scenario, limits=PATIENT)


def test_an_upgrade_with_impossible_settings_is_cut() -> None:
    async def scenario(serving: Serving) -> None:
        reader, writer = await serving.connect()
        settings = base64.urlsafe_b64encode(b"\0\x04\xff\xff\xff\xff").decode()
        writer.write(upgrade(settings))
        assert (await reader.read()) in (b"", switching.SWITCHED)
        await until(lambda: not serving.connections)
        writer.close()

    run(scenario, limits=PATIENT)


def test_a_preface_may_come_byte_by_byte() -> None:
    async def scenario(serving: Serving) -> None:
        async with connected(serving, begins=False) as client:
            for byte in switching.PREFACE + frame(4):
                client.writer.write(bytes([byte]))
                await asyncio.sleep(0)
            client.h2.initiate_connection()
            client.h2.data_to_send()
            client.read()
            assert (await client.got("/hello"))[2] == b"hello\n"

    run(scenario, limits=PATIENT)


def test_what_only_begins_like_the_preface_is_http1() -> None:
    async def scenario(serving: Serving) -> None:
        reader, writer = await serving.connect()
        writer.write(b"P")
        await until(lambda: serving.connections and serving.connections[0]._first)
        writer.write(request_of("POST", "/count", b"hello")[1:])
        assert parse(await reader.read())[0] == 200
        writer.close()

    run(scenario, limits=PATIENT)


def test_without_the_library_a_client_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(switching, "has_http2", lambda: False)

    async def scenario(serving: Serving, client: Client) -> None:
        code, text = await client.ended()
        assert (code, text) == (13, switching.MISSING)  # HTTP_1_1_REQUIRED
        assert (await serving.ask(request_of("GET", "/hello")))[0] == 200
        reader, writer = await serving.connect()
        writer.write(upgrade())
        assert (await serving.answer(reader))[0] == 200
        writer.close()

    beside(scenario)
    assert switching.alpn_protocols() == ["http/1.1"]


def test_a_stop_ends_bodies_that_have_no_end() -> None:
    """Each had ten seconds, although its client might send for days."""

    async def scenario(serving: Serving) -> None:
        async with connected(serving) as client:
            id = client.ask("/follow", first=POST, ends=False)
            client.send(id, b"abc")
            await until(lambda: serving.waiting == 3)
            await serving.server.stop()
            assert (await client.ended())[0] == NO_ERROR
            assert b'{"bytes":3}' in client._bytes  # after a GOAWAY the library reads no more

    run(scenario, limits=replace(PATIENT, stop_s=600))
