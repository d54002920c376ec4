"""The server's answers as text, each kind once."""

from __future__ import annotations

from typing import Any

import pytest

from felice.pipelines.sql.shell.printing import text_of
from felice.pipelines.sql.shell.rows import RowTable, columns_of

STRING = {"type": "STRING", "fields": None, "memberSchema": None}
INTEGER = {"type": "INTEGER", "fields": None, "memberSchema": None}
COLUMNS: list[dict[str, Any]] = [
    {"name": "ID", "schema": STRING, "type": "KEY"},
    {"name": "N", "schema": {"type": "DECIMAL", "parameters": {"precision": 9, "scale": 2}}},
    {
        "name": "S",
        "schema": {
            "type": "STRUCT",
            "fields": [
                {"name": "A", "schema": {"type": "ARRAY", "memberSchema": INTEGER}},
                {"name": "M", "schema": {"type": "MAP", "memberSchema": STRING}},
            ],
        },
    },
    {"name": "H", "schema": {"type": "BYTES"}, "type": "HEADER", "headerKey": "h"},
]
QUERY = {
    "queryString": "CREATE STREAM C AS\n  SELECT *\nFROM S;",
    "sinks": ["C"],
    "sinkKafkaTopics": ["C"],
    "id": "CSAS_C_1",
    "statusCount": {"RUNNING": 1},
    "queryType": "PERSISTENT",
    "state": "RUNNING",
}
SOURCE: dict[str, Any] = {
    "name": "S",
    "windowType": None,
    "readQueries": [QUERY],
    "writeQueries": [],
    "fields": COLUMNS,
    "type": "STREAM",
    "timestamp": "",
    "statistics": "messages-per-sec: 1",
    "errorStats": "",
    "extended": False,
    "keyFormat": "KAFKA",
    "valueFormat": "JSON",
    "topic": "s",
    "partitions": 4,
    "replication": 1,
    "statement": "CREATE STREAM S (…);",
    "queryOffsetSummaries": [
        {
            "groupId": "_confluent-1",
            "topicSummaries": [
                {
                    "kafkaTopic": "s",
                    "offsets": [
                        {"partition": 0, "logStartOffset": 0, "logEndOffset": 7, "consumerOffset": 5},
                        {"partition": 1, "logStartOffset": 0, "logEndOffset": 1, "consumerOffset": 1},
                    ],
                }
            ],
        }
    ],
    "sourceConstraints": ["C"],
}


def lines(kind: str, **content: Any) -> list[str]:
    """The text of a result: cells without the spaces that make columns, and no empty lines."""
    text = text_of({"@type": kind, "statementText": "…", "warnings": [], **content})
    return [" ".join(line.split()) for line in text.splitlines() if line.strip(" -")]


@pytest.mark.parametrize(
    ("kind", "content", "expected"),
    [
        ("currentStatus", {"commandStatus": {"status": "SUCCESS", "message": "done"}}, ["Message", "done"]),
        ("warning_entity", {"message": "exists already"}, ["Message", "exists already"]),
        ("error_entity", {"errorMessage": "no"}, ["Message", "no"]),
        (
            "streams",
            {
                "streams": [
                    {
                        "type": "STREAM",
                        "name": "S",
                        "topic": "s",
                        "keyFormat": "KAFKA",
                        "valueFormat": "JSON",
                    },
                    {
                        "name": "W",
                        "topic": "w",
                        "keyFormat": "JSON",
                        "valueFormat": "AVRO",
                        "isWindowed": True,
                    },
                ]
            },
            [
                "Stream Name | Kafka Topic | Key Format | Value Format | Windowed",
                "S | s | KAFKA | JSON | false",
                "W | w | JSON | AVRO | true",
            ],
        ),
        ("tables", {"tables": []}, ["Table Name | Kafka Topic | Key Format | Value Format | Windowed"]),
        (
            "kafka_topics",
            {"topics": [{"name": "s", "replicaInfo": [1, 1]}, {"name": "t", "replicaInfo": [1, 2]}]},
            ["Kafka Topic | Partitions | Partition Replicas", "s | 2 | 1", "t | 2 | 1, 2"],
        ),
        (
            "kafka_topics_extended",
            {"topics": [{"name": "s", "replicaInfo": [1], "consumerCount": 3, "consumerGroupCount": 2}]},
            [
                "Kafka Topic | Partitions | Partition Replicas | Consumers | ConsumerGroups",
                "s | 1 | 1 | 3 | 2",
            ],
        ),
        (
            "queries",
            {"queries": [QUERY]},
            [
                "Query ID | Query Type | Status | Sink Name | Sink Kafka Topic | Query String",
                "CSAS_C_1 | PERSISTENT | RUNNING:1 | C | C | CREATE STREAM C AS SELECT * FROM S;",
                "For detailed information on a Query run: EXPLAIN <Query ID>;",
            ],
        ),
        (
            "properties",
            {
                "properties": [
                    {"name": "b", "scope": "KSQL", "value": "1"},
                    {"name": "a", "scope": "KSQL", "value": None},
                    {"name": "c", "scope": "KSQL", "value": "3"},
                ],
                "overwrittenProperties": ["b"],
                "defaultProperties": ["a"],
            },
            [
                "Property | Scope | Default override | Effective Value",
                "a | KSQL | | NULL",
                "b | KSQL | SESSION | 1",
                "c | KSQL | SERVER | 3",
            ],
        ),
        (
            "properties",
            {"properties": {"a": "1"}},
            ["Property | Scope | Default override | Effective Value", "a | | SERVER | 1"],
        ),
        (
            "function_names",
            {"functions": [{"name": "ABS", "type": "SCALAR", "category": "MATHEMATICAL"}]},
            ["Function Name | Category", "ABS | MATHEMATICAL"],
        ),
        (
            "type_list",
            {"types": {"T": COLUMNS[2]["schema"], "A": INTEGER}},
            [
                "Type Name | Schema",
                "A | INTEGER",
                "T | STRUCT<A ARRAY<INTEGER>, M MAP<STRING, VARCHAR(STRING)>>",
            ],
        ),
        ("variables", {"variables": [{"name": "a", "value": "b"}]}, ["Variable Name | Value", "a | b"]),
        ("executionPlan", {"executionPlan": "> one"}, ["Execution plan", "> one"]),
        (
            "describe_function",
            {
                "name": "ABS",
                "description": "Without its sign.",
                "author": "me",
                "path": "internal",
                "type": "SCALAR",
                "functions": [
                    {
                        "arguments": [
                            {"name": "val", "type": "INT", "description": "A number.", "isVariadic": True}
                        ],
                        "returnType": "INT",
                        "description": "Its size.",
                    }
                ],
            },
            [
                "Name : ABS",
                "Author : me",
                "Overview : Without its sign.",
                "Type : SCALAR",
                "Jar : internal",
                "Variations :",
                "Variation : ABS(val INT[])",
                "Returns : INT",
                "Description : Its size.",
                "val : A number.",
            ],
        ),
        ("connector_info", {"info": {"name": "c"}}, ["Message", "Created connector c"]),
        ("drop_connector", {"connectorName": "c"}, ["Message", "Dropped connector c"]),
        (
            "connector_list",
            {"connectors": [{"name": "c", "type": "source", "className": "x.Y", "state": "RUNNING"}]},
            ["Connector Name | Type | Class | Status", "c | SOURCE | x.Y | RUNNING"],
        ),
        (
            "connector_plugins_list",
            {"connectorPlugins": [{"className": "x.Y", "type": "sink", "version": "1"}]},
            ["Class | Type | Version", "x.Y | SINK | 1"],
        ),
        (
            "connector_description",
            {
                "connectorClass": "x.Y",
                "status": {
                    "name": "c",
                    "type": "sink",
                    "connector": {"state": "RUNNING", "worker_id": "w"},
                    "tasks": [{"id": 0, "state": "FAILED", "trace": "at a\nlast\n"}],
                },
                "sources": [{"name": "S", "topic": "s", "type": "STREAM"}],
                "topics": ["s"],
            },
            [
                "Name : c",
                "Class : x.Y",
                "Type : sink",
                "State : RUNNING",
                "WorkerId : w",
                "Task ID | State | Error Trace",
                "0 | FAILED | last",
                "KSQL Source Name | Kafka Topic | Type",
                "S | s | STREAM",
                "Related Topics",
                "s",
            ],
        ),
        ("assert_topic", {"topicName": "s", "exists": True}, ["Message", "Topic s exists"]),
        (
            "assert_schema",
            {"subject": "s", "id": 3, "exists": False},
            ["Message", "Schema subject s, id 3 does not exist"],
        ),
    ],
)
def test_a_result(kind: str, content: dict[str, Any], expected: list[str]) -> None:
    assert lines(kind, **content) == expected


def test_the_description_of_a_source() -> None:
    assert lines("sourceDescription", sourceDescription=SOURCE) == [
        "Name : S",
        "Field | Type",
        "ID | VARCHAR(STRING) (key)",
        "N | DECIMAL(9, 2)",
        "S | STRUCT<A ARRAY<INTEGER>, M MAP<STRING, VARCHAR(STRING)>>",
        "H | BYTES (header('h'))",
        "For runtime statistics and query details run: DESCRIBE <Stream,Table> EXTENDED;",
    ]
    table = {**SOURCE, "type": "TABLE", "windowType": "TUMBLING"}
    found = lines("sourceDescription", sourceDescription=table)
    assert found[2] == "ID | VARCHAR(STRING) (primary key) (Window type: TUMBLING)"


def test_the_extended_description_of_a_source() -> None:
    found = lines("source_descriptions", sourceDescriptions=[{**SOURCE, "extended": True}])
    assert found[:7] == [
        "Name : S",
        "Type : STREAM",
        "Timestamp field : Not set - using <ROWTIME>",
        "Key format : KAFKA",
        "Value format : JSON",
        "Kafka topic : s (partitions: 4, replication: 1)",
        "Statement : CREATE STREAM S (…);",
    ]
    assert found[12:] == [
        "Sources that have a DROP constraint on this source",
        "C",
        "Queries that read from this STREAM",
        "CSAS_C_1 (RUNNING:1) : CREATE STREAM C AS",
        "SELECT *",
        "FROM S;",
        "For query topology and execution plan please run: EXPLAIN <QueryId>",
        "Local runtime statistics",
        "messages-per-sec: 1",
        "Consumer Groups summary:",
        "Consumer Group : _confluent-1",
        "Kafka topic : s",
        "Max lag : 2",
        "Partition | Start Offset | End Offset | Offset | Lag",
        "0 | 0 | 7 | 5 | 2",
        "1 | 0 | 1 | 1 | 0",
    ]


def test_the_description_of_a_query() -> None:
    description = {
        "id": "CSAS_C_1",
        "statementText": "CREATE STREAM C AS SELECT * FROM S;",
        "fields": COLUMNS[:1],
        "sources": ["S"],
        "sinks": ["C"],
        "topology": "Topologies:\n   one\n",
        "executionPlan": " > [ SINK ]\n",
        "overriddenProperties": {"a": "b"},
        "ksqlHostQueryStatus": {"h:8088": "RUNNING"},
        "queryType": "PERSISTENT",
        "consumerGroupId": "g",
        "queryErrors": [{"timestamp": 1, "type": "USER", "errorMessage": "bad"}],
    }
    found = lines("queryDescription", queryDescription=description)
    assert found == lines("queryDescriptions", queryDescriptions=[description])
    assert found == [
        "ID : CSAS_C_1",
        "Query Type : PERSISTENT",
        "SQL : CREATE STREAM C AS SELECT * FROM S;",
        "Host Query Status : h:8088: RUNNING",
        "Consumer group : g",
        "Field | Type",
        "ID | VARCHAR(STRING) (key)",
        "Sources that this query reads from:",
        "S",
        "Sinks that this query writes to:",
        "C",
        "Execution plan",
        "> [ SINK ]",
        "Processing topology",
        "Topologies:",
        "one",
        "Overridden Properties",
        "Property | Value",
        "a | b",
        "Error messages",
        "Timestamp | Type | Message",
        "1 | USER | bad",
    ]


def test_warnings_follow_a_result() -> None:
    found = lines("streams", streams=[], warnings=[{"message": "old"}])
    assert found[-1] == "WARNING: old"


def test_a_result_of_an_unknown_kind_is_shown_as_it_came() -> None:
    assert '"new": [' in text_of({"@type": "novelty", "new": [1]})
    assert lines("sourceDescription")[0] == "Name :"
    assert lines("streams") == ["Stream Name | Kafka Topic | Key Format | Value Format | Windowed"]


def test_a_table_fits_the_screen() -> None:
    """A value has no markup, and goes on in the next line."""
    content = {"@type": "variables", "variables": [{"name": "[red]", "value": "v" * 50}]}
    found = text_of(content, 40).splitlines()
    assert max(map(len, found)) <= 40
    assert "".join(line.rpartition("|")[2].strip() for line in found[3:-1]).replace("[red]", "") == "v" * 50
    assert any(" [red] " in line for line in found)


def test_rows_fill_the_screen() -> None:
    """A wide character takes two columns."""
    table = RowTable(["A", "B"], 21)
    assert table.header() == "+---------+---------+\n|A        |B        |\n+---------+---------+"
    assert table.row(["日本語日本語", 1]) == "|日本語日 |1        |\n|本語     |         |"
    narrow = RowTable(["ABCDEF"] * 10, 20)
    assert narrow.row(["abcdef"] * 10) == "|" + "abcdef|" * 10


def test_without_a_screen_long_values_make_columns_wider() -> None:
    """They moved the columns behind them, in one row and not in the others."""
    table = RowTable(["A", "B"], None)
    line = table.header().splitlines()[0]
    assert table.row(["a", 1]).index("|1") == line.index("+", 1)
    header, wide = table.header(), table.row(["x" * 20, 2]).splitlines()
    assert table.header() != header and wide[:3] == table.header().splitlines()
    row, next_row = wide[3], table.row(["y" * 32, 3])
    assert row.index("|2") == next_row.index("|3") == table.header().index("+", 1)
    widest = len(table.row(["z" * 500, 4]).splitlines()[-1])
    table.row(["z" * 501, 5])
    assert len(table.row(["a", 6])) == widest


@pytest.mark.parametrize(
    ("schema", "names"),
    [
        ("`A` STRING KEY, `b c` INTEGER", ["A", "b c"]),
        ("`A` STRUCT<`X` MAP<STRING, INTEGER>, `Y` DECIMAL(4, 2)>, `B` ARRAY<ARRAY<INTEGER>>", ["A", "B"]),
        ("`A", ["`A"]),
        ("", []),
    ],
)
def test_columns_of_a_schema(schema: str, names: list[str]) -> None:
    assert columns_of(schema) == names
