"""What statements answer, as the JSON objects of ksqlDB's REST API (`@type` and its members). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from felice.pipelines.sql.catalogue import HEADERS, KEY, Catalogue, ColumnInfo, SourceInfo
from felice.pipelines.sql.functions.table import Function
from felice.pipelines.sql.server.cluster import Topic
from felice.pipelines.sql.server.failures import Entity
from felice.pipelines.sql.server.persistent import QueryState
from felice.pipelines.sql.types import Array, Decimal, Map, SqlType, Struct, base


def status(
    text: str, id: str, number: int, message: str, query: str | None, warnings: Sequence[str] = ()
) -> Entity:
    """That a command was accepted and applied."""
    return {
        "@type": "currentStatus",
        "statementText": text,
        "commandId": id,
        "commandStatus": {"status": "SUCCESS", "message": message, "queryId": query},
        "commandSequenceNumber": number,
        "warnings": [{"message": one} for one in warnings],
    }


def warning(text: str, message: str) -> Entity:
    """That a statement changed nothing, and why."""
    return {"@type": "warning_entity", "statementText": text, "message": message, "warnings": []}


def of_kind(kind: str, text: str, **members: Any) -> Entity:
    """An answer of this `@type`."""
    return {"@type": kind, "statementText": text, **members, "warnings": []}


def sources(text: str, kind: str, found: Iterable[SourceInfo]) -> Entity:
    """SHOW STREAMS, SHOW TABLES."""
    name = f"{kind.lower()}s"
    return of_kind(name, text, **{name: [_listed(one) for one in found]})


def _listed(source: SourceInfo) -> Entity:
    return {
        "type": source.kind,
        "name": source.name,
        "topic": source.topic,
        "keyFormat": source.key_format.name,
        "valueFormat": source.value_format.name,
        "isWindowed": source.window is not None,
    }


def topics(text: str, found: Iterable[Topic]) -> Entity:
    """SHOW TOPICS."""
    shown = [{"name": one.name, "replicaInfo": [one.replicas] * one.partitions} for one in found]
    return of_kind("kafka_topics", text, topics=shown)


def query(catalogue: Catalogue, id: str, given: QueryState) -> Entity:
    """One persistent query, with the reason if it does not run, and how far it is behind its topics."""
    info = catalogue.queries[id]
    sink = catalogue.sources.get(info.writes)
    shown: Entity = {
        "queryString": info.text,
        "sinks": [info.writes],
        "sinkKafkaTopics": [] if sink is None else [sink.topic],
        "id": id,
        "statusCount": {given.name: 1},
        "queryType": "PERSISTENT",
        "state": given.name,
    }
    more = {"error": given.reason, "behind": given.behind}
    return shown | {name: value for name, value in more.items() if value is not None}


def schema(type_: SqlType) -> Entity:
    """A type."""
    match type_:
        case Array(element):
            return {"type": "ARRAY", "fields": None, "memberSchema": schema(element)}
        case Map(key, member):
            return {
                "type": "MAP",
                "fields": None,
                "memberSchema": schema(member),
                "keySchema": schema(key),
            }
        case Struct(fields):
            members = [{"name": name, "schema": schema(one)} for name, one in fields]
            return {"type": "STRUCT", "fields": members, "memberSchema": None}
        case Decimal(precision, scale):
            parameters = {"precision": precision, "scale": scale}
            return {"type": "DECIMAL", "fields": None, "memberSchema": None, "parameters": parameters}
    return {"type": base(type_), "fields": None, "memberSchema": None}


def fields(columns: Sequence[ColumnInfo]) -> list[Entity]:
    """The columns of a source."""
    return [{"name": one.name, "schema": schema(one.type), **_role(one)} for one in columns]


def _role(column: ColumnInfo) -> Entity:
    if column.role == KEY:
        return {"type": "KEY"}
    if column.role != HEADERS:
        return {}
    return {"type": "HEADER"} if column.header is None else {"type": "HEADER", "headerKey": column.header}


def description(
    source: SourceInfo, catalogue: Catalogue, queries: Mapping[str, Entity], *, is_extended: bool
) -> Entity:
    """DESCRIBE of a stream or table."""
    return {
        "name": source.name,
        "windowType": None if source.window is None else source.window.kind,
        "readQueries": [queries[one] for one in catalogue.readers(source.name)],
        "writeQueries": [queries[one] for one in catalogue.writers(source.name)],
        "fields": fields(source.columns),
        "type": source.kind,
        "timestamp": "" if source.event_time is None else source.event_time.column,
        "statistics": "",
        "errorStats": "",
        "extended": is_extended,
        "keyFormat": source.key_format.name,
        "valueFormat": source.value_format.name,
        "topic": source.topic,
        "partitions": source.partitions,
        "replication": source.replicas,
        "statement": source.text,
        "queryOffsetSummaries": [],
        "sourceConstraints": catalogue.derived(source.name),
    }


def functions(text: str, found: Iterable[Function]) -> Entity:
    """SHOW FUNCTIONS."""
    kinds = {one.name: one.kind for one in found}
    shown = [{"name": name, "type": kind, "category": ""} for name, kind in sorted(kinds.items())]
    return of_kind("function_names", text, functions=shown)


def function(text: str, found: Sequence[Function]) -> Entity:
    """DESCRIBE FUNCTION."""
    first = found[0]
    return of_kind(
        "describe_function",
        text,
        name=first.name,
        description=first.description,
        author=first.author,
        version="",
        path="internal",
        type=first.kind,
        functions=[
            {
                "signature": one.signature.text,
                "returnType": one.signature.text.rpartition("->")[2].strip(),
                "description": one.description,
            }
            for one in found
        ],
    )
