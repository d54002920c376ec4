"""Files of statements as programs: their applications, and the topics that they need."""

from __future__ import annotations

import pytest

from felice.pipelines.sql.functions import built_in
from felice.pipelines.sql.programs import NeededTopic, program_of
from felice.pipelines.sql.syntax.errors import SqlError
from felice.pipelines.streams.driver import TestDriver
from felice.pipelines.streams.task import StreamsError

STREAM = "CREATE STREAM s (k STRING KEY, v INT) WITH (kafka_topic='s', value_format='JSON', partitions=3);"


def test_topics_that_are_not_there_are_needed() -> None:
    """With the partitions of what is read, and the options of WITH."""
    program = program_of(
        STREAM
        + "CREATE TABLE t AS SELECT k, COUNT(*) AS n FROM s GROUP BY k;"
        + "CREATE TABLE w WITH (retention_ms=1000) AS SELECT k, COUNT(*) AS n FROM s WINDOW SESSION (1 DAY) GROUP BY k;"
        + "CREATE STREAM r WITH (partitions=5, retention_ms=2000, cleanup_policy='compact') AS SELECT k, v FROM s;",
        {"s": 2},
        built_in(),
    )
    assert program.topics == {
        "T": NeededTopic("T", 2, 1, {"cleanup.policy": "compact"}),
        "W": NeededTopic("W", 2, 1, {"cleanup.policy": "compact,delete", "retention.ms": "1000"}),
        "R": NeededTopic("R", 5, 1, {"cleanup.policy": "compact", "retention.ms": "2000"}),
    }
    assert [app.name for app in program.apps] == ["CTAS_T", "CTAS_W", "CSAS_R"]


def test_a_start_that_is_unset_is_the_default() -> None:
    query = "CREATE STREAM r AS SELECT * FROM s;"
    texts = [
        f"{setting}{STREAM}{query}"
        for setting in (
            "",
            "SET 'auto.offset.reset'='earliest'; UNSET 'auto.offset.reset';",
            "SET 'auto.offset.reset'='earliest';",
        )
    ]
    parts = [program_of(text, {}, built_in()).apps[0].topology.parts() for text in texts]
    assert [part.sources[0].start for (part,) in parts] == ["latest", "latest", "earliest"]


def test_a_record_in_another_format_stops_the_query_if_set() -> None:
    setting = "SET 'ksql.fail.on.deserialization.error'='true';"
    program = program_of(f"{setting}{STREAM}CREATE STREAM r AS SELECT * FROM s;", {}, built_in())
    with pytest.raises(StreamsError, match="is not JSON"):
        TestDriver(program.apps[0]).send_bytes("s", b"a", b"no JSON")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("SELECT * FROM s;", "`felice run` does not support SELECT"),
        ("INSERT INTO s (k, v) VALUES ('a', 1);", "`felice run` does not support INSERT INTO … VALUES"),
        ("SHOW STREAMS;", "`felice run` does not support SHOW$"),
        ("pause all;", "`felice run` does not support PAUSE$"),
        ("DROP CONNECTOR c;", "`felice run` does not support DROP CONNECTOR$"),
        (
            "CREATE STREAM a (v INT) WITH (kafka_topic='a', value_format='AVRO', partitions=1);",
            "the format AVRO needs a schema registry",
        ),
    ],
)
def test_statements_that_programs_do_not_have(text: str, reason: str) -> None:
    with pytest.raises(SqlError, match=reason):
        program_of(STREAM + text, {}, built_in())
