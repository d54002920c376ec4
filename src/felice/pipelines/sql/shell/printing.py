"""The results of statements as text, each kind as ksqlDB's shell shows it.

Keeps true: a result of an unknown kind, or without a field that its kind should have, is shown as far as it goes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence

from felice.pipelines.sql.shell import describing
from felice.pipelines.sql.shell.client import Entity
from felice.pipelines.sql.shell.tables import items_of, of, table, title, yes

Show = Callable[[Entity, int | None], str]


def text_of(entity: Entity, width: int | None = None) -> str:
    """A result as text, behind an empty line, and its warnings. Tables are at most so wide; None for any width."""
    show = _SHOWN.get(str(entity.get("@type")), _as_json)
    warnings = [f"WARNING: {of(one, 'message')}" for one in items_of(entity, "warnings")]
    return "\n" + "\n".join(filter(None, (show(entity, width).strip("\n"), *warnings)))


def _as_json(entity: Entity, width: int | None) -> str:
    return json.dumps(entity, indent=2, ensure_ascii=False)


def _list(name: str, columns: Mapping[str, Callable[[Entity], object]]) -> Show:
    def show(entity: Entity, width: int | None) -> str:
        rows = [[read(one) for read in columns.values()] for one in items_of(entity, name)]
        return table(list(columns), rows, width)

    return show


def _field(name: str) -> Callable[[Entity], object]:
    return lambda row: of(row, name)


def _message(read: Callable[[Entity], object]) -> Show:
    return lambda entity, width: table(["Message"], [[read(entity)]], width)


def _sources(kind: str, name: str) -> Show:
    return _list(
        name,
        {
            f"{kind} Name": _field("name"),
            "Kafka Topic": _field("topic"),
            "Key Format": lambda row: of(row, "keyFormat") or "KAFKA",
            "Value Format": lambda row: of(row, "valueFormat", "format"),
            "Windowed": lambda row: yes(row.get("isWindowed")),
        },
    )


def _replicas(row: Entity) -> str:
    """One number if all partitions have as many replicas."""
    counts = [str(count) for count in row.get("replicaInfo") or []]
    return counts[0] if len(set(counts)) == 1 else ", ".join(counts)


_TOPIC: Mapping[str, Callable[[Entity], object]] = {
    "Kafka Topic": _field("name"),
    "Partitions": lambda row: len(row.get("replicaInfo") or []),
    "Partition Replicas": _replicas,
}


def _queries(entity: Entity, width: int | None) -> str:
    columns: Mapping[str, Callable[[Entity], object]] = {
        "Query ID": _field("id"),
        "Query Type": _field("queryType"),
        "Status": lambda row: describing.state_of(row),
        "Sink Name": lambda row: ", ".join(map(str, row.get("sinks") or [])),
        "Sink Kafka Topic": lambda row: ", ".join(map(str, row.get("sinkKafkaTopics") or [])),
        "Query String": lambda row: " ".join(of(row, "queryString").split()),
    }
    shown = _list("queries", columns)(entity, width)
    return f"{shown}\nFor detailed information on a Query run: EXPLAIN <Query ID>;"


def _properties(entity: Entity, width: int | None) -> str:
    changed = set(entity.get("overwrittenProperties") or [])
    defaults = set(entity.get("defaultProperties") or [])
    found = entity.get("properties") or []
    rows: Iterable[Sequence[object]]
    if isinstance(found, dict):  # as servers before ksqlDB 0.10 have them
        rows = [
            [name, "", _origin(name in changed, name in defaults), value] for name, value in found.items()
        ]
    else:
        rows = [
            [
                of(one, "name"),
                of(one, "scope"),
                _origin(one.get("name") in changed, one.get("name") in defaults),
                "NULL" if one.get("value") is None else of(one, "value"),
            ]
            for one in items_of(entity, "properties")
        ]
    return table(["Property", "Scope", "Default override", "Effective Value"], sorted(rows, key=str), width)


def _origin(is_changed: bool, is_default: bool) -> str:
    if is_changed:
        return "SESSION"
    return "" if is_default else "SERVER"


def _types(entity: Entity, width: int | None) -> str:
    found = entity.get("types") or {}
    rows = [[name, describing.type_of(schema)] for name, schema in sorted(found.items())]
    return table(["Type Name", "Schema"], rows, width)


def _connector_info(entity: Entity, width: int | None) -> str:
    info = entity.get("info")
    name = of(info, "name") if isinstance(info, dict) else ""
    return table(["Message"], [[f"Created connector {name}"]], width)


def _assertion(what: str, *names: str) -> Show:
    def read(entity: Entity) -> str:
        named = ", ".join(f"{name} {of(entity, name)}" for name in names if entity.get(name) is not None)
        verb = "exists" if entity.get("exists", True) else "does not exist"
        return f"{what} {named.removeprefix('topicName ')} {verb}"

    return _message(read)


_SHOWN: Mapping[str, Show] = {
    "currentStatus": _message(lambda entity: of(entity.get("commandStatus") or {}, "message", "status")),
    "warning_entity": _message(lambda entity: of(entity, "message")),
    "error_entity": _message(lambda entity: of(entity, "errorMessage")),
    "streams": _sources("Stream", "streams"),
    "tables": _sources("Table", "tables"),
    "kafka_topics": _list("topics", _TOPIC),
    "kafka_topics_extended": _list(
        "topics",
        {**_TOPIC, "Consumers": _field("consumerCount"), "ConsumerGroups": _field("consumerGroupCount")},
    ),
    "queries": _queries,
    "properties": _properties,
    "function_names": _list("functions", {"Function Name": _field("name"), "Category": _field("category")}),
    "describe_function": describing.function,
    "sourceDescription": describing.source,
    "source_descriptions": describing.sources,
    "queryDescription": describing.query,
    "queryDescriptions": describing.queries,
    "query_descriptions": describing.queries,
    "executionPlan": lambda entity, width: f"{title('Execution plan')}\n{of(entity, 'executionPlan')}",
    "type_list": _types,
    "variables": _list("variables", {"Variable Name": _field("name"), "Value": _field("value")}),
    "connector_info": _connector_info,
    "connector_list": _list(
        "connectors",
        {
            "Connector Name": _field("name"),
            "Type": lambda row: of(row, "type").upper(),
            "Class": _field("className"),
            "Status": _field("state"),
        },
    ),
    "connector_plugins_list": _list(
        "connectorPlugins",
        {
            "Class": _field("className"),
            "Type": lambda row: of(row, "type").upper(),
            "Version": _field("version"),
        },
    ),
    "connector_description": describing.connector,
    "drop_connector": _message(lambda entity: f"Dropped connector {of(entity, 'connectorName')}"),
    "assert_topic": _assertion("Topic", "topicName"),
    "assert_schema": _assertion("Schema", "subject", "id"),
}
