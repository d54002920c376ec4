"""Files of statements as programs: their applications, and the topics that they need."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from felice.pipelines.sql.functions import built_in
from felice.pipelines.sql.programs import NeededTopic, program_of
from felice.pipelines.sql.syntax.errors import SqlError
from felice.pipelines.streams.driver import TestDriver
from felice.pipelines.streams.on_spark.changes import DROPPED, KEPT, NEW, of_program, planned
from felice.pipelines.streams.on_spark.directory import Description
from felice.pipelines.streams.on_spark.host.plans import KnownApp
from felice.pipelines.streams.task import StreamsError

STREAM = "CREATE STREAM s (k STRING KEY, v INT) WITH (kafka_topic='s', value_format='JSON', partitions=3);"


def test_topics_that_are_not_there_are_needed() -> None:
    """With the partitions of what is read, and the options of WITH."""
    program = program_of(
        STREAM
        + "CREATE TABLE t AS SELECT k, COUNT(*) AS n FROM s GROUP BY k;"
        + "CREATE TABLE w WITH (retention_ms=1000) AS SELECT k, COUNT(*) AS n FROM s WINDOW SESSION (1 DAY) GROUP BY k;"
        + "CREATE STREAM r WITH (partitions=5, retention_ms=2000, cleanup_policy='compact') AS SELECT k, v FROM s;",
        {"s": 3},
        built_in(),
    )
    assert program.topics == {
        "T": NeededTopic("T", 3, 1, {"cleanup.policy": "compact"}),
        "W": NeededTopic("W", 3, 1, {"cleanup.policy": "compact,delete", "retention.ms": "1000"}),
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


def test_a_topic_that_has_other_partitions_than_the_statement_says() -> None:
    for text, topic in (
        (STREAM, "s"),
        (f"{STREAM}CREATE STREAM r WITH (partitions=3) AS SELECT * FROM s;", "R"),
    ):
        with pytest.raises(SqlError, match=f"'{topic}' already exists, with different partition"):
            program_of(text, {topic: 2}, built_in())
    assert program_of(f"{STREAM}CREATE STREAM r AS SELECT * FROM s;", {"R": 2}, built_in()).apps


def test_a_number_of_partitions_in_quotes_is_a_number() -> None:
    text = f"{STREAM}CREATE STREAM r WITH (partitions='3') AS SELECT * FROM s;"
    assert program_of(text, {"R": 3}, built_in()).apps
    with pytest.raises(SqlError, match="it has 2 partitions, and WITH has 3"):
        program_of(text, {"R": 2}, built_in())


def test_a_word_that_is_no_unit_is_a_column() -> None:
    """As in ksqlDB. Each row would have had NULL instead."""
    query = "CREATE STREAM r AS SELECT k, TIMESTAMPADD(WEEKS, 1, FROM_UNIXTIME(v)) AS t FROM s;"
    with pytest.raises(SqlError, match="WEEKS"):
        program_of(STREAM + query, {}, built_in())


def test_a_source_from_which_others_were_made_is_not_dropped() -> None:
    made = f"{STREAM}CREATE STREAM r AS SELECT * FROM s;TERMINATE CSAS_R;"
    with pytest.raises(
        SqlError, match=r"Cannot drop S. .* read from this source: \[R\]. You need to drop them"
    ):
        program_of(f"{made}DROP STREAM s;", {}, built_in())
    assert not program_of(f"{made}DROP STREAM r;DROP STREAM s;", {}, built_in()).apps


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ("k, SUM(v) AS n", "k, SUM(v) AS m", None),
        ("k, SUM(v) AS n", "k, COUNT(v) AS n", "to `K0` STRING; `COUNT(V)` BIGINT; begins empty"),
        ("k, MIN(v) AS n", "k, MAX(v) AS n", "to `K0` STRING; `MAX(V)` INTEGER; begins empty"),
        ("k, MAX(v) AS n", "k, MAX(w) AS n", "to `K0` STRING; `MAX(W)` INTEGER; begins empty"),
        ("k, MAX(v) AS n", "k, MAX(v) AS n, MIN(v) AS m", "`MAX(V)` INTEGER, `MIN(V)` INTEGER"),
    ],
)
def test_other_aggregates_do_not_read_the_state_of_the_earlier_ones(
    before: str, after: str, why: str | None, tmp_path: Path
) -> None:
    """The rows were read in another layout."""
    stream = STREAM.replace("v INT", "v INT, w INT")
    old, new = (
        program_of(f"{stream} CREATE TABLE t AS SELECT {one} FROM s GROUP BY k;", {"s": 3}, built_in()).apps[
            0
        ]
        for one in (before, after)
    )
    described = Description(old.name, partitions=1, starting={}, **of_program(old.topology))
    change = planned(new, KnownApp(tmp_path, described))
    assert change is not None
    (fate,) = [one for one in change.fates if one.what != DROPPED]
    assert fate.what == (KEPT if why is None else NEW)
    assert why is None or why in fate.why
    change = planned(new, KnownApp(tmp_path, of_older_release(described)))
    assert change is not None and [one.what for one in change.fates] == [KEPT], (
        "an older release noted no layout"
    )


def of_older_release(described: Description) -> Description:
    """As a release wrote it that noted no layouts."""
    parts = described.parts or ()
    older = (tuple(replace(one, layout="") for one in part.stores) for part in parts)
    return replace(
        described,
        parts=tuple(replace(part, stores=stores) for part, stores in zip(parts, older, strict=True)),
    )


def test_a_layout_that_is_not_known_has_not_changed(tmp_path: Path) -> None:
    streams = STREAM + STREAM.replace("s (", "r (").replace("'s'", "'r'")
    old, new = (
        program_of(
            f"{streams} CREATE TABLE t AS SELECT v, MAX(v) AS n FROM {one} GROUP BY v;",
            {"s": 3, "r": 3},
            built_in(),
        ).apps[0]
        for one in "sr"
    )
    described = Description(old.name, partitions=1, starting={}, **of_program(old.topology))
    for one in (described, of_older_release(described)):
        change = planned(new, KnownApp(tmp_path, one))
        assert change is not None
        assert [fate.why for fate in change.fates if fate.what == NEW] == ["begins with its topics"]
