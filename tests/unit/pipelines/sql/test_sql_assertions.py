"""What ASSERT TOPIC and ASSERT SCHEMA compare: the same in the server and in `felice sql test`."""

from __future__ import annotations

import pytest

from felice.pipelines.registry_clients import RegistryAddress
from felice.pipelines.sql.assertions import schema_fault, topic_fault
from felice.pipelines.sql.functions import built_in
from felice.pipelines.sql.offline.cases import result_of
from felice.pipelines.sql.rows.registry import MemoryRegistry, Registry, RemoteRegistry
from felice.pipelines.sql.syntax.errors import SqlError
from felice.pipelines.sql.syntax.scripts import statements_of
from felice.pipelines.sql.syntax.tree import AssertExists


def asserted(text: str) -> AssertExists:
    (written,) = statements_of(f"ASSERT {text};", {})
    assert isinstance(written.statement, AssertExists)
    return written.statement


@pytest.mark.parametrize(
    ("text", "counts", "fault"),
    [
        ("TOPIC t", (3, 1), None),
        ("TOPIC t WITH (partitions=3, replicas='1')", (3, 1), None),
        ("TOPIC t WITH (partitions=2)", (3, 1), "For config partitions, expected 2 got 3"),
        ("TOPIC t WITH (replicas=2)", (3, 1), "For config replicas, expected 2 got 1"),
        ("TOPIC t", None, "Topic t does not exist."),
        ("NOT EXISTS TOPIC t", None, None),
        ("NOT EXISTS TOPIC t", (3, 1), "Topic t exists."),
    ],
)
def test_topics(text: str, counts: tuple[int, int] | None, fault: str | None) -> None:
    found = topic_fault(asserted(text), counts)
    assert found == fault or (fault is not None and found is not None and found.endswith(fault))


@pytest.mark.parametrize("counts", [None, (1, 1)])
def test_a_property_that_is_not_compared_is_refused(counts: tuple[int, int] | None) -> None:
    with pytest.raises(SqlError, match="Cannot assert unknown topic property: CLEANUP_POLICY"):
        topic_fault(asserted("TOPIC t WITH (cleanup_policy='compact')"), counts)


@pytest.mark.parametrize("kind", ["memory", "remote"])
def test_schemas(kind: str) -> None:
    """The server did not ask whether the schema of an id belongs to the subject."""
    registry: Registry = MemoryRegistry()
    if kind == "remote":
        registry = RemoteRegistry(RegistryAddress.of("mock://assertions"))
    one, other = registry.register("a-value", "AVRO", '"int"'), registry.register("b-value", "AVRO", '"long"')
    for text, fault in (
        ("SCHEMA SUBJECT 'a-value'", None),
        ("SCHEMA SUBJECT 'c-value'", "Schema with subject name c-value does not exist"),
        (f"SCHEMA ID {other}", None),
        ("SCHEMA ID 99", "Schema with id 99 does not exist"),
        (f"SCHEMA SUBJECT 'a-value' ID {one}", None),
        (
            f"SCHEMA SUBJECT 'a-value' ID {other}",
            f"Schema with subject name a-value id {other} does not exist",
        ),
        (f"NOT EXISTS SCHEMA SUBJECT 'b-value' ID {one}", None),
        (f"NOT EXISTS SCHEMA ID {one}", f"Schema with id {one} exists"),
    ):
        assert schema_fault(asserted(text), registry) == fault, text


def test_an_output_is_found_where_none_is_expected() -> None:
    """An empty list of outputs was taken for a missing one."""
    stream = "CREATE STREAM S (K STRING KEY, V INT) WITH (kafka_topic='s', value_format='JSON');"
    case = {
        "name": "x",
        "statements": [stream, "CREATE STREAM R AS SELECT * FROM S;"],
        "inputs": [{"topic": "s", "key": "a", "value": {"V": 1}}],
        "outputs": [],
    }
    found = result_of(case, built_in())
    assert not found["passed"] and found["difference"] == "expected no records, and the queries wrote to R"
    assert result_of(
        {**case, "statements": [*case["statements"], "SELECT * FROM R EMIT CHANGES;"]}, built_in()
    )["passed"]
