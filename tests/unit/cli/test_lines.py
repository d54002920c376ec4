"""Lines are parsed to records and records printed as lines, as Kafka's console tools do."""

from __future__ import annotations

import io
import socket
import time
from collections.abc import Iterator

import pytest

from felice.cli import consume, load, main, produce
from felice.cli.consume import RecordFormat, Written, parse_offset, write_records
from felice.cli.faults import Fault
from felice.cli.options import quiet_logger
from felice.cli.produce import LineFormat, produce_lines
from felice.client import Consumer, KafkaError
from felice.client.net.waiting import WAITING_LOGGER


class Message:
    def __init__(self, **facts: object) -> None:
        self._facts = {
            "timestamp": (1, 1700000000000),
            "partition": 2,
            "offset": 7,
            "leader_epoch": 4,
            "headers": None,
            "key": b"k",
            "value": b"v",
            **facts,
        }

    def __getattr__(self, name: str):  # type: ignore[no-untyped-def]
        return lambda: self._facts[name]


@pytest.mark.parametrize(
    ("properties", "line", "expected"),
    [
        ({}, b"plain", {"value": b"plain"}),
        ({"parse.key": "true"}, b"k\tv", {"key": b"k", "value": b"v"}),
        ({"parse.key": "true", "key.separator": ":"}, b"k:v:w", {"key": b"k", "value": b"v:w"}),
        ({"parse.key": "true", "ignore.error": "true"}, b"alone", {"key": b"", "value": b"alone"}),
        (
            {"parse.headers": "true", "parse.key": "true"},
            b"a:1,b:2\tk\tv",
            {"headers": [("a", b"1"), ("b", b"2")], "key": b"k", "value": b"v"},
        ),
        ({"null.marker": "NULL"}, b"NULL", {"value": None}),
    ],
)
def test_a_line_becomes_a_record(
    properties: dict[str, str], line: bytes, expected: dict[str, object]
) -> None:
    assert LineFormat.parse(properties).record(line, 1) == expected


def test_a_line_without_a_separator_is_refused_with_its_line_number() -> None:
    with pytest.raises(Fault, match="No key separator ':' found on line number 3"):
        LineFormat.parse({"parse.key": "true", "key.separator": ":"}).record(b"alone", 3)


@pytest.mark.parametrize("parse", [LineFormat.parse, RecordFormat.parse])
def test_an_unknown_property_is_refused_by_name(parse) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(Fault, match="unknown property no.such"):
        parse({"no.such": "1"})


@pytest.mark.parametrize(
    ("properties", "facts", "expected"),
    [
        ({}, {}, b"v\n"),
        ({}, {"value": None}, b"null\n"),
        ({"print.key": "true"}, {}, b"k\tv\n"),
        ({"print.key": "true", "key.separator": "|"}, {"key": None}, b"null|v\n"),
        (
            {"print.timestamp": "true", "print.partition": "true", "print.offset": "true"},
            {},
            b"CreateTime:1700000000000\tPartition:2\tOffset:7\tv\n",
        ),
        ({"print.headers": "true"}, {"headers": [("a", b"1"), ("b", None)]}, b"a:1,b:null\tv\n"),
        ({"print.headers": "true", "print.value": "false"}, {}, b"NO_HEADERS\n"),
    ],
)
def test_a_record_becomes_a_line(
    properties: dict[str, str], facts: dict[str, object], expected: bytes
) -> None:
    assert RecordFormat.parse(properties).line(Message(**facts)) == expected


def test_an_interrupt_keeps_the_printed_records() -> None:
    def records():  # type: ignore[no-untyped-def]
        yield Message()
        raise KeyboardInterrupt

    out = io.BytesIO()
    assert write_records(records(), RecordFormat().line, out, False) == Written(1, interrupted=True)
    assert out.getvalue() == b"v\n"


def test_an_offset_is_a_word_or_a_number() -> None:
    assert [parse_offset(text) for text in ("earliest", "latest", "12")] == [-2, -1, 12]
    with pytest.raises(Fault, match="'-5' is incorrect"):
        parse_offset("-5")


def test_a_header_key_that_is_not_utf8_is_refused_with_its_line_number() -> None:
    form = LineFormat.parse({"parse.headers": "true"})
    with pytest.raises(Fault, match="line number 3"):
        form.record(b"\xff:b\tvalue", 3)


def _three_lines_and_a_signal() -> Iterator[bytes]:
    yield from (b"a\n", b"b\n", b"c\n")
    raise KeyboardInterrupt


def test_an_interrupted_producer_soon_reports_undelivered_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(produce, "_PARTING_S", 0.1)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        config = {"bootstrap.servers": f"127.0.0.1:{nobody.getsockname()[1]}"}
        began_s = time.monotonic()
        with pytest.raises(Fault, match=r"^interrupted: 3 of 3 records were not delivered$"):
            produce_lines(config, "t", _three_lines_and_a_signal(), LineFormat())
        # Much less than delivery.timeout.ms, which is two minutes.
        assert time.monotonic() - began_s < 60


def test_an_interrupted_measurement_reports_undelivered_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupt(number: int) -> bytes:
        if number == 100:
            raise KeyboardInterrupt
        return b"x"

    monkeypatch.setattr(produce, "_PARTING_S", 0.1)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        config = {"bootstrap.servers": f"127.0.0.1:{nobody.getsockname()[1]}"}
        with pytest.raises(Fault, match=r"^interrupted: 100 of 100 records were not delivered$"):
            load.produce_load(config, load.Load("t", 500, interrupt), load.Deliveries(500), quiet=True)


def test_an_interrupted_producer_without_undelivered_records_reports_nothing() -> None:
    with pytest.raises(KeyboardInterrupt):
        produce_lines({"bootstrap.servers": "127.0.0.1:1"}, "t", _interrupted(), LineFormat())


def _interrupted() -> Iterator[bytes]:
    raise KeyboardInterrupt
    yield b""


@pytest.mark.parametrize("words", [["--timeout-ms", "1"], []], ids=["timeout", "interrupt"])
def test_a_consumer_that_reached_no_broker_prints_the_reason_once_and_fails(
    words: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    def tell_and_interrupt(error: KafkaError) -> None:
        told(error)
        if not words:
            raise KeyboardInterrupt

    told, poll = consume.tell_of_waiting, Consumer.poll
    # The first reported error interrupts the consumer, so the test does not depend on the machine's speed.
    timeouts = iter([-1.0])
    monkeypatch.setattr(Consumer, "poll", lambda consumer, timeout: poll(consumer, next(timeouts, timeout)))
    monkeypatch.setattr(consume, "tell_of_waiting", tell_and_interrupt)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
        code = main.run(consume.consume, ["t", "-b", f"127.0.0.1:{port}", *words])
    waiting, error = capsys.readouterr().err.splitlines()
    assert code == 1
    assert waiting.startswith(f"waiting: no broker answers: 127.0.0.1:{port}: ")
    assert error.startswith("error: no broker answers")
    assert caplog.text == "", "where nobody has set up logging, Python prints a warning beside what is told"


def test_a_quiet_client_prints_why_it_waits_for_a_coordinator(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for logger in (quiet_logger(), quiet_logger()):
        logger.warning("told by the command itself")
        logger.getChild(WAITING_LOGGER).warning("waiting: %s", "no room")
    assert capsys.readouterr().err == "waiting: no room\n" * 2
