"""Compares our declarations with Apache Kafka's definitions, field by field and version by version."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from conformance.protocol.comparison import differences
from conformance.protocol.definitions import definition, folder
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.fetch import FetchRequest
from felice.protocol.schema import NO_VERSIONS, FieldType, Schema, Versions, schema_of
from properties.protocol.catalogue import CLASSES, name_of

needs_definitions = pytest.mark.skipif(
    folder() is None,
    reason="Apache Kafka's message definitions are not here: name their folder in FELICE_KAFKA_MESSAGES",
)


@needs_definitions
@pytest.mark.parametrize("cls", CLASSES, ids=name_of)
def test_declaration_agrees_with_kafkas_definition(cls: type[Any]) -> None:
    assert differences(schema_of(cls), definition(cls.__name__)) == []


def _change(name: str, /, **changes: Any) -> Callable[[Schema], Schema]:
    def planted(schema: Schema) -> Schema:
        fields = tuple(replace(f, **changes) if f.name == name else f for f in schema.fields)
        assert fields != schema.fields
        return replace(schema, fields=fields)

    return planted


DEVIATIONS: dict[str, Callable[[Schema], Schema]] = {
    "another name": lambda schema: replace(schema, name="FetchRequests"),
    "another api key": lambda schema: replace(schema, api_key=2),
    "fewer versions": lambda schema: replace(schema, versions=Versions(4, 17)),
    "more versions": lambda schema: replace(schema, versions=Versions(3, 18)),
    "flexible later": lambda schema: replace(schema, flexible=Versions.parse("13+")),
    "a field renamed": _change("rack_id", name="rack"),
    "a field gone": lambda schema: replace(schema, fields=schema.fields[:-1]),
    "fields swapped": lambda schema: replace(
        schema, fields=(*schema.fields[:-2], schema.fields[-1], schema.fields[-2])
    ),
    "a field wider": _change("isolation_level", type=FieldType("int16")),
    "a field too early": _change("rack_id", versions=Versions.parse("10+")),
    "a field too long": _change("replica_id", versions=Versions.parse("0-15")),
    "null not allowed": _change("cluster_id", nullable=NO_VERSIONS),
    "null allowed": _change("rack_id", nullable=Versions.parse("11+")),
    "another tag": _change("cluster_id", tag=2),
    "no tag": _change("cluster_id", tag=None),
    "another default": _change("session_epoch", default=0),
    "not ignorable": _change("max_bytes", ignorable=False),
}


@needs_definitions
@pytest.mark.parametrize("name", DEVIATIONS)
def test_comparison_finds_a_planted_deviation(name: str) -> None:
    planted = DEVIATIONS[name](schema_of(FetchRequest))
    assert differences(planted, definition("FetchRequest")) != []


@needs_definitions
def test_comparison_looks_inside_nested_structs() -> None:
    theirs = definition("FetchRequest")
    topics = next(field for field in theirs["fields"] if field["name"] == "Topics")
    topics["fields"][-1]["fields"][0]["type"] = "int64"
    assert any(
        "topics.partitions.partition" in found for found in differences(schema_of(FetchRequest), theirs)
    )


@needs_definitions
def test_error_codes_agree_with_kafkas_table() -> None:
    root = folder()
    assert root is not None
    text = (root.parent / "errors.md").read_text()
    rows = re.findall(r"^\| (-?\d+) \| (\w+) \| (R|no|-) \| (M?) ?\|", text, re.MULTILINE)
    theirs = {int(code): (name, retriable == "R", refresh == "M") for code, name, retriable, refresh in rows}
    ours = {code.value: (code.name, code.retriable, code.refreshes_metadata) for code in ErrorCode}
    assert ours == theirs
