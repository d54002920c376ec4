"""Answers to statements that change nothing: SHOW, DESCRIBE, EXPLAIN, ASSERT."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from felice.pipelines.sql.analysis.queries import plan_of
from felice.pipelines.sql.assertions import schema_fault, topic_fault
from felice.pipelines.sql.catalogue import STREAM, TABLE, Catalogue, ColumnInfo, SourceInfo, near
from felice.pipelines.sql.compile.topology import Compilation, key_format_of, value_format_of
from felice.pipelines.sql.explain import explained
from felice.pipelines.sql.rows.registry import Registry
from felice.pipelines.sql.server import entities
from felice.pipelines.sql.server.cluster import Cluster
from felice.pipelines.sql.server.engine import Engine, HeldQuery
from felice.pipelines.sql.server.failures import Entity
from felice.pipelines.sql.server.persistent import QueryState
from felice.pipelines.sql.syntax.errors import SqlError
from felice.pipelines.sql.syntax.tree import (
    AssertExists,
    CreateAsSelect,
    Describe,
    Explain,
    InsertSelect,
    Query,
    Show,
    Statement,
)
from felice.pipelines.streams.formats import Format

Answer = Callable[[str, Mapping[str, str]], Awaitable[Entity]]
_ASSERT_POLL_S = 0.2
_ASSERT_MS = 1000
LONGEST_ASSERT_S = 3600
_HIDDEN = ("_", "connect-")
"""How names of topics begin that SHOW TOPICS leaves out; SHOW ALL TOPICS has them."""


class Answers:
    """What the server tells of itself."""

    def __init__(
        self,
        engine: Engine,
        cluster: Cluster,
        registry: Registry | None,
        states: Callable[[Iterable[str]], Mapping[str, QueryState]],
        options: Mapping[str, str],
    ) -> None:
        self._engine, self._cluster, self._registry, self._states = engine, cluster, registry, states
        self._options = options

    def of(self, given: Statement) -> Answer | None:
        """The function that answers a statement; None for a statement of another kind. Raises `SqlError`."""
        match given:
            case Show():
                return self._show(given)
            case Describe():
                return self._describe(given)
            case Explain():
                return partial(self._explain, given)
            case AssertExists():
                return partial(self._assert, given)
        return None

    def formats(self, source: SourceInfo) -> tuple[Format, Format]:
        """The formats of a source's keys and values."""
        registry = self._engine.registry
        return key_format_of(source, registry), value_format_of(source, registry)

    def sources_of(self, topics: frozenset[str]) -> list[Entity]:
        """The descriptions of the streams and tables over these topics."""
        found = self._engine.catalogue.sources.values()
        return self._described([one for one in found if one.topic in topics], False)

    # SHOW

    def _show(self, given: Show) -> Answer:
        shown: dict[str, Answer] = {
            "STREAMS": partial(self._sources, STREAM, given.is_extended),
            "TABLES": partial(self._sources, TABLE, given.is_extended),
            "TOPICS": partial(self._topics, False),
            "ALL TOPICS": partial(self._topics, True),
            "QUERIES": partial(self._queries, given.is_extended),
            "FUNCTIONS": self._functions,
            "TYPES": self._types,
            "PROPERTIES": self._properties,
            "VARIABLES": self._variables,
        }
        return shown[given.what]

    async def _sources(self, kind: str, is_extended: bool, text: str, settings: Mapping[str, str]) -> Entity:
        found = [one for one in self._engine.catalogue.sources.values() if one.kind == kind]
        if not is_extended:
            return entities.sources(text, kind, found)
        shown = await asyncio.to_thread(self._described, found, True)
        return entities.of_kind("source_descriptions", text, sourceDescriptions=shown)

    async def _topics(self, with_hidden: bool, text: str, settings: Mapping[str, str]) -> Entity:
        found = await self._cluster.topics()
        shown = [one for name, one in sorted(found.items()) if with_hidden or not name.startswith(_HIDDEN)]
        return entities.topics(text, shown)

    async def _queries(self, is_extended: bool, text: str, settings: Mapping[str, str]) -> Entity:
        if not is_extended:
            listed = self._listed(self._engine.catalogue)
            return entities.of_kind("queries", text, queries=list(listed.values()))
        held = list(self._engine.queries.values())
        shown = await asyncio.to_thread(lambda: [self._query_described(one) for one in held])
        return entities.of_kind("query_descriptions", text, queryDescriptions=shown)

    async def _functions(self, text: str, settings: Mapping[str, str]) -> Entity:
        return entities.functions(text, self._engine.functions)

    async def _types(self, text: str, settings: Mapping[str, str]) -> Entity:
        types = self._engine.catalogue.types
        return entities.of_kind(
            "type_list", text, types={name: entities.schema(one) for name, one in types.items()}
        )

    async def _properties(self, text: str, settings: Mapping[str, str]) -> Entity:
        base = self._engine.settings
        shown = [
            {"name": name, "scope": "KSQL", "value": value, "editable": True}
            for name, value in sorted({**base, **settings}.items())
        ]
        shown += [
            {"name": name, "scope": "KSQL", "value": value, "editable": False}
            for name, value in sorted(self._options.items())
        ]
        overwritten = [name for name, value in settings.items() if base.get(name) != value]
        return entities.of_kind(
            "properties",
            text,
            properties=shown,
            overwrittenProperties=overwritten,
            defaultProperties=sorted(base),
        )

    async def _variables(self, text: str, settings: Mapping[str, str]) -> Entity:
        raise SqlError("variables belong to a session: the shell shows them")

    def _listed(self, catalogue: Catalogue) -> dict[str, Entity]:
        """The queries of a catalogue, by id."""
        states = self._states(catalogue.queries)
        return {id: entities.query(catalogue, id, state) for id, state in states.items()}

    # DESCRIBE

    def _describe(self, given: Describe) -> Answer:
        if given.kind == "FUNCTION":
            return partial(self._describe_function, given)
        if given.kind in ("STREAMS", "TABLES"):
            return partial(self._sources, given.kind.removesuffix("S"), True)
        return partial(self._describe_source, given)

    async def _describe_source(self, given: Describe, text: str, settings: Mapping[str, str]) -> Entity:
        source = self._engine.catalogue.source(str(given.name), given.position)
        (shown,) = await asyncio.to_thread(self._described, [source], given.is_extended)
        return entities.of_kind("sourceDescription", text, sourceDescription=shown)

    def _described(self, sources: Sequence[SourceInfo], is_extended: bool) -> list[Entity]:
        """A source may have thousands of columns: this runs in a thread, while the catalogue may change."""
        catalogue = self._engine.catalogue
        listed = self._listed(catalogue)
        return [entities.description(one, catalogue, listed, is_extended=is_extended) for one in sources]

    async def _describe_function(self, given: Describe, text: str, settings: Mapping[str, str]) -> Entity:
        name, functions = str(given.name).upper(), self._engine.functions
        found = functions.named(name)
        if not found:
            raise SqlError(
                f"there is no function {name}{near(name, functions.names())}; see SHOW FUNCTIONS",
                given.position,
            )
        return entities.function(text, found)

    # EXPLAIN

    async def _explain(self, given: Explain, text: str, settings: Mapping[str, str]) -> Entity:
        subject = given.subject
        if isinstance(subject, str):
            held = self._engine.queries.get(subject)
            if held is None:
                known = self._engine.queries
                raise SqlError(f"there is no query {subject}{near(subject, known)}", given.position)
            shown = await asyncio.to_thread(self._query_described, held)
            return entities.of_kind("queryDescription", text, queryDescription=shown)
        match subject:
            case Query():
                query = subject
            case CreateAsSelect() | InsertSelect():
                query = subject.query
            case _:
                raise SqlError("EXPLAIN takes a query's id, or a statement with a SELECT", given.position)
        found = await asyncio.to_thread(self._planned, query, dict(settings))
        return entities.of_kind("queryDescription", text, queryDescription={**found, "statementText": text})

    def _planned(self, query: Query, settings: Mapping[str, str]) -> Entity:
        engine = self._engine
        settings = {**engine.settings, **settings}
        plan = plan_of(query, engine.catalogue, engine.functions, settings, target=None)
        app = Compilation("explained", plan, engine.tools(settings)).shown("shown-rows")
        columns = [ColumnInfo(one.name, one.type, one.role) for one in plan.outputs]
        kind = "PUSH" if query.emit else "PULL"
        return _query_description("", kind, explained(plan), app.topology.describe()) | {
            "fields": entities.fields(columns),
            "sources": [side.source.name for side in plan.sides],
        }

    def _query_described(self, held: HeldQuery) -> Entity:
        engine = self._engine
        id, sink = held.query.id, held.query.sink
        state = self._states([id])[id]
        app = engine.app(held)
        plan = explained(held.query.plan, sink)
        return _query_description(id, "PERSISTENT", plan, app.topology.describe()) | {
            "statementText": held.text,
            "windowType": None if sink.window is None else sink.window.kind,
            "fields": entities.fields(sink.columns),
            "sources": [side.source.name for side in held.query.plan.sides],
            "sinks": [sink.name],
            "overriddenProperties": {
                name: value for name, value in held.settings.items() if engine.settings.get(name) != value
            },
            "queryErrors": [] if state.reason is None else [{"errorMessage": state.reason}],
            "state": state.name,
        }

    # ASSERT

    async def _assert(self, given: AssertExists, text: str, settings: Mapping[str, str]) -> Entity:
        wait_ms = _ASSERT_MS if given.timeout is None else given.timeout.ms
        if wait_ms > LONGEST_ASSERT_S * 1000:
            raise SqlError(f"ASSERT waits at most {LONGEST_ASSERT_S} seconds", given.position)
        limit = time.monotonic() + wait_ms / 1000
        fault_of = self._topic_fault if given.kind == "TOPIC" else self._schema_fault
        while (reason := await fault_of(given)) is not None:
            if time.monotonic() >= limit:
                raise SqlError(reason, given.position)
            await asyncio.sleep(_ASSERT_POLL_S)
        if given.kind == "TOPIC":
            return entities.of_kind("assert_topic", text, topicName=given.name, exists=not given.is_negated)
        return entities.of_kind(
            "assert_schema", text, subject=given.name, id=given.schema_id, exists=not given.is_negated
        )

    async def _topic_fault(self, given: AssertExists) -> str | None:
        name = str(given.name)
        topic = (await self._cluster.topics([name])).get(name)
        return topic_fault(given, None if topic is None else (topic.partitions, topic.replicas))

    async def _schema_fault(self, given: AssertExists) -> str | None:
        if self._registry is None:
            raise SqlError("ASSERT SCHEMA needs a server with a schema registry", given.position)
        return await asyncio.to_thread(schema_fault, given, self._registry)


def _query_description(id: str, kind: str, plan: str, topology: str) -> dict[str, Any]:
    return {
        "id": id,
        "statementText": "",
        "windowType": None,
        "fields": [],
        "sources": [],
        "sinks": [],
        "topology": topology,
        "executionPlan": plan,
        "overriddenProperties": {},
        "ksqlHostQueryStatus": {},
        "queryType": kind,
        "queryErrors": [],
        "tasksMetadata": [],
        "state": None,
    }
