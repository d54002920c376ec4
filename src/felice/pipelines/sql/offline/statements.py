"""Runs the statements of a test."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from felice.dataclass import dataclass
from felice.pipelines.sql.analysis.queries import plan_of
from felice.pipelines.sql.catalogue import Catalogue
from felice.pipelines.sql.compile.functions import Tools
from felice.pipelines.sql.compile.topology import key_format_of, schema_formats_of, value_format_of
from felice.pipelines.sql.expressions.code import no_report
from felice.pipelines.sql.functions.table import FunctionTable
from felice.pipelines.sql.inserts import inserted
from felice.pipelines.sql.offline.assertions import check_assertion, check_record
from felice.pipelines.sql.offline.queries import Response, check_clauses, response, run
from felice.pipelines.sql.offline.topics import Topics
from felice.pipelines.sql.statements import Analyst, PersistentQuery, change_of, set_property
from felice.pipelines.sql.syntax.errors import SqlError
from felice.pipelines.sql.syntax.scripts import statements_of
from felice.pipelines.sql.syntax.tree import (
    AssertExists,
    AssertSource,
    AssertValues,
    CreateAsSelect,
    CreateSource,
    Define,
    InsertValues,
    Query,
    SetProperty,
    Statement,
)
from felice.pipelines.streams.task import TopicRecord


@dataclass(frozen=True, slots=True)
class Asked:
    """A SELECT of a test, and its number among the statements."""

    number: int
    query: Query


class Refused(Exception):
    """A statement that was refused, and its number."""

    def __init__(self, number: int, error: SqlError | RecursionError) -> None:
        super().__init__(
            "the statement is nested too deep" if isinstance(error, RecursionError) else str(error)
        )
        self.number = number


class Statements:
    """The catalogue, settings and queries of one test."""

    def __init__(self, functions: FunctionTable, settings: Mapping[str, str], topics: Topics) -> None:
        self.catalogue, self.topics = Catalogue(), topics
        self.settings = dict(settings)
        self.asked: list[Asked] = []
        self.written: dict[str, None] = {}
        """The topics to which queries wrote records."""
        self._functions = functions
        self._asserted: list[tuple[int, AssertValues]] = []
        self._variables: dict[str, str] = {}
        self._queries: dict[str, PersistentQuery] = {}
        self._count = 0

    def execute(self, text: str) -> None:
        """Run the statements of a text. Raises `Refused`."""
        self._count += 1
        try:
            for written in statements_of(text, self._variables):
                self._execute(written.statement, written.text)
                self._count += 1
        except (SqlError, RecursionError) as error:
            raise Refused(self._count, error) from None
        self._count -= 1

    def _execute(self, given: Statement, text: str) -> None:
        match given:
            case Query():
                self.asked.append(Asked(self._count, given))
            case SetProperty():  # ALTER SYSTEM, too: all statements are those of one run.
                set_property(given, self.settings, {})
            case InsertValues():
                self._insert(given)
            case Define():
                return  # `statements_of` keeps variables.
            case AssertExists() | AssertSource():
                check_assertion(given, self.catalogue, self.topics, self._analyst())
            case AssertValues():
                self._asserted.append((self._count, given))
            case _:
                self._change(given, text)

    def _change(self, given: Statement, text: str) -> None:
        change = change_of(given, self.catalogue, self._analyst(), text)
        if change is None:
            return
        self._register(given, change.catalogue)
        self.catalogue = change.catalogue
        for id in change.stopped:
            self._queries.pop(id, None)
        if change.started is not None:
            self._queries[change.started.id] = change.started
        if change.deleted_topic is not None:
            self.topics.delete(change.deleted_topic)

    def _analyst(self) -> Analyst:
        return Analyst(self._functions, self.settings, self.topics)

    def _register(self, given: Statement, changed: Catalogue) -> None:
        """Register the schemas of the source that a statement makes. Raises `SqlError`."""
        if not isinstance(given, CreateSource | CreateAsSelect):
            return
        source = changed.sources[given.name]
        if source is self.catalogue.sources.get(given.name):
            return
        for format_ in schema_formats_of(source, self.topics.registry):
            try:
                format_.register(if_absent=isinstance(given, CreateSource))
            except ValueError as error:
                raise SqlError(
                    f"the schema of {source.name} cannot be registered: {error}", given.position
                ) from None

    def _insert(self, given: InsertValues) -> None:
        source = self.catalogue.source(given.name, given.position)
        row = inserted(given, source, self._functions, self.catalogue.types)
        formats = key_format_of(source, self.topics.registry), value_format_of(source, self.topics.registry)
        try:
            key, value = formats[0].encode(row.key), formats[1].encode(row.value)
        except ValueError as error:
            raise SqlError(str(error), given.position) from None
        self.topics.write(TopicRecord(source.topic, key, value, row.timestamp or 0))

    def run_queries(self, inputs: Sequence[TopicRecord]) -> None:
        """Run the queries, one after the other. Raises `StreamsError` for a failure that stops one."""
        for query in self._queries.values():
            if run(query, self.tools(), self.topics, inputs):
                self.written[query.sink.topic] = None

    def check_asserted(self) -> None:
        """Compare the records of topics with ASSERT VALUES: each takes the next record. Raises `Refused`."""
        taken: dict[str, int] = {}
        for number, given in self._asserted:
            try:
                source = self.catalogue.source(given.name, given.position)
                place = taken[source.topic] = taken.get(source.topic, -1) + 1
                wanted = inserted(given, source, self._functions, self.catalogue.types)
                formats = (
                    key_format_of(source, self.topics.registry),
                    value_format_of(source, self.topics.registry),
                )
                records = [record for _, record in self.topics.topic(source.topic).records]
                check_record(given, source, wanted, records[place] if place < len(records) else None, formats)
            except SqlError as error:
                raise Refused(number, error) from None

    def answers(self) -> Iterator[tuple[Asked, Response | SqlError]]:
        """What each SELECT shows, or why it is refused."""
        for one in self.asked:
            try:
                if one.query.emit is None:
                    source = one.query.source
                    check_clauses(one.query, self.catalogue.source(source.name, source.position))
                plan = plan_of(one.query, self.catalogue, self._functions, self.settings, target=None)
                yield one, response(one.query, plan, self.tools(), self.topics)
            except SqlError as error:
                yield one, error

    def tools(self) -> Tools:
        """What plans of this test are compiled with."""
        return Tools(self._functions, self.catalogue.types, self.settings, self.topics.registry, no_report)
