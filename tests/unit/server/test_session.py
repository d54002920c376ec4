"""One connection, byte by byte, over a transport that the test holds in its hand."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from begun_calls import as_handler
from felice.config import BrokerConfig
from felice.env import FileSlice, SystemClock, SystemDisk
from felice.protocol.api import API
from felice.protocol.frame_memory import FrameMemory
from felice.protocol.frames import encode_request
from felice.protocol.messages.delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from felice.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from felice.server.context import NO_REPLY, CloseConnection, RequestContext
from felice.server.flow.closings import Closings
from felice.server.flow.connection_limits import ConnectionLimits
from felice.server.flow.outbox import MAX_UNSENT_FILE_BYTES, Outbox
from felice.server.flow.pace import LargeRequests, Wakeups
from felice.server.flow.request_log import RequestLog
from felice.server.flow.request_memory import RequestMemory
from felice.server.flow.request_times import RequestMetrics
from felice.server.flow.turns import Turns
from felice.server.net.session import Session
from felice.server.quotas.client_quotas import ClientQuotas
from felice.server.services import Flow
from waiting import let_run, until

KEY, VERSION = 21, 1
MAX_FRAME_BYTES = 5_000_000
MAX_ELEMENTS = 3000


class HeldTransport(asyncio.Transport):
    """Keeps what is written; `room` says how many bytes the peer takes before the buffer fills."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.buffered = 0
        self.stuck = False
        self.reading = True
        self.aborted = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("10.0.0.1", 5) if name == "peername" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high == 0

    def get_write_buffer_size(self) -> int:
        return self.buffered

    def write(self, data: Any) -> None:
        self.written += data
        if self.stuck:
            self.buffered += len(data)

    def drain(self, session: Session) -> None:
        """The peer has read everything and goes on reading."""
        self.buffered, self.stuck = 0, False
        session.resume_writing()

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def abort(self) -> None:
        self.aborted = True

    def close(self) -> None:
        self.aborted = True


class Peer:
    """A session, its transport, and the handlers that the test gives it."""

    def __init__(
        self,
        handle: Callable[[Any, RequestContext], Any],
        max_pending: int = 500,
        turns: Turns | None = None,
        config: BrokerConfig | None = None,
        large_requests: LargeRequests | None = None,
        request_memory: RequestMemory | None = None,
    ) -> None:
        config = config or BrokerConfig(
            socket_request_max_bytes=MAX_FRAME_BYTES,
            queued_max_requests=max_pending,
            felice_request_max_elements=MAX_ELEMENTS,
            felice_turn_max_ms=60_000,  # turns end by requests and bytes, also on a slow machine
        )
        # A clock that stands still: the speed of this machine ends no turn.
        still = SimpleNamespace(monotonic=lambda: 0.0, now_ms=lambda: 0)
        self.turns = turns or Turns(still, lambda: config, lambda: [self.session])
        self.request_memory = request_memory or RequestMemory(config.queued_max_request_bytes)
        self.requests = RequestMetrics({KEY: API.DELETE_RECORDS, 0: API.PRODUCE})
        self.quotas = ClientQuotas(self.turns._clock, lambda: config)
        self.memory = FrameMemory(pool_bytes=4 * 1024 * 1024, map_from_bytes=1024 * 1024)
        self.listener = SimpleNamespace(
            name="PLAINTEXT",
            is_open=True,
            loop=asyncio.get_running_loop(),
            admit=lambda session: True,
            forget=lambda session: None,
            handlers=dict.fromkeys((KEY, 0), as_handler(handle)),
            services=SimpleNamespace(
                config=config,
                flow=Flow(
                    connections=ConnectionLimits(lambda: config, []),
                    turns=self.turns,
                    wakeups=Wakeups(SystemClock()),
                    large_requests=large_requests or LargeRequests(SystemClock()),
                    request_memory=self.request_memory,
                    frame_memory=self.memory,
                    closings=Closings(SystemClock().monotonic),
                    request_log=RequestLog(config, self.turns._clock.monotonic),
                ),
                env=SimpleNamespace(clock=self.turns._clock),  # sessions and turns share the broker's clock
                apis={KEY: API.DELETE_RECORDS, 0: API.PRODUCE},
                image_follower=SimpleNamespace(check_session=lambda: self.on_check()),
                metrics=SimpleNamespace(requests=self.requests),
                quotas=self.quotas,
            ),
        )
        self.on_check: Callable[[], None] = lambda: None
        self.session = Session(self.listener)  # type: ignore[arg-type]
        self.transport = HeldTransport()
        self.session.connection_made(self.transport)

    @property
    def outbox(self) -> Outbox:
        assert self.session._outbox is not None
        return self.session._outbox

    def feed(self, data: bytes, step: int = 1 << 20) -> None:
        view = memoryview(data)
        while view and self.transport.reading:
            buffer = self.session.get_buffer(-1)
            count = min(len(buffer), len(view), step)
            buffer[:count] = view[:count]
            self.session.buffer_updated(count)
            view = view[count:]

    def replies(self) -> list[tuple[int, int]]:
        """(correlation id, throttle_time_ms) of every whole reply so far; the test's handlers count in the latter."""
        found, position = [], 0
        while position < len(self.transport.written):
            size, correlation_id, value = struct.unpack_from(">iii", self.transport.written, position)
            found.append((correlation_id, value))
            position += 4 + size
        return found


def question(correlation_id: int) -> bytes:
    return encode_request(
        KEY, VERSION, correlation_id, "test", DeleteRecordsRequest(timeout_ms=correlation_id)
    )


def large_question(correlation_id: int, topics: int = 2000) -> bytes:
    asked = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="")] * topics, timeout_ms=correlation_id)
    return encode_request(KEY, VERSION, correlation_id, "test", asked)


def produce(size: int) -> bytes:
    data = [PartitionProduceData(index=0, records=bytes(size))]
    return encode_request(
        0, 3, 1, "test", ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=data)])
    )


def echo(request: Any, context: RequestContext) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(throttle_time_ms=request.timeout_ms)


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(scenario())  # type: ignore[arg-type]


@pytest.mark.parametrize("step", [1, 2, 3, 5, 7, 11, 1000])
def test_requests_are_understood_however_they_are_cut(step: int) -> None:
    async def scenario() -> None:
        peer = Peer(echo)
        peer.feed(b"".join(question(number) for number in range(40)), step)
        assert peer.replies() == [(number, number) for number in range(40)]

    run(scenario)


def test_replies_of_one_read_leave_in_one_write() -> None:
    async def scenario() -> None:
        peer = Peer(echo)
        writes: list[int] = []
        write = peer.transport.write
        peer.transport.write = lambda data: (writes.append(len(data)), write(data))[1]  # type: ignore[method-assign, func-returns-value]
        peer.feed(b"".join(question(number) for number in range(20)))
        assert len(writes) == 1

    run(scenario)


def test_replies_keep_the_order_of_requests_whatever_finishes_first() -> None:
    async def scenario() -> None:
        gates = {number: asyncio.get_running_loop().create_future() for number in range(6)}

        def handle(request: Any, context: RequestContext) -> Any:
            if request.timeout_ms % 2:
                return echo(request, context)

            async def later() -> DeleteRecordsResponse:
                await gates[request.timeout_ms]
                return echo(request, context)

            return later()

        peer = Peer(handle)
        peer.feed(b"".join(question(number) for number in range(6)))
        assert peer.replies() == []
        for number in (4, 2):
            gates[number].set_result(None)
            await let_run()
            assert peer.replies() == []
        gates[0].set_result(None)
        await until(lambda: peer.session.is_idle)
        assert [correlation_id for correlation_id, _ in peer.replies()] == [0, 1, 2, 3, 4, 5]
        assert peer.session.is_idle

    run(scenario)


@pytest.mark.parametrize("size", [0, 100, 32_000, 33_000, 100_000, 1_200_000, 4_900_000])
@pytest.mark.parametrize("step", [777, 1 << 20])
def test_frames_of_every_size_arrive_whole(size: int, step: int) -> None:
    async def scenario() -> None:
        seen: list[int] = []

        def handle(request: Any, context: RequestContext) -> Any:
            if isinstance(request, ProduceRequest):
                seen.append(len(request.topic_data[0].partition_data[0].records))
                return NO_REPLY
            return echo(request, context)

        peer = Peer(handle)
        peer.feed(question(1) + produce(size) + produce(5) + question(2), step)
        assert seen == [size, 5]
        assert [correlation_id for correlation_id, _ in peer.replies()] == [1, 2]

    run(scenario)


@pytest.mark.parametrize("size", [MAX_FRAME_BYTES + 1, 2**31 - 1, 0, -1, -(2**31)])
def test_a_frame_of_an_impossible_size_closes_the_connection_before_memory_is_taken(size: int) -> None:
    async def scenario() -> None:
        peer = Peer(echo)
        taken: list[int] = []
        peer.memory.take = taken.append  # type: ignore[assignment, method-assign]
        peer.feed(question(1) + struct.pack(">i", size))
        assert peer.transport.aborted
        assert not taken

    run(scenario)


@pytest.mark.parametrize(
    "frame",
    [
        b"\0",
        struct.pack(">hhih", 99, 0, 1, -1),  # no such API
        struct.pack(">hhih", KEY, 9, 1, -1),  # no such version
        struct.pack(">hhih", 0, 0, 1, -1),  # offered, but gone
        struct.pack(">hhih", KEY, VERSION, 1, -1) + b"\xff",  # cut short
        struct.pack(">hhih", KEY, VERSION, 1, 500),  # a client id longer than the frame
    ],
)
def test_what_cannot_be_understood_closes_the_connection(frame: bytes) -> None:
    async def scenario() -> None:
        peer = Peer(echo)
        peer.feed(struct.pack(">i", len(frame)) + frame)
        assert peer.transport.aborted
        assert not peer.transport.written

    run(scenario)


def test_a_handlers_word_or_fault_closes_the_connection() -> None:
    async def scenario() -> None:
        def refuse(request: Any, context: RequestContext) -> Any:
            raise CloseConnection("enough")

        async def fail_later() -> Any:
            raise RuntimeError("a fault of ours")

        for handle in (refuse, lambda request, context: fail_later()):
            peer = Peer(handle)
            peer.feed(question(1))
            await until(lambda peer=peer: peer.transport.aborted)  # type: ignore[misc]

    run(scenario)


def test_bytes_behind_a_request_are_let_be() -> None:
    async def scenario() -> None:
        peer = Peer(echo)
        frame = question(7)[4:] + b"\0\0\0"
        peer.feed(struct.pack(">i", len(frame)) + frame)
        assert peer.replies() == [(7, 7)]

    run(scenario)


def test_reading_stops_while_too_many_requests_wait_and_goes_on_after() -> None:
    async def scenario() -> None:
        waiting: list[asyncio.Future[DeleteRecordsResponse]] = []

        def handle(request: Any, context: RequestContext) -> Any:
            waiting.append(asyncio.get_running_loop().create_future())
            return waiting[-1]

        peer = Peer(handle, max_pending=3)
        peer.feed(b"".join(question(number) for number in range(5)))
        assert len(waiting) == 3
        assert not peer.transport.reading
        assert not peer.session.is_idle
        for number in range(5):
            await until(lambda number=number: number < len(waiting))  # type: ignore[misc]
            waiting[number].set_result(DeleteRecordsResponse(throttle_time_ms=number))
        await until(lambda: peer.session.is_idle)
        assert [correlation_id for correlation_id, _ in peer.replies()] == [0, 1, 2, 3, 4]
        assert peer.transport.reading

    run(scenario)


def test_answers_given_at_once_leave_room_for_the_requests_behind_them() -> None:
    async def scenario() -> None:
        peer = Peer(echo, max_pending=3)
        peer.feed(b"".join(question(number) for number in range(10)))
        assert peer.replies() == [(number, number) for number in range(10)]
        assert peer.transport.reading

    run(scenario)


def test_reading_stops_while_too_much_is_unsent_and_goes_on_after(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "big"
        path.write_bytes(bytes(1000))
        file = SystemDisk().open(path, read_only=True)
        piece = FileSlice(file, 0, MAX_UNSENT_FILE_BYTES + 1)

        peer = Peer(echo)
        peer.transport.stuck = True
        peer.feed(question(0))  # fills the transport's buffer
        outbox = peer.outbox
        outbox.count([piece])
        outbox._parts.append(piece)
        peer.feed(question(1) + question(2))
        assert not peer.transport.reading
        outbox._parts.clear()
        outbox.file_bytes = 0
        peer.transport.drain(peer.session)
        await until(lambda: peer.transport.reading)
        assert [correlation_id for correlation_id, _ in peer.replies()] == [0, 1, 2]
        file.close()

    run(scenario)


def test_nothing_is_written_past_a_full_transport() -> None:
    async def scenario() -> None:
        peer = Peer(echo)
        peer.transport.stuck = True
        peer.feed(question(0))
        peer.feed(question(1))
        peer.feed(question(2))
        assert len(peer.replies()) == 1
        assert not peer.session.is_idle
        peer.transport.drain(peer.session)
        assert len(peer.replies()) == 3

    run(scenario)


def test_a_slice_that_ends_early_closes_rather_than_lie(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "short"
        path.write_bytes(b"12345")
        file = SystemDisk().open(path, read_only=True)
        peer = Peer(echo)
        peer.outbox.send([FileSlice(file, 0, 9)])
        assert peer.transport.aborted
        file.close()

    run(scenario)


def test_a_lost_connection_stops_what_it_waited_for() -> None:
    async def scenario() -> None:
        state: list[str] = []
        begun = asyncio.Event()

        async def wait() -> DeleteRecordsResponse:
            begun.set()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                state.append("cancelled")
                raise
            return DeleteRecordsResponse()

        peer = Peer(lambda request, context: wait())
        peer.feed(question(1))
        await begun.wait()
        peer.session.connection_lost(None)
        await until(lambda: state)
        assert state == ["cancelled"]
        # And one that was lost before its handler could begin leaves no warning behind.
        peer = Peer(lambda request, context: wait())
        peer.feed(question(1))
        peer.session.connection_lost(None)
        await let_run()

    run(scenario)


class SlowClock(SystemClock):
    """Every look at it takes a second."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        self.now += 1.0
        return self.now


def test_a_large_request_is_handled_before_those_behind_it() -> None:
    async def scenario() -> None:
        handled: list[int] = []

        def handle(request: Any, context: RequestContext) -> DeleteRecordsResponse:
            handled.append(request.timeout_ms)
            return echo(request, context)

        peer = Peer(handle)
        peer.feed(question(1) + large_question(2) + question(3) + large_question(4) + question(5))
        assert handled == [1], "the large one waits for its turn, and the others for it"
        assert not peer.transport.reading
        await until(lambda: len(peer.replies()) == 5)
        assert handled == [1, 2, 3, 4, 5]
        assert peer.replies() == [(number, number) for number in range(1, 6)]
        assert peer.transport.reading

    run(scenario)


def test_the_brokers_session_is_checked_again_when_a_large_request_has_its_turn() -> None:
    """It may have ended while the request waited: the process may have been suspended."""

    async def scenario() -> None:
        seen: list[str] = []

        def handle(request: Any, context: RequestContext) -> DeleteRecordsResponse:
            seen.append("handled")
            return echo(request, context)

        peer = Peer(handle)
        peer.on_check = lambda: seen.append("checked")
        peer.feed(large_question(1))
        assert seen == []
        await until(lambda: len(peer.replies()) == 1)
        assert seen == ["checked", "handled"]

    run(scenario)


def test_large_requests_of_many_connections_are_handled_one_in_a_turn_of_the_loop() -> None:
    async def scenario() -> None:
        turn = 0
        turns_of_large, small = [], []

        def handle(request: Any, context: RequestContext) -> DeleteRecordsResponse:
            (turns_of_large if request.topics else small).append(turn)
            return echo(request, context)

        shared = LargeRequests(SystemClock())
        peers = [Peer(handle, large_requests=shared) for _ in range(5)]
        healthy = Peer(handle, large_requests=shared)
        for peer in peers:
            peer.feed(large_question(1))
        while len(turns_of_large) < 5:
            turn += 1
            healthy.feed(question(turn))
            await asyncio.sleep(0)
            assert turn < 100_000
        assert len(set(turns_of_large)) == 5
        assert len(small) == turn, "a small request never waits"

    run(scenario)


def test_after_a_large_request_the_next_waits_as_long_as_it_worked(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        waits: list[float] = []
        sleep = asyncio.sleep

        async def noted(seconds: float) -> None:
            waits.append(seconds)
            await sleep(0)

        monkeypatch.setattr(asyncio, "sleep", noted)
        large = LargeRequests(clock := SlowClock())
        for _ in range(2):
            async with large.turn():
                clock.now += 10.0
        assert waits[0] == 0.0
        assert waits[1] >= 10.0

    run(scenario)


def test_a_request_with_too_many_elements_closes_the_connection_unread() -> None:
    async def scenario() -> None:
        handled: list[Any] = []
        peer = Peer(lambda request, context: handled.append(request))
        peer.feed(large_question(1, topics=MAX_ELEMENTS + 1))
        assert peer.transport.aborted
        assert handled == []

    run(scenario)


def test_a_malformed_large_request_closes_the_connection() -> None:
    async def scenario() -> None:
        handled: list[Any] = []
        peer = Peer(lambda request, context: handled.append(request))
        whole = large_question(1)[4:-10]
        peer.feed(struct.pack(">i", len(whole)) + whole)
        await until(lambda: peer.transport.aborted)
        assert handled == []

    run(scenario)


def test_a_client_that_leaves_gives_its_turn_to_the_next() -> None:
    async def scenario() -> None:
        handled: list[str] = []
        shared = LargeRequests(SystemClock())
        left, stays = (
            Peer(
                lambda request, context, name=name: handled.append(name) or echo(request, context),
                large_requests=shared,
            )
            for name in ("left", "stays")
        )
        left.feed(large_question(1) + question(2))
        stays.feed(large_question(1))
        left.session.connection_lost(None)
        await until(lambda: bool(stays.replies()))
        assert handled == ["stays"]

    run(scenario)


def test_a_fault_of_a_handler_is_reported_also_after_its_connection_was_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        async def handle(request: Any, context: RequestContext) -> Any:
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                raise RuntimeError("a fault of ours")

        peer = Peer(handle)
        peer.feed(question(1))
        peer.session.connection_lost(None)
        await until(lambda: "a request failed" in caplog.messages)

    run(scenario)


def test_a_request_whose_work_was_cancelled_at_once_ends_its_connection_only() -> None:
    async def scenario() -> None:
        cancelled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        cancelled.cancel()

        async def handle(request: Any, context: RequestContext) -> Any:
            await cancelled

        peer = Peer(handle)
        peer.feed(question(1))
        assert peer.transport.aborted

    run(scenario)
