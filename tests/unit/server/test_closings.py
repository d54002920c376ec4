"""Log lines for closed connections, and their limits."""

from __future__ import annotations

import asyncio
import io
import logging
import struct
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from felice.protocol.messages.delete_records import DeleteRecordsResponse
from felice.server.flow.client_lines import MAX_LINES_PER_MINUTE
from felice.server.flow.closings import Closing, Closings
from felice.server.process.logs import MAX_VALUE_CHARACTERS, configure_logs
from unit.server.test_session import KEY, Peer, echo, question


def frame(api_key: int, version: int, client_id: bytes = b"burrow") -> bytes:
    body = struct.pack(">hhih", api_key, version, 1, len(client_id)) + client_id
    return struct.pack(">i", len(body)) + body


def closed_by(data: bytes) -> Peer:
    async def scenario() -> Peer:
        peer = Peer(echo)
        peer.feed(data)
        assert peer.transport.aborted
        return peer

    return asyncio.run(scenario())


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (frame(KEY, 9), "DeleteRecords in version 9 is not supported; versions 0-2 are"),
        (frame(0, 1), "Produce in version 1 is not supported; versions 3-13 are"),
        (frame(999, 3), "API key 999 in version 3 is not supported"),
        (struct.pack(">i", 2_000_000_000), "frame of 2000000000 bytes, at most 5000000 allowed"),
        (b"GET / HTTP/1.1\r\n\r\n", "not Kafka's protocol: an HTTP request"),
        (
            b"\x16\x03\x01\x02\x00\x01\x00",
            "not Kafka's protocol: the client begins with TLS, and this listener speaks plain text",
        ),
        (frame(KEY, 1), "DeleteRecordsRequest v1: topics at byte 16: ends too early"),
    ],
)
def test_an_invalid_request_is_logged_with_reason_and_address(
    caplog: pytest.LogCaptureFixture, data: bytes, reason: str
) -> None:
    closed_by(data)
    (record,) = caplog.records
    assert (record.levelno, record.message) == (logging.WARNING, "connection closed")
    facts = vars(record)
    assert facts["reason"] == reason
    assert facts["peer"] == "10.0.0.1:5"


def test_the_line_names_the_client_software_or_else_its_id(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        for software in ("", "kafka-node 5"):
            peer = Peer(echo)
            peer.session.client_software = software
            peer.feed(frame(KEY, 9))

    asyncio.run(scenario())
    assert [vars(record)["client"] for record in caplog.records] == ["burrow", "kafka-node 5"]


class Sender:
    """A session, as far as the log looks at it."""

    def __init__(self, client_id: str | None) -> None:
        self.client_software, self.client_id = "", client_id
        self.peer, self.address = "10.0.0.1", "10.0.0.1:5"


def test_a_client_is_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    now = [100.0]
    closings = Closings(lambda: now[0])
    for _ in range(3):
        closings.report(Sender("burrow"), Closing.NOT_UNDERSTOOD, "old")  # type: ignore[arg-type]
        closings.report(Sender("other"), Closing.NOT_UNDERSTOOD, "old")  # type: ignore[arg-type]
    assert len(caplog.records) == 2
    now[0] += 60
    closings.report(Sender("burrow"), Closing.NOT_UNDERSTOOD, "old")  # type: ignore[arg-type]
    assert len(caplog.records) == 3
    assert [vars(record).get("left_out") for record in caplog.records] == [None, None, 2]


def test_a_long_client_id_is_cut(caplog: pytest.LogCaptureFixture) -> None:
    closings = Closings(lambda: 100.0)
    closings.report(Sender("c" * 32_000), Closing.NOT_UNDERSTOOD, "old")  # type: ignore[arg-type]
    assert len(vars(caplog.records[0])["client"]) < 300
    assert len(repr(list(closings._lines._lines._last))) < 400


def test_many_names_make_no_more_lines_than_allowed(caplog: pytest.LogCaptureFixture) -> None:
    now = [100.0]
    closings = Closings(lambda: now[0])
    for _ in range(2):
        for number in range(3_000):
            closings.report(Sender(f"{number}"), Closing.NOT_UNDERSTOOD, "old")  # type: ignore[arg-type]
    assert len(caplog.records) == MAX_LINES_PER_MINUTE
    now[0] += 60
    closings.report(Sender("burrow"), Closing.NOT_UNDERSTOOD, "old")  # type: ignore[arg-type]
    assert len(caplog.records) == MAX_LINES_PER_MINUTE + 1


def test_an_internal_error_is_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    def fail(request: object, context: object) -> DeleteRecordsResponse:
        raise RuntimeError("a fault of ours")

    async def scenario() -> None:
        closings = Peer(echo).session._services.flow.closings
        for _ in range(3):
            peer = Peer(fail)
            services: Any = peer.session._services
            services.flow = replace(services.flow, closings=closings)
            peer.feed(question(1))
            assert peer.transport.aborted

    asyncio.run(scenario())
    failed = [record for record in caplog.records if record.message == "a request failed"]
    assert len(failed) == 1
    assert failed[0].exc_info


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    logger = logging.getLogger("felice")
    before = logger.handlers, logger.level, logger.propagate
    configure_logs(stream=stream)
    yield stream
    logger.handlers, logger.level, logger.propagate = before


def test_control_characters_are_escaped(logged: io.StringIO) -> None:
    evil = "evil\r\x1b[2J\u2028\x85é\x00\ud800"
    logging.getLogger("felice.server").warning("%s", evil, extra={"topic": evil})
    line = logged.getvalue()
    escaped = r"evil\r\x1b[2J\u2028\x85é\x00\ud800"
    assert line.endswith(f'WARNING felice.server: {escaped} topic="{escaped}"\n')
    assert len(line.splitlines()) == 1


def test_an_exception_cannot_begin_a_line_of_its_own(logged: io.StringIO) -> None:
    try:
        raise ValueError("evil\n2026-01-31T12:00:00.000Z ERROR felice.server: the disk is dead\x1b[2J")
    except ValueError:
        logging.getLogger("felice.server").exception("a request failed")
    first, *others = logged.getvalue().rstrip("\n").split("\n")
    assert first.endswith("a request failed")
    assert others
    assert all(line.startswith("    ") for line in others)
    assert "\x1b" not in logged.getvalue()


def test_a_text_from_a_client_does_not_make_a_log_line_long(logged: io.StringIO) -> None:
    logging.getLogger("felice.server").warning("x" * 32_000, extra={"topic": "y" * 32_000})
    line = logged.getvalue()
    assert len(line) < 3 * MAX_VALUE_CHARACTERS
    assert line.count("(32000 characters)") == 2
