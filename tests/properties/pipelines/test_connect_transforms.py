"""Transformations of Connect change records as Kafka's own do: random records and configurations through both.

For more: FELICE_CONNECT_SEEDS=20000.
"""

from __future__ import annotations

import base64
import json
import os
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from felice.pipelines.connect.converters.json import JsonConverter
from felice.pipelines.connect.model.errors import ConnectError
from felice.pipelines.connect.model.record import SinkRecord
from felice.pipelines.connect.transforms.casting import Cast
from felice.pipelines.connect.transforms.fields import (
    ExtractField,
    Flatten,
    HoistField,
    InsertField,
    MaskField,
    ReplaceField,
    ValueToKey,
)
from felice.pipelines.connect.transforms.headers import DropHeaders, HeaderFrom, InsertHeader
from felice.pipelines.connect.transforms.routing import (
    Filter,
    RegexRouter,
    SetSchemaMetadata,
    TimestampRouter,
)
from felice.pipelines.connect.transforms.timestamps import TimestampConverter
from felice.pipelines.connect.transforms.transformation import Transformation
from peers.applications import running_connect_oracle
from peers.oracle import Oracle
from properties.pipelines.connect_envelopes import Envelopes

SEEDS = int(os.environ.get("FELICE_CONNECT_SEEDS", "1500"))
NAMES = ["a", "b", "ä", "d e", "f", "none"]
FAULT = "Cannot list fields on non-struct type"
"""Kafka's SetSchemaMetadata fails so for every schema that is no struct."""
PYTHONS = "a time outside the years 1 to 9999"
"""What Python's times cannot hold, and Java's can."""
JULIAN = ("yyyyMMddHHmmss", "60 2024 24")
"""A text with the year 60, which Java reads by another calendar."""
Choose = Callable[[random.Random], dict[str, str]]


def some(chance: random.Random, most: int = 2) -> str:
    return ",".join(chance.sample(NAMES, chance.randint(1, most)))


def replaced(chance: random.Random) -> dict[str, str]:
    config = {}
    for name in ("exclude", "include"):
        if chance.random() < 0.4:
            config[name] = some(chance)
    if chance.random() < 0.4:
        config["renames"] = f"{chance.choice(NAMES)}:new"
    return config


def masked(chance: random.Random) -> dict[str, str]:
    config = {"fields": some(chance)}
    if chance.random() < 0.5:
        config["replacement"] = chance.choice(["7", "x", "2.5", "-1"])
    return config


def inserted(chance: random.Random) -> dict[str, str]:
    config = {}
    for name in ("topic.field", "partition.field", "offset.field", "timestamp.field", "static.field"):
        if chance.random() < 0.4:
            config[name] = f"{name[0]}_new" + chance.choice(["", "!", "?"])
    return {**config, "static.value": "s"} if "static.field" in config else config or {"topic.field": "t"}


def headers_from(chance: random.Random) -> dict[str, str]:
    fields = chance.sample(NAMES, 2)
    return {"fields": ",".join(fields), "headers": "x,y", "operation": chance.choice(["move", "copy"])}


def metadata(chance: random.Random) -> dict[str, str]:
    given = {"schema.name": "n.New", "schema.version": "7"}
    return {name: value for name, value in given.items() if chance.random() < 0.6} or {"schema.name": "only"}


def timestamps(chance: random.Random) -> dict[str, str]:
    patterns = ["yyyyMMdd", "yy-M-d'T'HH", "EEE, d MMM yyyy h:mm:ss.SSS a", "D''k'x'KK EEEE MMMM u Z"]
    return {
        "topic.format": chance.choice(["${topic}-${timestamp}", "x_${timestamp}"]),
        "timestamp.format": chance.choice(patterns),
    }


def casts(chance: random.Random) -> dict[str, str]:
    targets = ["int8", "int16", "int32", "int64", "float32", "float64", "boolean", "string"]
    if chance.random() < 0.2:
        return {"spec": chance.choice(targets)}
    return {"spec": ",".join(f"{name}:{chance.choice(targets)}" for name in chance.sample(NAMES, 2))}


PATTERNS = [
    "yyyy-MM-dd'T'HH:mm:ss.SSS",
    "yyyyMMddHHmmss",
    "EEE, d MMM yyyy h:mm:ss a",
    "yy/M/d K:m a",
    "D yyyy k",
    "yyyy-MM-dd HH:mm:ssZ",
    "MMMM d, yyyy",
]


def extracted(chance: random.Random) -> dict[str, str]:
    if chance.random() < 0.4:
        return {"field": chance.choice(NAMES)}
    pieces = [*NAMES, ".", ".", "`", "`", "\\", "b.c"]
    path = ".".join(chance.choices(NAMES, k=2))
    if chance.random() < 0.6:
        path = "".join(chance.choices(pieces, k=chance.randint(1, 6)))
    return {"field": path, "field.syntax.version": chance.choice(["V2", "v2", "V2", "V1"])}


def conversions(chance: random.Random) -> dict[str, str]:
    config = {"target.type": chance.choice(["string", "unix", "Date", "Time", "Timestamp"])}
    if config["target.type"] == "string" or chance.random() < 0.7:
        config["format"] = chance.choice(PATTERNS)
    if chance.random() < 0.8:
        config["field"] = chance.choice(NAMES)
    if chance.random() < 0.4:
        config["unix.precision"] = chance.choice(["nanoseconds", "microseconds", "milliseconds", "seconds"])
    return config


CASES: dict[type[Transformation], Choose] = {
    ExtractField: extracted,
    HoistField: lambda chance: {"field": "whole"},
    ValueToKey: lambda chance: {"fields": some(chance)},
    ReplaceField: replaced,
    MaskField: masked,
    InsertField: inserted,
    Flatten: lambda chance: {"delimiter": "_"} if chance.random() < 0.5 else {},
    RegexRouter: lambda chance: {
        "regex": chance.choice(["(.*)-(\\d+)", "or.*", "ord", "(?<n>o)rders.*"]),
        "replacement": chance.choice(["$2_$1", "x", "a\\$b"]) if chance.random() < 0.9 else "$1",
    },
    TimestampRouter: timestamps,
    Filter: lambda chance: {},
    SetSchemaMetadata: metadata,
    DropHeaders: lambda chance: {"headers": "x"},
    HeaderFrom: headers_from,
    InsertHeader: lambda chance: {
        "header": chance.choice(["h", "ä b"]),
        "value.literal": chance.choice(
            ["7", "x", "2.5", "[1,300]", '{"a":1}', "2024-02-29", "true", "null", " "]
        ),
    },
    Cast: casts,
    TimestampConverter: conversions,
}


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    with running_connect_oracle() as running:
        yield running


def text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def question_of(kind: type[Transformation], seed: int) -> dict[str, Any]:
    source = Envelopes(seed)
    chance = source.random
    has_schemas = chance.random() < 0.7
    data: dict[str, bytes | None] = {}
    for part in ("key", "value"):
        data[part] = None
        if chance.random() < 0.93:
            if has_schemas:
                schema = source.schema(3)
                if chance.random() < 0.8:
                    names = chance.sample(NAMES[:-1], chance.randint(0, 4))
                    schema = {
                        "type": "struct",
                        "optional": chance.random() < 0.2,
                        "name": "n.R",
                        "version": 2,
                    }
                    schema["fields"] = [{**source.schema(2), "field": name} for name in names]
                data[part] = json.dumps({"schema": schema, "payload": source.payload(schema)}).encode()
            else:
                members = {name: source.plain(2) for name in chance.sample(NAMES[:-1], 3)}
                data[part] = json.dumps(members if chance.random() < 0.85 else source.plain(2)).encode()
    part = chance.choice(["$Key", "$Value"]) if kind.has_parts else ""
    config = CASES[kind](chance)
    if "replace.null.with.default" in kind.definitions and chance.random() < 0.2:
        config["replace.null.with.default"] = "false"
    return {
        "transformation": f"org.apache.kafka.connect.transforms.{kind.__name__}{part}",
        "config": config,
        "schemas": has_schemas,
        "topic": chance.choice(["orders-7", "orders", "x"]),
        "partition": 3,
        "offset": 42,
        "timestamp": chance.choice([None, 0, 1_583_020_801_234, 999]),
        "key": text(data["key"]),
        "value": text(data["value"]),
    }


def ours(kind: type[Transformation], question: dict[str, Any]) -> dict[str, Any] | ConnectError:
    options = {"schemas.enable": str(question["schemas"]).lower()}
    converter = JsonConverter(JsonConverter.definitions.parse(options), is_key=False)
    try:
        part = "key" if question["transformation"].endswith("$Key") else "value"
        transformation = kind(kind.definitions.parse(question["config"]), part)
        decoded = [
            None if question[one] is None else base64.b64decode(question[one]) for one in ("key", "value")
        ]
        (key_schema, key), (value_schema, value) = (converter.from_bytes("t", one) for one in decoded)
        place = question["topic"], question["partition"]
        record = SinkRecord(
            *place, key_schema, key, value_schema, value, question["timestamp"], (), question["offset"]
        )
        found = transformation.apply(record)
        if found is None:
            return {"dropped": True}
        return {
            "topic": found.topic,
            "partition": found.partition,
            "timestamp": found.timestamp,
            "key": text(converter.to_bytes("t", found.key_schema, found.key)),
            "value": text(converter.to_bytes("t", found.value_schema, found.value)),
            "headers": [
                [one.name, text(converter.to_bytes("t", one.schema, one.value))] for one in found.headers
            ],
        }
    except ConnectError as error:
        return error


def _seven(text: str) -> float:
    """The number with seven digits: Java before 19 prints some numbers of 32 bits with a digit too many."""
    return float(f"{float(text):.7g}")


def decoded(answer: Any) -> Any:
    """The answer with its JSON as values."""
    if not isinstance(answer, dict) or "topic" not in answer:
        return answer
    read = lambda one: None if one is None else json.loads(base64.b64decode(one), parse_float=_seven)  # noqa: E731
    headers = [[name, read(one)] for name, one in answer["headers"]]
    return {**answer, "key": read(answer["key"]), "value": read(answer["value"]), "headers": headers}


@pytest.mark.parametrize("kind", CASES)
def test_records_are_changed_as_kafka_changes_them(oracle: Oracle, kind: type[Transformation]) -> None:
    succeeded = 0
    for seed in range(SEEDS // len(CASES)):
        question = question_of(kind, seed)
        theirs, found = oracle.ask(question), ours(kind, question)
        if FAULT in theirs.get("error", "") or PYTHONS in str(found):
            continue
        assert isinstance(found, ConnectError) == ("error" in theirs), (question, found, theirs)
        if not isinstance(found, ConnectError):
            assert decoded(found) == decoded(theirs), question
            succeeded += 1
    assert succeeded > 10


TIMES = [
    "2024-02-29T23:59:58.007",
    "2024-2-9T3:5:8.7 and more",
    "2024-13-40T25:61:61.1001",
    "20240229235958",
    "2024022923595",
    "Thu, 29 Feb 2024 11:59:58 PM",
    "thursday, 1 february 2024 12:00:00 am",
    "24/2/29 0:5 PM",
    "99/12/31 11:59 AM",
    "1999/1/1 1:1 AM",
    "60 2024 24",
    "366 2023 1",
    "2024-02-29 23:59:58+0130",
    "2024-02-29 23:59:58-0800",
    "February 29, 2024",
    "FEB 29, 2024",
    "-1 2024 3",
    "",
    "tomorrow",
]


@pytest.mark.parametrize("target", ["string", "unix", "Date", "Time", "Timestamp"])
def test_texts_are_read_as_java_reads_them(oracle: Oracle, target: str) -> None:
    succeeded = 0
    for pattern in PATTERNS:
        for time in TIMES:
            envelope = {"schema": {"type": "string"}, "payload": time}
            question = {
                "transformation": "org.apache.kafka.connect.transforms.TimestampConverter$Value",
                "config": {"target.type": target, "format": pattern},
                "schemas": True,
                "topic": "t",
                "partition": 0,
                "offset": 0,
                "timestamp": None,
                "key": None,
                "value": text(json.dumps(envelope).encode()),
            }
            if (pattern, time) == JULIAN:
                continue
            theirs, found = oracle.ask(question), ours(TimestampConverter, question)
            assert isinstance(found, ConnectError) == ("error" in theirs), (pattern, time, found, theirs)
            if not isinstance(found, ConnectError):
                assert decoded(found) == decoded(theirs), (pattern, time)
                succeeded += 1
    assert succeeded > 15
