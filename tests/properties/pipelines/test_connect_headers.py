"""Texts of headers are read and printed as Kafka's `Values` does."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import Any

import pytest

from felice.pipelines.connect.converters.header_values import parsed, printed
from felice.pipelines.connect.converters.headers import ByConverter, SimpleHeaderConverter
from felice.pipelines.connect.converters.plain import StringConverter
from felice.pipelines.connect.model.schema import BYTES, INT8, STRING, Schema
from peers.applications import running_connect_oracle
from peers.oracle import Oracle

TEXTS = [
    "",
    " ",
    "null",
    " null ",
    "true",
    "false ",
    "nulls",
    "1",
    "-1",
    "+7",
    "128",
    "-32769",
    "2147483648",
    "9223372036854775807",
    "9223372036854775808",
    "1.0",
    "1.5",
    "1e3",
    "1e39",
    "1.5e-400",
    "0.1",
    "00",
    "1.",
    "-",
    "+",
    "1a",
    "a1",
    "0x10",
    "NaN",
    "Infinity",
    "[",
    "]",
    "[]",
    "[ ]",
    "[1]",
    "[1,2]",
    "[1,]",
    "[,1]",
    "[1 2]",
    "[1,200,3.5]",
    '["a","b"]',
    '["a",1]',
    "[a]",
    "[null]",
    "[1,null]",
    "[[1],[2]]",
    "[[1],[]]",
    "{}",
    "{1:2}",
    '{"a":1}',
    '{"a":1,"b":2.5}',
    '{"a":}',
    "{:1}",
    "{a:1}",
    '{"a"}',
    '{"a":1',
    '{"a":1,}',
    '{"a":null}',
    "{null:1}",
    "2024-02-29",
    "2024-13-01",
    "23:59:58.007Z",
    "2024-02-29T23:59:58.007Z",
    "2024-02-29T23:59:58Z",
    '["2024-02-29"]',
    '{"2024-02-29":"x"}',
    "[23:59:58.007Z]",
    "a:b",
    "a\\:b",
    '"quoted"',
    '["q\\"x"]',
    '["a, b"]',
    "1970-01-01",
    "1969-12-31",
    "2024-02-29T00:00:00.000Z",
    "16777217.5",
    "3.4028236e38",
    "one, two",
    "{1:2,1:3}",
    "[true,false]",
    "[true,1]",
    "\t5\n",
    "[ 1 , 2 ]",
    "[1]x",
    "1,2",
    "é",
    '["é"]',
]
SEEDS = int(os.environ.get("FELICE_CONNECT_SEEDS", "3000"))
PARTS = ["[", "]", "{", "}", ",", ":", '"', "1", "2.5", "300", "a", "null", "true", " ", "2024-02-29", "\\"]


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    with running_connect_oracle() as started:
        yield started


def answer(text: str) -> dict[str, Any]:
    schema, value = parsed(text)
    if schema is None:
        return {}
    found: dict[str, Any] = {"type": schema.type, "name": schema.name, "printed": printed(schema, value)}
    if schema.type in ("array", "map"):
        found["items"] = None if schema.value_schema is None else schema.value_schema.type
    return found


def theirs(oracle: Oracle, text: str) -> dict[str, Any]:
    found = oracle.ask({"header": text})
    names = {"float32": "float", "float64": "double"}
    return {name: names.get(one, one) if name in ("type", "items") else one for name, one in found.items()}


@pytest.mark.parametrize("text", TEXTS)
def test_texts_are_what_kafka_reads(oracle: Oracle, text: str) -> None:
    assert answer(text) == theirs(oracle, text)


def test_random_texts_are_what_kafka_reads(oracle: Oracle) -> None:
    for seed in range(SEEDS):
        chance = random.Random(seed)
        text = "".join(chance.choices(PARTS, k=chance.randint(1, 9)))
        found = theirs(oracle, text)
        assert answer(text) == found, text


def test_values_of_headers_are_texts() -> None:
    simple = SimpleHeaderConverter()
    assert simple.from_header("t", "h", None) == (None, None)
    assert simple.from_header("t", "h", b"") == (Schema(STRING), "")
    assert simple.from_header("t", "h", b"12") == (Schema(INT8), 12)
    assert simple.from_header("t", "h", b"\xff") == (Schema(STRING), "\ufffd")
    assert simple.to_header("h", None, None) is None
    assert simple.to_header("h", Schema(BYTES), b"\x00\xff") == b"AP8="
    assert simple.to_header("h", None, {"a": [1, "b"]}) == b'{"a":[1,"b"]}'
    assert simple.from_header("t", "h", b"[" * 100_000) == (Schema(STRING), "[" * 100_000)


def test_converters_of_values_convert_headers() -> None:
    converter = ByConverter(StringConverter(StringConverter.definitions.parse({}), is_key=False))
    assert converter.to_header("h", None, 5) == b"5"
    assert converter.from_header("t", "h", b"5") == (Schema(STRING, optional=True), "5")
