"""Lines become records, and records lines, as Kafka's console tools have it."""

from __future__ import annotations

import io

import pytest

from felice.cli.consume import RecordFormat, parse_offset, write_records
from felice.cli.faults import Fault
from felice.cli.produce import LineFormat


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


def test_a_line_without_its_separator_is_refused_by_number() -> None:
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


def test_interrupting_keeps_what_was_printed() -> None:
    def records():  # type: ignore[no-untyped-def]
        yield Message()
        raise KeyboardInterrupt

    out = io.BytesIO()
    assert write_records(records(), RecordFormat().line, out, False) == 1
    assert out.getvalue() == b"v\n"


def test_offsets_are_words_or_numbers() -> None:
    assert [parse_offset(text) for text in ("earliest", "latest", "12")] == [-2, -1, 12]
    with pytest.raises(Fault, match="'-5' is incorrect"):
        parse_offset("-5")


def test_header_key_that_is_no_text_is_refused_with_its_line() -> None:
    form = LineFormat.parse({"parse.headers": "true"})
    with pytest.raises(Fault, match="line number 3"):
        form.record(b"\xff:b\tvalue", 3)
