"""Lines are parsed to records and records printed as lines, as Kafka's console tools do."""

from __future__ import annotations

import io
import socket
import struct
import time
from collections.abc import Iterator
from typing import Any

import pytest

from felice.cli import consume, load, main, produce
from felice.cli.consume import RecordFormat, Written, parse_offset, reader_config, write_records
from felice.cli.faults import Fault
from felice.cli.kafka_tools import console
from felice.cli.options import delivery_limit, quiet_logger
from felice.cli.produce import LineFormat, produce_lines
from felice.client import Consumer, KafkaError
from felice.client.net.waiting import WAITING_LOGGER


class Message:
    def __init__(self, **facts: object) -> None:
        self._facts = {
            "topic": "t",
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


HEADERS = {"parse.headers": "true", "parse.key": "true", "null.marker": "NULL"}
LAX = {**HEADERS, "ignore.error": "true"}


# As LineMessageReader of Apache Kafka 4.3.1 parses them.
@pytest.mark.parametrize(
    ("properties", "line", "expected"),
    [
        ({}, b"plain", {"value": b"plain"}),
        ({"parse.key": "true"}, b"k\tv", {"key": b"k", "value": b"v"}),
        ({"parse.key": "true", "key.separator": ":"}, b"k:v:w", {"key": b"k", "value": b"v:w"}),
        ({"parse.key": "true", "ignore.error": "true"}, b"alone", {"key": None, "value": b"alone"}),
        ({"parse.key": "true"}, b"\tv", {"key": b"", "value": b"v"}),
        ({"parse.key": "true", "null.marker": ""}, b"\t", {"key": None, "value": None}),
        (
            {"parse.headers": "true", "parse.key": "true"},
            b"a:1,b:2\tk\tv",
            {"headers": [("a", b"1"), ("b", b"2")], "key": b"k", "value": b"v"},
        ),
        ({"null.marker": "NULL"}, b"NULL", {"value": None}),
        (HEADERS, b"NULL\tNULL\tNULL", {"key": None, "value": None}),
        (
            HEADERS,
            b"a:NULL,b:,c:1,,\t\t",
            {"headers": [("a", None), ("b", b""), ("c", b"1")], "key": b"", "value": b""},
        ),
        (HEADERS, b",\tk\tv", {"headers": [], "key": b"k", "value": b"v"}),
        (LAX, b"alone", {"key": None, "value": b"alone"}),
        (LAX, b"alone\tk\tv", {"headers": [("alone", None)], "key": b"k", "value": b"v"}),
        (LAX, b"\tk\tv", {"headers": [("", None)], "key": b"k", "value": b"v"}),
    ],
)
def test_a_line_becomes_a_record(
    properties: dict[str, str], line: bytes, expected: dict[str, object]
) -> None:
    assert LineFormat.parse(properties).record(line, 1) == expected


def test_a_line_without_a_separator_is_refused_with_its_line_number() -> None:
    with pytest.raises(Fault, match="No key separator ':' found on line number 3"):
        LineFormat.parse({"parse.key": "true", "key.separator": ":"}).record(b"alone", 3)


@pytest.mark.parametrize(
    ("properties", "line"),
    [(HEADERS, b"\tk\tv"), (HEADERS, b"a:1,b\tk\tv"), (HEADERS, b"NULL:1\tk\tv"), (LAX, b"NULL:1\tk\tv")],
)
def test_headers_without_keys_are_refused_with_the_line_number(
    properties: dict[str, str], line: bytes
) -> None:
    with pytest.raises(Fault, match="on line number 7"):
        LineFormat.parse(properties).record(line, 7)


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({"parse.key": "true", "key.separator": ""}, "key.separator must not be empty"),
        ({"parse.key": "true", "null.marker": "\t"}, "null.marker and key.separator may not be equal"),
        (
            {"parse.headers": "true", "headers.delimiter": ","},
            "headers.delimiter and headers.separator may not be equal",
        ),
    ],
)
def test_separators_that_cannot_be_told_apart_are_refused(properties: dict[str, str], reason: str) -> None:
    with pytest.raises(Fault, match=reason):
        LineFormat.parse(properties)


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


_SERDES = "org.apache.kafka.common.serialization."


# As the deserializer's `toString()` prints them in Java 17.
@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        ("Long", b"\0\0\0\0\0\0\0\x07", b"7"),
        ("Integer", b"\xff\xff\xff\xff", b"-1"),
        ("Short", b"\x01\0", b"256"),
        ("Boolean", b"\x01", b"true"),
        ("String", "\u2603".encode(), "\u2603".encode()),
        ("Double", struct.pack(">d", 1.5), b"1.5"),
        ("Double", struct.pack(">d", 1e7), b"1.0E7"),
        ("Double", struct.pack(">d", 9999999.5), b"9999999.5"),
        ("Double", struct.pack(">d", 100.0), b"100.0"),
        ("Double", struct.pack(">d", -0.001), b"-0.001"),
        ("Double", struct.pack(">d", 0.00012345), b"1.2345E-4"),
        ("Double", struct.pack(">d", -0.0), b"-0.0"),
        ("Double", struct.pack(">d", float("-inf")), b"-Infinity"),
        ("Float", struct.pack(">f", 0.1), b"0.1"),
        ("Float", struct.pack(">f", 16777216.0), b"1.6777216E7"),
        ("Float", struct.pack(">f", 3.4028235e38), b"3.4028235E38"),
        ("UUID", b"123E4567-e89b-12d3-a456-426614174000", b"123e4567-e89b-12d3-a456-426614174000"),
        ("Bytes", b"a\\\x00\xff", b"a\\x5C\\x00\\xFF"),
        ("ByteArray", b"\xff", b"\xff"),
    ],
)
def test_a_value_is_printed_as_its_deserializer_reads_it(name: str, data: bytes, expected: bytes) -> None:
    form = RecordFormat.parse({"value.deserializer": f"{_SERDES}{name}Deserializer"})
    assert form.line(Message(value=data)) == expected + b"\n"
    assert form.line(Message(value=None)) == b"null\n"


@pytest.mark.parametrize("name", ["key.deserializer", "value.deserializer", "headers.deserializer"])
def test_a_class_that_is_not_known_is_refused_by_name(name: str) -> None:
    for unknown in ("org.example.AvroDeserializer", "LongDeserializer", f"{_SERDES}NopeDeserializer"):
        with pytest.raises(Fault, match=f"no deserializer {unknown}; .*LongDeserializer"):
            RecordFormat.parse({name: unknown})


def test_keys_and_headers_have_deserializers_of_their_own() -> None:
    long = f"{_SERDES}LongDeserializer"
    form = RecordFormat.parse(
        {"print.key": "true", "print.headers": "true", "key.deserializer": long, "header.deserializer": long}
    )
    seven = b"\0" * 7 + b"\x07"
    shown = form.line(Message(key=seven, headers=[("h", seven), ("n", None)]))
    assert shown == b"h:7,n:null\t7\tv\n"


@pytest.mark.parametrize("skip", [False, True])
def test_a_record_that_cannot_be_printed_ends_the_output_or_is_skipped(skip: bool) -> None:
    form = RecordFormat.parse({"value.deserializer": f"{_SERDES}ShortDeserializer"})
    records = iter([Message(value=b"\0\x01"), Message(value=b"\0"), Message(value=b"\0\x02")])
    out = io.BytesIO()
    if skip:
        assert write_records(records, form.line, out, False, skip_on_error=True).records == 3
        assert out.getvalue() == b"1\n2\n"
        return
    with pytest.raises(Fault, match="t-2 offset 7: ShortDeserializer cannot read 1 bytes"):
        write_records(records, form.line, out, False)
    assert out.getvalue() == b"1\n"


@pytest.mark.parametrize(
    ("config", "options", "reason"),
    [
        (
            {"auto.offset.reset": "latest"},
            {"from_beginning": True},
            "--from-beginning and 'auto.offset.reset=latest'",
        ),
        ({"group.id": "b"}, {"group": "a"}, "do not match: 'a' and 'b'"),
        ({}, {"group": "a", "partition": 0}, "Options group and partition cannot be specified together"),
    ],
)
def test_options_of_a_consumer_that_contradict_each_other_are_refused(
    config: dict[str, object], options: dict[str, object], reason: str
) -> None:
    with pytest.raises(Fault, match=reason):
        reader_config(config, **{"group": None, "from_beginning": False, **options})  # type: ignore[arg-type]


def test_options_that_say_the_same_are_accepted() -> None:
    config: dict[str, object] = {"group.id": "a", "auto.offset.reset": "earliest"}
    assert reader_config(config, "a", from_beginning=True)["group.id"] == "a"


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


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (consume.consume, ["t", "--timeout-ms", "100"]),
        (console.kafka_console_consumer, ["--topic", "t", "--timeout-ms", "100"]),
        (produce.produce, ["t", "-X", "message.timeout.ms=500"]),
    ],
    ids=["felice consume", "kafka-console-consumer", "felice produce"],
)
def test_a_broker_that_accepts_connections_and_answers_nothing_is_a_failure(
    command: Any, words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"line\n")))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        code = main.run(command, [*words, "--bootstrap-server", address])
    assert code == 1
    assert capsys.readouterr().err.splitlines()[-1].startswith("error: ")


def test_a_tool_gives_a_record_up_after_the_time_of_kafkas_tools() -> None:
    assert delivery_limit({"linger.ms": 5}) == {"message.timeout.ms": 120_000}
    assert delivery_limit({"delivery.timeout.ms": 5}) == delivery_limit({"message.timeout.ms": 5}) == {}
    assert delivery_limit({"transactional.id": "t"}) == {}, "the time of the transaction limits it"
