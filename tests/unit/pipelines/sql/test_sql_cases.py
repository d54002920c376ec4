"""The tests in `cases`, in the form of `felice sql test --cases`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from felice.pipelines.sql.functions import built_in
from felice.pipelines.sql.offline.cases import parsed, result_of
from felice.pipelines.sql.offline.statements import Statements
from felice.pipelines.sql.offline.topics import Topics
from felice.pipelines.streams.task import TopicRecord

CASES = Path(__file__).with_name("cases")


def _cases() -> Iterator[Any]:
    for file in sorted(CASES.glob("*.jsonl")):
        for line in file.read_text().splitlines():
            case = parsed(line)
            yield pytest.param(case, id=f"{file.stem}-{case['name']}")


@pytest.mark.parametrize("case", list(_cases()))
def test_case(case: dict[str, Any]) -> None:
    """Its queries write what is expected, or its statement is refused."""
    found = result_of(case, built_in())
    assert found["passed"], json.dumps(found, indent=1, default=str)
    for response, expected in zip(found["responses"], case.get("responses") or [], strict=False):
        assert {name: response[name] for name in expected} == expected


def test_the_names_of_registered_schemas() -> None:
    """Those of AVRO keys are their owner's; the message of a result in PROTOBUF is named as that of its source."""
    topics = Topics()
    statements = Statements(built_in(), {}, topics)
    statements.execute(
        "CREATE STREAM MY_S (K INT KEY, L INT KEY, V INT) WITH (kafka_topic='s', format='AVRO');"
        "CREATE STREAM `t-1` AS SELECT * FROM MY_S;"
        "CREATE STREAM NAMED WITH (key_schema_full_name='a.Own') AS SELECT * FROM MY_S;"
        "CREATE STREAM P (V INT) WITH (kafka_topic='p', value_format='PROTOBUF', value_schema_full_name='a.M');"
        "CREATE STREAM Q AS SELECT * FROM P;"
    )
    schemas = {
        subject: topics.registry.latest(subject) for subject in ("s-key", "t-1-key", "NAMED-key", "Q-value")
    }
    texts = [schema.text for schema in schemas.values() if schema is not None]
    assert [(one["namespace"], one["name"]) for one in map(json.loads, texts[:3])] == [
        ("io.confluent.ksql.avro_schemas", "MySKey"),
        ("io.confluent.ksql.avro_schemas", "T1Key"),
        ("a", "Own"),
    ]
    assert "package a;" in texts[3] and "message M {" in texts[3]


def test_state_does_not_change_the_subjects_of_a_topic() -> None:
    """Other programs write the topic, with a schema that does not fit the one of the query's state."""
    topics = Topics()
    for part, field in (("key", "K"), ("value", "V")):
        fields = [{"name": field, "type": "int"}]
        schema = {"type": "record", "name": f"com.other.{part}", "fields": fields}
        topics.registry.register(f"s-{part}", "AVRO", json.dumps(schema))
    before = [topics.registry.latest(subject) for subject in ("s-key", "s-value")]
    statements = Statements(built_in(), {}, topics)
    statements.execute(
        "CREATE TABLE S (K STRUCT<K INT> PRIMARY KEY, V INT) WITH (kafka_topic='s', format='AVRO');"
        "CREATE TABLE T AS SELECT * FROM S WHERE V > 1;"
    )
    record = TopicRecord("s", b"\0\0\0\0\1\x02", b"\0\0\0\0\2\x0a", 0, ())
    topics.write(record)
    statements.run_queries([record])
    assert len(topics.topic("T").records) == 1
    assert [topics.registry.latest(subject) for subject in ("s-key", "s-value")] == before
