"""ASSERT TOPIC, SCHEMA, STREAM, TABLE and VALUES."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from felice.pipelines.sql.analysis.declarations import source_of
from felice.pipelines.sql.analysis.properties import FORMAT_OF
from felice.pipelines.sql.assertions import schema_fault, topic_fault
from felice.pipelines.sql.catalogue import Catalogue, SourceInfo
from felice.pipelines.sql.inserts import Inserted
from felice.pipelines.sql.offline.topics import Topics
from felice.pipelines.sql.statements import Analyst
from felice.pipelines.sql.syntax.errors import SqlError
from felice.pipelines.sql.syntax.tree import AssertExists, AssertSource, AssertValues
from felice.pipelines.sql.syntax.writer import name_text
from felice.pipelines.streams.formats import Format
from felice.pipelines.streams.record import Windowed
from felice.pipelines.streams.task import TopicRecord


def check_assertion(
    given: AssertExists | AssertSource, catalogue: Catalogue, topics: Topics, analyst: Analyst
) -> None:
    """Raise `SqlError` if what a statement asserts is not so."""
    if isinstance(given, AssertSource):
        _check_source(given, catalogue, analyst)
        return
    if given.kind == "TOPIC":
        topic = topics.topic(str(given.name)) if str(given.name) in topics else None
        fault = topic_fault(given, None if topic is None else (topic.partitions, topic.replicas))
    else:
        fault = schema_fault(given, topics.registry)
    if fault is not None:
        raise SqlError(fault, given.position)


def _check_source(given: AssertSource, catalogue: Catalogue, analyst: Analyst) -> None:
    declared = given.declared
    known = catalogue.source(declared.name, declared.position)
    # What WITH does not name is not compared.
    formats = {FORMAT_OF["KEY"]: known.key_format.name, FORMAT_OF["VALUE"]: known.value_format.name}
    wanted = source_of(declared, catalogue.types, {**analyst.settings, **formats}, analyst.around)
    if not any(name.upper() == "WINDOW_TYPE" for name, _ in declared.properties):
        wanted = replace(wanted, window=known.window)
    for what, own, other in (
        ("type", known.kind, wanted.kind),
        ("schema", known.schema_text(), wanted.schema_text()),
        ("topic", known.topic, wanted.topic),
        ("key format", known.key_format.name, wanted.key_format.name),
        ("value format", known.value_format.name, wanted.value_format.name),
        ("windows", known.window, wanted.window),
    ):
        if own != other:
            raise SqlError(
                f"{name_text(known.name)}: expected the {what} {other}, and got {own}", declared.position
            )


def check_record(
    given: AssertValues,
    source: SourceInfo,
    wanted: Inserted,
    found: TopicRecord | None,
    formats: tuple[Format, Format],
) -> None:
    """Raise `SqlError` if a record is not the one of ASSERT VALUES."""
    if found is None:
        raise SqlError(f"{name_text(source.name)} has no more records", given.position)
    key, value = formats[0].decode(found.key), formats[1].decode(found.value)
    own: list[tuple[str, Any, Any]] = [
        ("key", wanted.key, key.key if isinstance(key, Windowed) else key),
        ("value", None if given.is_tombstone else wanted.value, value),
    ]
    if isinstance(key, Windowed):
        bounds = {"WINDOWSTART": key.window.start, "WINDOWEND": key.window.end}
        own += [(name, expected, bounds[name]) for name, expected in wanted.bounds.items()]
    if wanted.timestamp is not None:
        own.append(("ROWTIME", wanted.timestamp, found.timestamp))
    for what, expected, got in own:
        if expected != got:
            raise SqlError(
                f"Expected record does not match actual: {what} {got} of {name_text(source.name)}, expected {expected}",
                given.position,
            )
