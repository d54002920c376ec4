"""Connections against clients that are slow, that stop, or that mean no good."""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import replace

import pytest

import strangers
from felice.web.crowd import BURST
from felice.web.limits import Limits
from unit.web.serving_app import Serving, parse, request_of, run
from waiting import until

# No limit of time helps: those that have waited longest for their clients give way.
PATIENT = Limits(head_s=600, body_s=600, linger_s=600, unread_s=600, idle_s=600, stop_s=0.1)
LARGE = b"x" * 5_000_000


@pytest.mark.parametrize("kind", strangers.KINDS)
@pytest.mark.parametrize("count", [32, 300])
def test_strangers_keep_nobody_out(kind: str, count: int) -> None:
    async def scenario(serving: Serving) -> None:
        def ask() -> None:
            with strangers.strangers(serving.port, kind, count, "/count" if "body" in kind else "/large"):
                for _ in range(3):
                    assert strangers.get(serving.port, "/hello") == (200, b"hello\n")
                assert strangers.get(serving.port, "/large") == (200, LARGE)

        await asyncio.to_thread(ask)
        assert len(serving.crowd) <= PATIENT.connections + BURST

    run(scenario, limits=PATIENT, access_log=False)


def test_strangers_are_gone_soon_also_if_nobody_else_comes() -> None:
    async def scenario(serving: Serving) -> None:
        opened = [await serving.connect() for _ in range(150)]
        for _, writer in opened[:75]:
            writer.write(b"POST /count HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n")
        await until(lambda: len(serving.crowd) <= PATIENT.half_requests)
        for _, writer in opened:
            writer.close()

    run(scenario, limits=PATIENT)


def test_one_connection_serves_many_requests_in_their_order() -> None:
    async def scenario(serving: Serving) -> None:
        reader, writer = await serving.connect()
        for number in range(3):
            writer.write(request_of("GET", f"/names/{number}", close=False))
            assert json.loads((await serving.answer(reader))[2]) == {"name": str(number)}
        writer.write(b"".join(request_of("GET", f"/names/{n}", close=False) for n in range(20)))
        answers = [json.loads((await serving.answer(reader))[2])["name"] for _ in range(20)]
        assert answers == [str(number) for number in range(20)]
        assert len(serving.crowd) == 1
        writer.close()

    run(scenario)


@pytest.mark.parametrize("first", ["Content-Length: 5", "Transfer-Encoding: chunked"])
def test_a_body_with_two_ends_is_refused_and_nothing_after_it_is_read(first: str) -> None:
    async def scenario(serving: Serving) -> None:
        reader, writer = await serving.connect()
        both = [first, *({"Content-Length: 5", "Transfer-Encoding: chunked"} - {first})]
        head = "\r\n".join(["POST /count HTTP/1.1", "Host: localhost", *both])
        writer.write(f"{head}\r\n\r\n0\r\n\r\n".encode() + request_of("GET", "/hello"))
        status, headers, body = await serving.answer(reader)
        assert (status, headers["connection"]) == (400, "close")
        assert json.loads(body)["message"] == "a request has Content-Length or Transfer-Encoding, not both"
        assert await reader.read() == b""
        writer.close()

    run(scenario)


def test_a_head_may_arrive_byte_by_byte() -> None:
    async def scenario(serving: Serving) -> None:
        reader, writer = await serving.connect()
        for byte in request_of("GET", "/hello"):
            writer.write(bytes([byte]))
            await asyncio.sleep(0)
        assert parse(await reader.read())[2] == b"hello\n"
        writer.close()

    run(scenario)


def test_a_head_that_does_not_end_is_refused_although_bytes_come() -> None:
    async def scenario(serving: Serving) -> None:
        reader, writer = await serving.connect()
        writer.write(b"GET /hello HTTP/1.1\r\nX-Slow: ")
        answer = asyncio.ensure_future(serving.answer(reader))
        while not answer.done():
            writer.write(b"x")
            await asyncio.sleep(0.02)
        status, _, body = answer.result()
        assert status == 408
        assert json.loads(body)["message"] == "the head of the request did not arrive in 0.2 s"
        writer.close()

    run(scenario, limits=Limits(head_s=0.2))


def test_a_connection_without_a_request_is_closed_without_an_answer() -> None:
    async def scenario(serving: Serving) -> None:
        reader, writer = await serving.connect()
        assert await reader.read() == b""
        writer.close()

    run(scenario, limits=Limits(head_s=0.1))


def test_a_body_that_comes_byte_by_byte_is_refused_at_its_limit_of_time() -> None:
    async def scenario(serving: Serving) -> None:
        reader, writer = await serving.connect()
        writer.write(request_of("POST", "/count", headers={"Content-Length": "100000"}))
        answer = asyncio.ensure_future(serving.answer(reader))
        while not answer.done():
            writer.write(b"x")
            await asyncio.sleep(0.02)
        assert answer.result()[0] == 408
        writer.close()

    run(scenario, limits=Limits(body_s=0.3, linger_s=0.1))


def test_a_connection_that_is_not_used_again_is_closed() -> None:
    async def scenario(serving: Serving) -> None:
        reader, writer = await serving.connect()
        writer.write(request_of("GET", "/hello", close=False))
        assert parse(await reader.read())[2] == b"hello\n"
        writer.close()

    run(scenario, limits=Limits(idle_s=0.2))


def test_a_client_that_sends_all_before_it_reads_gets_the_refusal_of_its_body() -> None:
    async def scenario(serving: Serving) -> None:
        reader, writer = await serving.connect()
        writer.write(request_of("POST", "/count", b"x" * 30_000_000))
        await writer.drain()
        status, _, _ = parse(await reader.read())
        assert status == 413
        writer.close()

    run(scenario, limits=Limits(linger_s=60))


def test_the_rest_of_a_body_that_nobody_wants_is_dropped_and_the_connection_used_again() -> None:
    async def scenario(serving: Serving) -> None:
        reader, writer = await serving.connect()
        request = request_of("GET", "/hello", b"x" * 1_000_000, close=False)
        writer.write(request[:500_000])
        assert (await serving.answer(reader))[2] == b"hello\n"  # before the whole request is there
        writer.write(request[500_000:] + request_of("GET", "/names/next"))
        assert json.loads((await serving.answer(reader))[2]) == {"name": "next"}
        writer.close()

    run(scenario, limits=PATIENT)


def test_a_body_that_nobody_wants_and_that_does_not_end_is_dropped_for_a_limited_time() -> None:
    async def scenario(serving: Serving) -> None:
        reader, writer = await serving.connect()
        writer.write(request_of("GET", "/hello", headers={"Content-Length": "9000000"}, close=False))
        assert (await serving.answer(reader))[2] == b"hello\n"
        while serving.connections:
            writer.write(b"x")
            await asyncio.sleep(0.02)
        writer.close()

    run(scenario, limits=replace(PATIENT, linger_s=0.2))


def test_a_client_that_waits_to_be_told_to_go_on_is_told_only_if_its_body_is_wanted() -> None:
    expect = {"Expect": "100-continue", "Content-Length": "5"}

    async def scenario(serving: Serving) -> None:
        reader, writer = await serving.connect()
        writer.write(request_of("POST", "/count", headers=expect))
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
        writer.write(b"hello")
        assert json.loads(parse(await reader.read())[2]) == {"bytes": 5}
        writer.close()
        for path, status in (("/nothing", 404), ("/hello", 405)):
            assert (await serving.ask(request_of("POST", path, headers=expect)))[0] == status
        too_large = {**expect, "Content-Length": "99999999"}
        assert (await serving.ask(request_of("POST", "/count", headers=too_large)))[0] == 413

    run(scenario, limits=PATIENT)


def test_a_request_above_those_that_are_being_answered_is_refused_at_once() -> None:
    async def scenario(serving: Serving) -> None:
        waiting = [await serving.connect() for _ in range(2)]
        for _, writer in waiting:
            writer.write(request_of("GET", "/wait"))
        await until(lambda: serving.waiting == 2)
        status, headers, body = await serving.ask(request_of("GET", "/hello"))
        assert (status, headers["retry-after"]) == (503, "1")
        assert json.loads(body)["message"] == "2 requests are being answered; try again"
        serving.go_on.set()
        for reader, writer in waiting:
            assert parse(await reader.read())[2] == b"waited\n"
            writer.close()
        assert (await serving.ask(request_of("GET", "/hello")))[0] == 200

    run(scenario, limits=Limits(connections=2))


def test_a_slow_reader_gets_a_large_answer_whole() -> None:
    async def scenario(serving: Serving) -> None:
        reader, writer = await serving.connect()
        writer.write(request_of("GET", "/large"))
        parts = []
        while part := await reader.read(100_000):
            parts.append(part)
            await asyncio.sleep(0.002)
        assert parse(b"".join(parts))[2] == LARGE
        writer.close()

    run(scenario, limits=Limits(unread_s=30))


def test_a_client_that_does_not_read_keeps_little_memory_and_is_cut() -> None:
    async def scenario(serving: Serving) -> None:
        reader, writer = await serving.connect()
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(request_of("GET", "/large") * 1)
        await until(lambda: serving.connections)
        (connection,) = serving.connections
        await until(lambda: connection.flow.write_paused)
        assert connection.transport.get_write_buffer_size() < 200_000
        await until(lambda: not serving.connections)
        writer.close()

    run(scenario, limits=Limits(unread_s=0.5))


def test_a_small_answer_that_is_not_read_does_not_keep_the_connection() -> None:
    async def scenario(serving: Serving) -> None:
        reader, writer = await serving.connect()
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        for _ in range(200):
            writer.write(request_of("GET", "/large", close=False))
        await until(lambda: serving.connections)
        await until(lambda: not serving.connections)
        writer.close()

    run(scenario, limits=Limits(unread_s=0.3, idle_s=0.3))


def test_a_handler_ends_when_the_body_that_it_waits_for_turns_out_malformed() -> None:
    async def scenario(serving: Serving) -> None:
        reader, writer = await serving.connect()
        writer.write(request_of("POST", "/count", headers={"Transfer-Encoding": "chunked"}))
        writer.write(b"5\r\nhello\r\n")
        await until(lambda: serving.tasks)
        writer.write(b"five\r\n")
        assert parse(await reader.read())[0] == 400
        await until(lambda: not serving.tasks)
        writer.close()

    run(scenario, limits=PATIENT)


def test_a_client_that_goes_away_ends_its_request(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(serving: Serving) -> None:
        _, writer = await serving.connect()
        writer.write(request_of("POST", "/count", headers={"Content-Length": "5"}))
        await until(lambda: serving.tasks)
        writer.close()
        await until(lambda: not serving.tasks and not serving.connections)

    run(scenario)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_the_head_of_a_later_request_has_its_limit_of_time_too() -> None:
    async def scenario(serving: Serving) -> None:
        reader, writer = await serving.connect()
        writer.write(request_of("GET", "/hello", close=False))
        assert (await serving.answer(reader))[0] == 200
        writer.write(b"GET /hello HTTP/1.1\r\n")
        assert (await serving.answer(reader))[0] == 408
        writer.close()

    run(scenario, limits=replace(PATIENT, head_s=0.3))


def test_a_client_that_goes_on_sending_gets_the_refusal_of_its_head() -> None:
    async def scenario(serving: Serving) -> None:
        reader, writer = await serving.connect()
        writer.write(b"nonsense\r\n\r\n")
        await until(lambda: any(found._is_refused for found in serving.connections))
        for _ in range(50):
            writer.write(b"x" * 100_000)
            await writer.drain()
        assert parse(await reader.read())[0] == 400
        writer.close()

    run(scenario, limits=PATIENT)


def test_a_client_that_keeps_its_connection_after_a_refusal_loses_it() -> None:
    async def scenario(serving: Serving) -> None:
        _, writer = await serving.connect()
        writer.write(b"nonsense\r\n\r\n")
        await until(lambda: any(found._is_refused for found in serving.connections))
        while serving.connections:
            writer.write(b"x")
            await asyncio.sleep(0.02)
        writer.close()

    run(scenario, limits=replace(PATIENT, linger_s=0.2))


def test_a_head_that_has_arrived_is_not_late_if_it_was_not_read_yet() -> None:
    async def scenario(serving: Serving) -> None:
        reader, writer = await serving.connect()
        await until(lambda: serving.connections)
        (connection,) = serving.connections
        connection.transport.pause_reading()
        writer.write(request_of("GET", "/hello"))
        await until(connection.has_bytes)
        await asyncio.sleep(0.5)
        connection.transport.resume_reading()
        assert parse(await reader.read())[0] == 200
        writer.close()

    run(scenario, limits=Limits(head_s=0.3))


def test_bytes_that_wait_in_the_socket_are_seen() -> None:
    async def scenario(serving: Serving) -> None:
        _, writer = await serving.connect()
        await until(lambda: serving.connections)
        (connection,) = serving.connections
        assert not connection.has_bytes()
        connection.transport.pause_reading()
        writer.write(b"GET")
        await until(connection.has_bytes)
        connection.transport.resume_reading()
        await until(lambda: not connection.has_bytes())
        connection.transport.abort()
        await until(lambda: not serving.connections)
        assert not connection.has_bytes()
        writer.close()

    run(scenario, limits=PATIENT)
