import asyncio
import socket
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from felice.client.blocking.link import BlockingLink
from felice.client.error import KafkaError, KafkaException
from felice.client.net.connection import Connection, connect
from felice.env import SystemNetwork
from felice.protocol.errors import ErrorCode
from felice.protocol.frames import encode_request, encode_response
from felice.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from felice.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from felice.protocol.messages.metadata import MetadataRequest, MetadataResponse
from felice.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from unit.client.fake_broker import Disconnect, FakeBroker, Hang
from waiting import LIMIT_S, until


def run(broker: FakeBroker, use: Any) -> Any:
    async def main() -> Any:
        connection = await connect(
            SystemNetwork(), "127.0.0.1", broker.port, client_id="test", timeout_s=LIMIT_S
        )
        try:
            return await use(connection)
        finally:
            connection.close()
            await asyncio.sleep(0)

    return asyncio.run(main())


def failing(work: Coroutine[Any, Any, Any]) -> KafkaError:
    with pytest.raises(KafkaException) as caught:
        asyncio.run(work)
    error = caught.value.args[0]
    assert isinstance(error, KafkaError)
    return error


def test_requests_are_pipelined_and_each_gets_its_own_reply() -> None:
    async def use(connection: Connection) -> list[str]:
        requests = [MetadataRequest(topics=[]) for _ in range(20)]
        replies = await asyncio.gather(*(connection.call(request, LIMIT_S) for request in requests))
        return [reply.cluster_id for reply in replies]

    with FakeBroker() as broker:
        assert run(broker, use) == ["fake"] * 20


def test_large_reply_arrives_whole_among_small_ones() -> None:
    data = bytes(range(256)) * 2000
    row = PartitionData(partition_index=0, records=data, aborted_transactions=[])
    big = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[row])])

    async def use(connection: Connection) -> Any:
        small, large, after = await asyncio.gather(
            connection.call(MetadataRequest(topics=[]), LIMIT_S),
            connection.call(FetchRequest(), LIMIT_S),
            connection.call(MetadataRequest(topics=[]), LIMIT_S),
        )
        assert small.cluster_id == after.cluster_id == "fake"
        return bytes(large.responses[0].partitions[0].records)

    with FakeBroker() as broker:
        broker.script(FetchRequest, big)
        assert run(broker, use) == data


def test_version_is_the_highest_that_both_know() -> None:
    async def use(connection: Connection) -> None:
        await connection.call(MetadataRequest(topics=[]), LIMIT_S)

    with FakeBroker(ranges={18: (0, 4), 3: (0, 8)}) as broker:
        run(broker, use)
        assert broker.requests[-1][1] == 8


def test_api_that_the_broker_lacks_or_has_too_new_is_named() -> None:
    async def use(connection: Connection) -> list[str]:
        texts = []
        for request in (MetadataRequest(topics=[]), FetchRequest()):
            with pytest.raises(KafkaException) as caught:
                await connection.call(request, LIMIT_S)
            texts.append(caught.value.args[0].str())
        return texts

    with FakeBroker(ranges={18: (0, 4), 1: (50, 60)}) as broker:
        metadata, fetch = run(broker, use)
    assert "does not offer Metadata" in metadata
    assert "Fetch" in fetch and "50-60" in fetch


def test_api_versions_is_retried_in_a_version_that_the_broker_knows() -> None:
    refusal = ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[ApiVersion(api_key=18, min_version=0, max_version=2)],
    )

    async def use(connection: Connection) -> None:
        await connection.call(MetadataRequest(topics=[]), LIMIT_S)

    with FakeBroker() as broker:
        broker.script(ApiVersionsRequest, (refusal, 0))
        run(broker, use)
        assert [v for request, v in broker.requests if isinstance(request, ApiVersionsRequest)] == [4, 2]


def test_missing_reply_times_out_with_address_and_api() -> None:
    async def use(connection: Connection) -> str:
        with pytest.raises(KafkaException) as caught:
            await connection.call(MetadataRequest(topics=[]), 0.05)
        assert caught.value.args[0].code() == KafkaError._TIMED_OUT
        return caught.value.args[0].str()

    with FakeBroker() as broker:
        broker.script(MetadataRequest, Hang)
        text = run(broker, use)
        assert f"127.0.0.1:{broker.port}" in text and "Metadata" in text and "50 ms" in text


def test_lost_connection_fails_all_waiting_requests_at_once() -> None:
    async def use(connection: Connection) -> None:
        calls = [connection.call(MetadataRequest(topics=[]), 10 * LIMIT_S) for _ in range(3)]
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(result, KafkaException) and result.args[0].retriable() for result in results)
        with pytest.raises(KafkaException):
            await connection.call(MetadataRequest(topics=[]), LIMIT_S)

    started = time.monotonic()
    with FakeBroker() as broker:
        broker.script(MetadataRequest, Disconnect)
        run(broker, use)
    assert time.monotonic() - started < LIMIT_S


def test_unreachable_address_is_named_with_its_reason() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]  # bound, so that no other process gets it, but nothing listens
        error = failing(connect(SystemNetwork(), "127.0.0.1", port, client_id="c", timeout_s=LIMIT_S))
        assert error.code() == KafkaError._TRANSPORT and f"127.0.0.1:{port}" in error.str()
        with pytest.raises(KafkaException, match=f"127.0.0.1:{port}"):
            BlockingLink("127.0.0.1", port, client_id="c", connect_s=LIMIT_S, request_s=LIMIT_S)


def test_name_that_does_not_resolve_is_named() -> None:
    error = failing(connect(SystemNetwork(), "no.such.host.invalid", 9092, client_id="c", timeout_s=LIMIT_S))
    assert error.code() == KafkaError._RESOLVE and "no.such.host.invalid" in error.str()


def test_peer_with_another_protocol_is_detected() -> None:
    async def main() -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            await connect(SystemNetwork(), "127.0.0.1", port, client_id="c", timeout_s=LIMIT_S)

    error = failing(main())
    assert error.code() == KafkaError._TRANSPORT and "does not speak Kafka" in error.str()


def test_blocking_link_times_out_and_closes() -> None:
    with FakeBroker() as broker:
        link = BlockingLink("127.0.0.1", broker.port, client_id="c", connect_s=LIMIT_S, request_s=0.1)
        broker.script(MetadataRequest, Hang)
        with pytest.raises(KafkaException) as caught:
            link.call(MetadataRequest(topics=[]))
        assert caught.value.args[0].code() == KafkaError._TIMED_OUT
        assert link.closed


@pytest.mark.parametrize(("limit_s", "silence_s", "given_up"), [(0.3, 0.2, True), (0.05, LIMIT_S, False)])
def test_connection_silent_for_the_whole_request_timeout_is_closed(
    limit_s: float, silence_s: float, given_up: bool
) -> None:
    async def main() -> bool:
        connection = await connect(
            SystemNetwork(),
            "127.0.0.1",
            broker.port,
            client_id="test",
            timeout_s=LIMIT_S,
            silence_s=silence_s,
        )
        with pytest.raises(KafkaException):
            await connection.call(MetadataRequest(topics=[]), limit_s)
        closed = connection.closed
        connection.close()
        await asyncio.sleep(0)
        return closed

    with FakeBroker() as broker:
        broker.script(MetadataRequest, Hang)
        assert asyncio.run(main()) is given_up


class RecordingTransport(asyncio.Transport):
    """Keeps each piece that is written."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[Any] = []

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def write(self, data: Any) -> None:
        self.pieces.append(data)

    def is_closing(self) -> bool:
        return False


def test_large_batches_are_written_without_a_copy_in_the_order_of_the_request() -> None:
    batches = [
        bytearray(b"a" * 100),
        bytearray(b"b" * 70_000),
        bytearray(b"c" * 100),
        bytearray(b"d" * 80_000),
    ]
    topics = [
        TopicProduceData(name=f"t{number}", partition_data=[PartitionProduceData(index=0, records=batch)])
        for number, batch in enumerate(batches)
    ]
    request = ProduceRequest(transactional_id=None, acks=0, timeout_ms=1, topic_data=topics)

    async def send() -> list[Any]:
        transport = RecordingTransport()
        connection = Connection("broker:1", "test")
        connection.connection_made(transport)
        connection.versions.ranges[0] = (9, 9)
        await connection.send_unanswered(request, LIMIT_S)
        return transport.pieces

    pieces = asyncio.run(send())
    assert b"".join(pieces) == encode_request(0, 9, 0, "test", request)
    owners = [piece.obj for piece in pieces if isinstance(piece, memoryview)]
    assert [any(owner is batch for owner in owners) for batch in batches] == [False, True, False, True]
    assert len(pieces) == 5


class FakeSocket:
    """Keeps the values of its options."""

    def __init__(self) -> None:
        self.values: list[int] = []

    def setsockopt(self, level: int, option: int, value: int) -> None:
        self.values.append(value)

    def fileno(self) -> int:
        return -1


class SocketTransport(RecordingTransport):
    """A transport with a socket, whose connection can be aborted."""

    def __init__(self) -> None:
        super().__init__()
        self.socket = FakeSocket()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.socket if name == "socket" else default

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False

    def abort(self) -> None: ...


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a low-water mark")
@pytest.mark.parametrize("more_comes", [True, False])
def test_a_timeout_reads_what_waits_below_the_low_water_mark_before_it_closes(more_comes: bool) -> None:
    def receive(connection: Connection, data: bytes) -> None:
        connection.get_buffer(-1)[: len(data)] = data
        connection.buffer_updated(len(data))

    async def main() -> tuple[list[int], bool]:
        transport = SocketTransport()
        connection = Connection("broker:1", "test", silence_s=0.01)
        connection.connection_made(transport)
        connection.versions.ranges[3] = (9, 9)
        call = asyncio.create_task(connection.call(MetadataRequest(topics=[]), 0.05))
        await asyncio.sleep(0)
        receive(connection, (1 << 19).to_bytes(4, "big"))
        with pytest.raises(KafkaException):
            await call
        if more_comes:
            receive(connection, bytes(10))
            await asyncio.sleep(0.3)
        else:
            await until(lambda: connection.closed)
        return transport.socket.values, connection.closed

    values, closed = asyncio.run(main())
    assert values[:2] == [1 << 19, 1]
    assert closed is not more_comes


class QuietTransport(RecordingTransport):
    def abort(self) -> None: ...


SILENCE_S = 0.2


def beside_silence(
    use: Callable[[Connection, Callable[[float], asyncio.Task[Any]]], Coroutine[Any, Any, None]],
) -> None:
    """Runs `use` with a connection on which nothing comes, and a function that sends a request with a time limit."""

    async def main() -> None:
        connection = Connection("broker:1", "test", silence_s=SILENCE_S)
        connection.connection_made(QuietTransport())
        connection.versions.ranges[3] = (9, 9)

        def ask(limit_s: float) -> asyncio.Task[Any]:
            return asyncio.create_task(connection.call(MetadataRequest(topics=[]), limit_s))

        await use(connection, ask)
        connection.close()

    asyncio.run(main())


async def timed_out(call: asyncio.Task[Any]) -> bool:
    with pytest.raises(KafkaException) as failed:
        await call
    return failed.value.code == KafkaError._TIMED_OUT


@pytest.mark.parametrize("ends", ["timed out", "given up"])
def test_a_request_with_a_longer_limit_keeps_its_connection_while_later_ones_end(ends: str) -> None:
    """A broker that works on it answers nothing else meanwhile: responses are sent in the order of the requests."""

    async def use(connection: Connection, ask: Callable[[float], asyncio.Task[Any]]) -> None:
        long = ask(LIMIT_S)
        await asyncio.sleep(0)
        later = ask(SILENCE_S)
        await asyncio.sleep(0)
        if ends == "given up":
            later.cancel()
        else:
            assert await timed_out(later)
        await asyncio.sleep(3 * SILENCE_S)
        assert not connection.closed
        frame = encode_response(3, 9, 0, MetadataResponse(cluster_id="answered"))
        connection.get_buffer(-1)[: len(frame)] = frame
        connection.buffer_updated(len(frame))
        assert (await long).cluster_id == "answered"
        # The later request is still without an answer, and nothing excuses that any more.
        await until(lambda: connection.closed)

    beside_silence(use)


def test_a_request_with_a_longer_limit_does_not_excuse_an_earlier_one() -> None:
    async def use(connection: Connection, ask: Callable[[float], asyncio.Task[Any]]) -> None:
        first = ask(SILENCE_S)
        await asyncio.sleep(0)
        long = ask(LIMIT_S)
        assert await timed_out(first)
        assert not await timed_out(long)
        assert connection.closed

    beside_silence(use)


def test_a_request_with_a_longer_limit_that_was_given_up_excuses_no_other() -> None:
    async def use(connection: Connection, ask: Callable[[float], asyncio.Task[Any]]) -> None:
        long = ask(LIMIT_S)
        await asyncio.sleep(0)
        long.cancel()
        await timed_out(ask(SILENCE_S))
        await until(lambda: connection.closed)

    beside_silence(use)


def test_a_request_with_a_longer_limit_that_is_over_closes_its_connection() -> None:
    async def use(connection: Connection, ask: Callable[[float], asyncio.Task[Any]]) -> None:
        assert await timed_out(ask(2 * SILENCE_S))
        await until(lambda: connection.closed)

    beside_silence(use)


class PausingTransport(RecordingTransport):
    """Pauses its protocol when the limits are set, as TLS does while the end of its handshake waits."""

    protocol: Connection

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert (high, low) == (1, 0)
        self.protocol.pause_writing()

    def abort(self) -> None:
        pass


def test_requests_wait_while_the_end_of_a_tls_handshake_does() -> None:
    async def send() -> tuple[int, int]:
        transport = PausingTransport()
        connection = transport.protocol = Connection("broker:1", "test")
        connection.versions.ranges[0] = (9, 9)
        connection.connection_made(transport)
        request = ProduceRequest(transactional_id=None, acks=0, timeout_ms=1, topic_data=[])
        sending = asyncio.ensure_future(connection.send_unanswered(request, LIMIT_S))
        await asyncio.sleep(0)
        before = len(transport.pieces)
        connection.resume_writing()
        await sending
        return before, len(transport.pieces)

    assert asyncio.run(send()) == (0, 1)


@pytest.mark.parametrize("is_taken", [True, False])
def test_a_request_without_a_response_waits_until_the_socket_has_taken_it(is_taken: bool) -> None:
    async def send() -> str:
        transport = PausingTransport()
        connection = transport.protocol = Connection("broker:1", "test")
        connection.versions.ranges[0] = (9, 9)
        connection.connection_made(transport)
        request = ProduceRequest(transactional_id=None, acks=0, timeout_ms=1, topic_data=[])
        sending = asyncio.ensure_future(connection.send_unanswered(request, LIMIT_S if is_taken else 0.05))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not sending.done()
        if is_taken:
            connection.resume_writing()
        try:
            await sending
        except KafkaException as error:
            return str(error.error.str())
        return "sent"

    wanted = "sent" if is_taken else "broker:1: the broker did not receive a whole request in 50 ms"
    assert asyncio.run(send()).endswith(wanted)
