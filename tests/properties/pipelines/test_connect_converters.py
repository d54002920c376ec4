"""Converters of Connect read and write what Kafka's own do: random bytes, most of them valid, through both.

For more: FELICE_CONNECT_SEEDS=20000.
"""

from __future__ import annotations

import base64
import json
import os
import random
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from felice.pipelines.connect.converters.converter import Converter
from felice.pipelines.connect.converters.json import JsonConverter
from felice.pipelines.connect.converters.plain import (
    BooleanConverter,
    ByteArrayConverter,
    DoubleConverter,
    FloatConverter,
    IntegerConverter,
    LongConverter,
    ShortConverter,
    StringConverter,
)
from felice.pipelines.connect.model.errors import ConnectError
from peers.applications import running_connect_oracle
from peers.oracle import Oracle

SEEDS = int(os.environ.get("FELICE_CONNECT_SEEDS", "1500"))
DATA, CONVERTERS = "org.apache.kafka.connect.data.", "org.apache.kafka.connect.converters."
PLAIN: dict[str, type[Converter]] = {
    "org.apache.kafka.connect.storage.StringConverter": StringConverter,
    f"{CONVERTERS}ByteArrayConverter": ByteArrayConverter,
    f"{CONVERTERS}BooleanConverter": BooleanConverter,
    f"{CONVERTERS}ShortConverter": ShortConverter,
    f"{CONVERTERS}IntegerConverter": IntegerConverter,
    f"{CONVERTERS}LongConverter": LongConverter,
    f"{CONVERTERS}FloatConverter": FloatConverter,
    f"{CONVERTERS}DoubleConverter": DoubleConverter,
}
REFUSED = "Invalid type for ", "Timestamp "
"""Kafka's converter makes 0, false or null of a value of another type, and of a number that is too large."""
INTEGERS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    with running_connect_oracle() as running:
        yield running


class Envelopes:
    """A source of random schemas and of payloads that mostly fit them."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def envelope(self) -> Any:
        chance = self.random.random()
        if chance < 0.03:
            return {"schema": None, "payload": self.plain(3)}
        schema = self.schema(3)
        envelope = {"schema": schema, "payload": self.payload(schema)}
        return self.spoiled(envelope) if chance > 0.8 else envelope

    def schema(self, depth: int) -> dict[str, Any]:
        kinds = [*INTEGERS, "float", "double", "boolean", "string", "bytes", "logical"]
        if depth:
            kinds += ["array", "map", "struct", "struct"]
        kind = self.random.choice(kinds)
        made: dict[str, Any] = {"type": kind, "optional": self.random.random() < 0.4}
        if kind == "array":
            made["items"] = self.schema(depth - 1)
        elif kind == "map":
            made |= {
                "keys": self.random.choice([{"type": "string"}, {"type": "int32"}]),
                "values": self.schema(depth - 1),
            }
        elif kind == "struct":
            names = self.random.sample(["a", "b", "ä", "d e", "f"], self.random.randint(0, 4))
            made["fields"] = [{**self.schema(depth - 1), "field": name} for name in names]
        elif kind == "logical":
            made |= self.random.choice(
                [
                    {"type": "bytes", "name": f"{DATA}Decimal", "version": 1, "parameters": {"scale": "2"}},
                    {"type": "int32", "name": f"{DATA}Date", "version": 1},
                    {"type": "int32", "name": f"{DATA}Time", "version": 1},
                    {"type": "int64", "name": f"{DATA}Timestamp", "version": 1},
                ]
            )
        elif self.random.random() < 0.2:
            made |= {"name": "n.S", "version": 3, "doc": "why"}
        if self.random.random() < 0.15 and kind not in ("struct", "array", "map"):
            made["default"] = self.payload({**made, "optional": False})
        return made

    def payload(self, schema: dict[str, Any]) -> Any:
        chance = self.random
        if schema.get("optional") and chance.random() < 0.3:
            return None
        kind, name = schema["type"], schema.get("name", "")
        if name.startswith(DATA):
            return self.logical(name)
        if kind in INTEGERS:
            return chance.choice([0, 1, -1, chance.getrandbits(INTEGERS[kind]) - (1 << INTEGERS[kind] - 1)])
        if kind in ("float", "double"):
            return chance.choice([0.0, 1.5, -2.25, 3, 1e300 if kind == "double" else 1e30, 0.1])
        if kind == "boolean":
            return chance.random() < 0.5
        if kind == "string":
            return chance.choice(["", "x", "ü€", 'a"\\', "\u2028\x01", "😀"])
        if kind == "bytes":
            return base64.b64encode(chance.randbytes(chance.randint(0, 4))).decode()
        if kind == "array":
            return [self.payload(schema["items"]) for _ in range(chance.randint(0, 3))]
        if kind == "map":
            if schema["keys"]["type"] == "string":
                return {
                    key: self.payload(schema["values"]) for key in chance.sample("xyz", chance.randint(0, 3))
                }
            return [[number, self.payload(schema["values"])] for number in range(chance.randint(0, 2))]
        return {one["field"]: self.payload(one) for one in schema["fields"]}

    def logical(self, name: str) -> Any:
        if name.endswith("Decimal"):
            return base64.b64encode(self.random.randbytes(self.random.randint(1, 9))).decode()
        if name.endswith("Time"):
            return self.random.randrange(86_400_000)
        return self.random.randrange(-100_000, 100_000)

    def plain(self, depth: int) -> Any:
        kinds = [None, True, 5, 2.5, "x", 1 << 40]
        if depth and self.random.random() < 0.5:
            return self.random.choice(
                [
                    [self.plain(depth - 1), self.plain(depth - 1)],
                    {"a": self.plain(depth - 1), "ü": self.plain(depth - 1)},
                ]
            )
        return self.random.choice(kinds)

    def spoiled(self, value: Any) -> Any:
        """The value with one part replaced or left out."""
        if isinstance(value, dict) and value and self.random.random() < 0.85:
            key = self.random.choice(list(value))
            if self.random.random() < 0.2:
                return {name: one for name, one in value.items() if name != key}
            return {**value, key: self.spoiled(value[key])}
        if isinstance(value, list) and value and self.random.random() < 0.85:
            at = self.random.randrange(len(value))
            return [self.spoiled(one) if number == at else one for number, one in enumerate(value)]
        return self.random.choice([None, True, 7, -2.5, "y", [], {}, 1 << 70])


def through_ours(
    kind: type[Converter], config: dict[str, str], data: bytes | None
) -> bytes | ConnectError | None:
    converter = kind(kind.definitions.parse(config), is_key=False)
    try:
        return converter.to_bytes("topic", *converter.from_bytes("topic", data))
    except ConnectError as error:
        return error


def through_theirs(
    oracle: Oracle, name: str, config: dict[str, str], data: bytes | None
) -> bytes | str | None:
    text = None if data is None else base64.b64encode(data).decode()
    answer = oracle.ask({"converter": name, "config": config, "isKey": False, "data": text})
    if "error" in answer:
        return str(answer["error"])
    return None if answer["data"] is None else base64.b64decode(answer["data"])


def test_json(oracle: Oracle) -> None:
    for seed in range(SEEDS):
        source = Envelopes(seed)
        config = {}
        if source.random.random() < 0.3:
            config["decimal.format"] = source.random.choice(["BASE64", "numeric"])
        if source.random.random() < 0.2:
            config["replace.null.with.default"] = "false"
        given = source.envelope()
        if source.random.random() < 0.15:
            config["schemas.enable"], given = "false", source.plain(3)
        data = json.dumps(given).encode()
        theirs = through_theirs(oracle, "org.apache.kafka.connect.json.JsonConverter", config, data)
        ours = through_ours(JsonConverter, config, data)
        if isinstance(ours, ConnectError) and str(ours).startswith(REFUSED):
            continue
        assert isinstance(ours, ConnectError) == isinstance(theirs, str), (seed, config, data, ours, theirs)
        if isinstance(ours, bytes) and isinstance(theirs, bytes):
            assert json.loads(ours) == json.loads(theirs), (seed, config, data, ours, theirs)
        elif not isinstance(ours, ConnectError):
            assert ours == theirs


def test_single_values(oracle: Oracle) -> None:
    values: list[bytes | None] = [
        None,
        b"",
        b"\0",
        b"\1",
        b"\2",
        "ü".encode(),
        b"\xff",
        *(b"\x80" * n for n in (2, 4, 8)),
    ]
    values += [struct.pack(">d", number) for number in (0.0, 1e300, float("inf"))] + [struct.pack(">f", 1.5)]
    for name, kind in PLAIN.items():
        for data in values:
            theirs, ours = through_theirs(oracle, name, {}, data), through_ours(kind, {}, data)
            assert isinstance(ours, ConnectError) == isinstance(theirs, str), (name, data, ours, theirs)
            if not isinstance(ours, ConnectError):
                assert ours == theirs, (name, data)
