"""The results of DESCRIBE and EXPLAIN as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from felice.pipelines.sql.shell.client import Entity
from felice.pipelines.sql.shell.tables import fields, items_of, of, table, title

_SQL_NAMES = {"STRING": "VARCHAR(STRING)"}


def type_of(schema: object) -> str:
    """A type such as `STRUCT<A BIGINT, B VARCHAR(STRING)>`, of a schema with `type`, `fields` and `memberSchema`."""
    if not isinstance(schema, dict):
        return str(schema)
    name = of(schema, "type")
    if name == "STRUCT":
        inner = ", ".join(
            f"{of(one, 'name')} {type_of(one.get('schema'))}" for one in items_of(schema, "fields")
        )
        return f"STRUCT<{inner}>"
    if name == "ARRAY":
        return f"ARRAY<{type_of(schema.get('memberSchema'))}>"
    if name == "MAP":
        return f"MAP<STRING, {type_of(schema.get('memberSchema'))}>"
    parameters = schema.get("parameters")
    if name == "DECIMAL" and isinstance(parameters, dict):
        return f"DECIMAL({of(parameters, 'precision')}, {of(parameters, 'scale')})"
    return _SQL_NAMES.get(name, name)


def state_of(query: Entity) -> str:
    """`RUNNING`, or `RUNNING:2,ERROR:1` of a query that runs on several servers."""
    counts = query.get("statusCount")
    if not isinstance(counts, dict) or not counts:
        return of(query, "state")
    return ",".join(f"{state}:{count}" for state, count in counts.items())


def source(entity: Entity, width: int | None) -> str:
    """DESCRIBE of a stream or table."""
    found = entity.get("sourceDescription")
    return _source(found if isinstance(found, dict) else {}, width)


def sources(entity: Entity, width: int | None) -> str:
    """DESCRIBE STREAMS, DESCRIBE TABLES, SHOW STREAMS EXTENDED."""
    return "\n\n".join(_source(one, width) for one in items_of(entity, "sourceDescriptions"))


def _source(found: Entity, width: int | None) -> str:
    if not found.get("extended"):
        return _paragraphs(
            fields([("Name", of(found, "name"))]) + _columns(found, width),
            "For runtime statistics and query details run: DESCRIBE <Stream,Table> EXTENDED;",
        )
    kind = of(found, "type")
    partitions = f"(partitions: {of(found, 'partitions')}, replication: {of(found, 'replication')})"
    head = [
        ("Name", of(found, "name")),
        ("Type", kind),
        ("Timestamp field", of(found, "timestamp") or "Not set - using <ROWTIME>"),
        ("Key format", of(found, "keyFormat")),
        ("Value format", of(found, "valueFormat")),
        ("Kafka topic", f"{of(found, 'topic')} {partitions}"),
        ("Statement", of(found, "statement")),
    ]
    statistics = [of(found, "statistics"), of(found, "errorStats")]
    return _paragraphs(
        fields(head) + "\n" + _columns(found, width),
        _named_list(
            "Sources that have a DROP constraint on this source", found.get("sourceConstraints") or []
        ),
        _queries(f"Queries that read from this {kind}", items_of(found, "readQueries")),
        _queries(f"Queries that write from this {kind}", items_of(found, "writeQueries")),
        f"{title('Local runtime statistics')}\n{_joined(*statistics)}" if any(statistics) else "",
        "\n\n".join(_group(one, width) for one in items_of(found, "queryOffsetSummaries")),
    )


def _columns(found: Entity, width: int | None) -> str:
    kind, window = of(found, "type"), found.get("windowType")
    rows = []
    for one in items_of(found, "fields"):
        role = ""
        if one.get("type") == "KEY":
            role = " (primary key)" if kind == "TABLE" else " (key)"
            role += f" (Window type: {window})" if window else ""
        elif one.get("type") == "HEADER":
            key = one.get("headerKey")
            role = f" (header('{key}'))" if key else " (headers)"
        rows.append([of(one, "name"), type_of(one.get("schema")) + role])
    return table(["Field", "Type"], rows, width)


def _queries(heading: str, found: Sequence[Entity]) -> str:
    if not found:
        return ""
    lines = [f"{of(one, 'id')} ({state_of(one)}) : {of(one, 'queryString')}" for one in found]
    return _joined(
        title(heading), *lines, "\nFor query topology and execution plan please run: EXPLAIN <QueryId>"
    )


def _group(found: Entity, width: int | None) -> str:
    parts = [f"{title('Consumer Groups summary:')}\n{fields([('Consumer Group', of(found, 'groupId'))])}"]
    for topic in items_of(found, "topicSummaries"):
        offsets = items_of(topic, "offsets")
        rows = [[*(of(one, name) for name in _OFFSETS.values()), _lag(one)] for one in offsets]
        head = [
            ("Kafka topic", of(topic, "kafkaTopic")),
            ("Max lag", max((_lag(one) for one in offsets), default=0)),
        ]
        parts.append(fields(head) + table([*_OFFSETS, "Lag"], rows, width))
    return "\n\n".join(parts)


_OFFSETS = {
    "Partition": "partition",
    "Start Offset": "logStartOffset",
    "End Offset": "logEndOffset",
    "Offset": "consumerOffset",
}


def _lag(offset: Entity) -> int:
    end, at = offset.get("logEndOffset"), offset.get("consumerOffset")
    return end - at if isinstance(end, int) and isinstance(at, int) else 0


def query(entity: Entity, width: int | None) -> str:
    """EXPLAIN."""
    found = entity.get("queryDescription")
    return _query(found if isinstance(found, dict) else {}, width)


def queries(entity: Entity, width: int | None) -> str:
    """SHOW QUERIES EXTENDED."""
    return "\n\n".join(_query(one, width) for one in items_of(entity, "queryDescriptions"))


def _query(found: Entity, width: int | None) -> str:
    hosts = found.get("ksqlHostQueryStatus") or {}
    head = [
        ("ID", of(found, "id")),
        ("Query Type", of(found, "queryType")),
        ("SQL", of(found, "statementText")),
        ("Host Query Status", ", ".join(f"{host}: {state}" for host, state in hosts.items())),
    ]
    if group := of(found, "consumerGroupId"):
        head.append(("Consumer group", group))
    overridden = found.get("overriddenProperties") or {}
    errors = items_of(found, "queryErrors")
    error_rows = [[of(one, "timestamp"), of(one, "type"), of(one, "errorMessage")] for one in errors]
    return _paragraphs(
        fields(pair for pair in head if pair[1]) + (_columns(found, width) if found.get("fields") else ""),
        _named_list("Sources that this query reads from:", found.get("sources") or []),
        _named_list("Sinks that this query writes to:", found.get("sinks") or []),
        _text("Execution plan", of(found, "executionPlan")),
        _text("Processing topology", of(found, "topology")),
        f"{title('Overridden Properties')}{table(['Property', 'Value'], overridden.items(), width)}"
        if overridden
        else "",
        f"{title('Error messages')}{table(['Timestamp', 'Type', 'Message'], error_rows, width)}"
        if errors
        else "",
    )


def function(entity: Entity, width: int | None) -> str:
    """DESCRIBE FUNCTION."""
    head = [
        (name, of(entity, field))
        for name, field in {
            "Name": "name",
            "Author": "author",
            "Version": "version",
            "Overview": "description",
            "Type": "type",
            "Jar": "path",
        }.items()
        if of(entity, field)
    ]
    variations = [_joined(*_variation(of(entity, "name"), one)) for one in items_of(entity, "functions")]
    return _paragraphs(f"{fields(head, 11)}\nVariations  :", *variations)


def _variation(name: str, found: Entity) -> Iterator[str]:
    arguments = items_of(found, "arguments")
    yield _indented(("Variation", f"{name}({', '.join(map(_argument, arguments))})"))
    yield _indented(("Returns", of(found, "returnType")))
    if text := of(found, "description"):
        yield _indented(("Description", text))
    for one in arguments:
        if text := of(one, "description"):
            yield _indented((of(one, "name"), text))


def _argument(found: Entity) -> str:
    dots = "[]" if found.get("isVariadic") else ""
    return f"{of(found, 'name')} {of(found, 'type')}{dots}".strip()


def _indented(pair: tuple[str, str]) -> str:
    return f"\t{fields([pair], 11)}"


def connector(entity: Entity, width: int | None) -> str:
    """DESCRIBE CONNECTOR."""
    status: Mapping[str, Any] = entity.get("status") or {}
    state: Mapping[str, Any] = status.get("connector") or {}
    head = [
        ("Name", of(status, "name")),
        ("Class", of(entity, "connectorClass")),
        ("Type", of(status, "type")),
        ("State", of(state, "state")),
        ("WorkerId", of(state, "worker_id")),
    ]
    tasks = [
        [of(one, "id"), of(one, "state"), _last_line(of(one, "trace"))] for one in items_of(status, "tasks")
    ]
    sources = [[of(one, "name"), of(one, "topic"), of(one, "type")] for one in items_of(entity, "sources")]
    topics = [[name] for name in entity.get("topics") or []]
    return _paragraphs(
        fields(head),
        table(["Task ID", "State", "Error Trace"], tasks, width) if tasks else "",
        table(["KSQL Source Name", "Kafka Topic", "Type"], sources, width) if sources else "",
        table(["Related Topics"], topics, width) if topics else "",
    )


def _last_line(text: str) -> str:
    return text.strip().splitlines()[-1] if text.strip() else ""


def _named_list(heading: str, names: Sequence[object]) -> str:
    return _joined(title(heading), *map(str, names)) if names else ""


def _text(heading: str, text: str) -> str:
    return f"{title(heading)}\n{text.rstrip()}" if text else ""


def _joined(*lines: str) -> str:
    return "\n".join(filter(None, lines))


def _paragraphs(*texts: str) -> str:
    return "\n\n".join(text.strip("\n") for text in texts if text)
