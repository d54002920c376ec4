"""A file of statements as a program: the applications of its queries, and the topics that they need."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from operator import gt, ne

from felice.dataclass import dataclass
from felice.pipelines.sql.analysis.inference import TYPES, inferred_columns
from felice.pipelines.sql.analysis.properties import START, WithClause
from felice.pipelines.sql.catalogue import Catalogue, SourceInfo
from felice.pipelines.sql.compile.functions import Tools
from felice.pipelines.sql.compile.topology import Compilation
from felice.pipelines.sql.functions.table import FunctionTable
from felice.pipelines.sql.rows import Columns, FormatDescription
from felice.pipelines.sql.rows.registry import MemoryRegistry, Registry, RemoteRegistry
from felice.pipelines.sql.statements import Analyst, Change, PersistentQuery, change_of, set_property
from felice.pipelines.sql.syntax.errors import SqlError
from felice.pipelines.sql.syntax.scripts import statements_of
from felice.pipelines.sql.syntax.tree import (
    AlterSource,
    CreateAsSelect,
    CreateConnector,
    CreateSource,
    Define,
    Drop,
    InsertValues,
    Query,
    SetProperty,
    Statement,
)
from felice.pipelines.streams.app import App

REGISTRY_URL = "ksql.schema.registry.url"
SETTINGS = {START: "latest"}
"""The settings that hold unless the file sets them."""


@dataclass(frozen=True, slots=True)
class NeededTopic:
    """A topic that does not exist yet."""

    name: str
    partitions: int
    replicas: int
    config: Mapping[str, str]

    @staticmethod
    def of(source: SourceInfo) -> NeededTopic:
        """The topic of a stream or table. That of a table is compacted."""
        config = dict(source.topic_config)
        if source.is_table:
            config = {"cleanup.policy": "compact" if source.window is None else "compact,delete"} | config
        return NeededTopic(source.topic, source.partitions, source.replicas, config)


def check_topic(given: Statement, topic: str, partitions: int, replicas: int | None = None) -> None:
    """Raise `SqlError` if WITH has another number of partitions than the topic that exists, or wants more replicas."""
    if not isinstance(given, CreateSource | CreateAsSelect):
        return
    clause = WithClause.of(given.properties)
    for what, actual, differs in (("PARTITIONS", partitions, ne), ("REPLICAS", replicas, gt)):
        wanted = clause.get(what)
        if wanted is not None and actual is not None and differs(wanted, actual):
            raise clause.error(
                what,
                f"A Kafka topic with the name '{topic}' already exists, with different partition/replica configuration "
                f"than required: it has {actual} {what.lower()}, and WITH has {wanted}. Leave {what} out to use "
                "the topic as it is",
            )


@dataclass(slots=True)
class Program:
    """The queries of a file, in their order, and the topics that must be made before they start."""

    apps: list[App] = field(default_factory=list)
    topics: dict[str, NeededTopic] = field(default_factory=dict)


class _Surroundings:
    """The topics of the cluster, and the registry that the file names."""

    def __init__(self, partitions: Mapping[str, int], settings: Mapping[str, str]) -> None:
        self._partitions, self._settings = partitions, settings
        self.planned: dict[str, int] = {}

    @property
    def registry(self) -> Registry:
        """The registry whose address is set; without one, an empty registry."""
        url = self._settings.get(REGISTRY_URL)
        if url is None:
            return MemoryRegistry()
        from felice.pipelines.registry_clients import RegistryAddress

        return RemoteRegistry(RegistryAddress.of(url))

    def partitions(self, topic: str, wanted: int | None) -> int | None:
        """The number of partitions that the topic has, or will have; None if neither is known."""
        found = self._partitions.get(topic, self.planned.get(topic, wanted))
        if found is not None and topic not in self._partitions:
            self.planned[topic] = found
        return found

    def schema(self, topic: str, is_key: bool, given: FormatDescription) -> Columns | None:
        """The columns of a registered schema."""
        self.check_registry(given)
        return inferred_columns(given, self.registry, topic, is_key=is_key)

    def check_registry(self, given: FormatDescription) -> None:
        """Raise ValueError for a format that needs a registry, if there is none."""
        if given.name in TYPES and REGISTRY_URL not in self._settings:
            raise ValueError(
                f"the format {given.name} needs a schema registry: SET '{REGISTRY_URL}' = 'http://…';"
            )


def program_of(text: str, partitions: Mapping[str, int], functions: FunctionTable) -> Program:
    """The program of a text, for a cluster that has topics with these numbers of partitions. Raises `SqlError`."""
    return _Reading(partitions, functions).read(text)


class _Reading:
    """One file, while it is read."""

    def __init__(self, partitions: Mapping[str, int], functions: FunctionTable) -> None:
        self._settings = dict(SETTINGS)
        self._around = _Surroundings(partitions, self._settings)
        self._exists, self._functions = partitions, functions
        self._catalogue = Catalogue()
        self._queries: dict[str, tuple[PersistentQuery, Tools]] = {}
        self._topics: dict[str, NeededTopic] = {}

    def read(self, text: str) -> Program:
        """The program."""
        for written in statements_of(text, {}):
            self._take(written.statement, written.text)
        apps = [Compilation(one.id, one.plan, tools).into(one.sink) for one, tools in self._queries.values()]
        return Program(apps, self._topics)

    def _take(self, given: Statement, text: str) -> None:
        match given:
            case SetProperty(is_of_system=False):
                set_property(given, self._settings, SETTINGS)
                return
            case Define():
                return
            case Query():
                raise SqlError(
                    "`felice run` does not support SELECT, whose rows nobody reads; use CREATE … AS SELECT",
                    given.position,
                )
            case InsertValues():
                raise SqlError(
                    "`felice run` does not support INSERT INTO … VALUES: each start would insert the row again",
                    given.position,
                )
        analyst = Analyst(self._functions, self._settings, self._around, numbers_queries=False)
        change = change_of(given, self._catalogue, analyst, text)
        if change is None:
            raise SqlError(f"`felice run` does not support {_keywords(given, text)}", given.position)
        self._apply(change, given)

    def _apply(self, change: Change, given: Statement) -> None:
        # Only these statements create or change a source, and each of them only the source that it names.
        if isinstance(given, CreateSource | CreateAsSelect | AlterSource):
            source = change.catalogue.sources[given.name]
            if self._catalogue.sources.get(given.name) is not source:
                self._need(source, given)
        self._catalogue = change.catalogue
        for id in change.stopped:
            self._queries.pop(id, None)
        if change.started is not None:
            tools = Tools(
                self._functions, self._catalogue.types, dict(self._settings), self._around.registry, None
            )
            self._queries[change.started.id] = change.started, tools

    def _need(self, source: SourceInfo, given: Statement) -> None:
        try:
            for one in (source.key_format, source.value_format):
                self._around.check_registry(one)
        except ValueError as error:
            raise SqlError(str(error), given.position) from None
        if source.topic in self._exists:
            check_topic(given, source.topic, self._exists[source.topic])
            return
        if source.topic in self._topics:
            return
        self._topics[source.topic] = NeededTopic.of(source)


def _keywords(given: Statement, text: str) -> str:
    """The first word of a statement, such as SHOW; with CONNECTOR if the statement is about one."""
    is_of_connector = isinstance(given, CreateConnector | Drop)
    return re.split(r"\W", text, maxsplit=1)[0].upper() + (" CONNECTOR" if is_of_connector else "")
