"""Converters of Connect read and write what Kafka's own do: random bytes, most of them valid, through both.

For more: FELICE_CONNECT_SEEDS=20000.
"""

from __future__ import annotations

import base64
import json
import os
import struct
from collections.abc import Iterator

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
from properties.pipelines.connect_envelopes import Envelopes

SEEDS = int(os.environ.get("FELICE_CONNECT_SEEDS", "1500"))
CONVERTERS = "org.apache.kafka.connect.converters."
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


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    with running_connect_oracle() as running:
        yield running


def through_ours(
    kind: type[Converter], config: dict[str, str], data: bytes | None
) -> bytes | ConnectError | None:
    try:
        converter = kind(kind.definitions.parse(config), is_key=False)
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
        if source.random.random() < 0.1 and isinstance(given, dict) and given.keys() == {"schema", "payload"}:
            config["schema.content"], given = json.dumps(given["schema"]), given["payload"]
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
