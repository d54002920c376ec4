"""Statements of clients: reads the catalogue for some, and writes a command for those that change it.

Keeps true: a statement that changes something is answered when its command is in the topic and this server has applied
            it. One such statement runs at a time, so each is analysed with the catalogue that all before it made.
            Topics are made before the command is written, and deleted after it: a command never names a topic that
            was not there.
How:        analysis and compilation ask a registry, and take seconds for thousands of columns, so they run in a thread,
            also those of the commands that another server wrote.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, MutableMapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import field
from http import HTTPStatus
from itertools import islice
from pathlib import Path
from typing import Any

from felice.client.compacted.records import CompactedRecord
from felice.client.compacted.topic import CompactedTopic
from felice.client.error import KafkaError, KafkaException, failure
from felice.dataclass import dataclass
from felice.pipelines.errors import OutsideError
from felice.pipelines.java.regex import LinearPattern, linear
from felice.pipelines.sql.catalogue import SourceInfo, near
from felice.pipelines.sql.functions.table import FunctionTable
from felice.pipelines.sql.inserts import Inserted, inserted
from felice.pipelines.sql.programs import NeededTopic, check_topic
from felice.pipelines.sql.rows import features_of
from felice.pipelines.sql.rows.plain import json_text
from felice.pipelines.sql.rows.registry import MemoryRegistry, Registry
from felice.pipelines.sql.server import entities
from felice.pipelines.sql.server.answers import Answers
from felice.pipelines.sql.server.cluster import Cluster, KnownTopics
from felice.pipelines.sql.server.commands import Command, DamagedCommand
from felice.pipelines.sql.server.connect_worker import PREFIX, WorkerAddress
from felice.pipelines.sql.server.connectors import Connectors, masked, refusal, unparsed
from felice.pipelines.sql.server.engine import (
    DELETED_SUBJECTS,
    DELETED_TOPICS,
    TERMINATE_CLUSTER,
    Engine,
    Read,
)
from felice.pipelines.sql.server.facts import Facts, Noted
from felice.pipelines.sql.server.failures import NOT_READY, Entity, StatementFailed, reason_of
from felice.pipelines.sql.server.files import file_name
from felice.pipelines.sql.server.persistent import ERROR, PAUSED, RUNNING, PersistentQueries, QueryState
from felice.pipelines.sql.server.tables import Follower
from felice.pipelines.sql.settings import KNOWN, check_value, is_known, with_short_names
from felice.pipelines.sql.statements import Change, set_property
from felice.pipelines.sql.syntax.errors import SqlError
from felice.pipelines.sql.syntax.scripts import Written, statements_of
from felice.pipelines.sql.syntax.tree import (
    AlterSource,
    ControlQuery,
    CreateAsSelect,
    CreateConnector,
    CreateSource,
    CreateType,
    Define,
    Drop,
    InsertSelect,
    InsertValues,
    PrintTopic,
    Query,
    SetProperty,
    Statement,
)
from felice.pipelines.streams.task import TopicRecord

_log = logging.getLogger("felice.sql")

WRITE_S = 30.0
ENDING_S = 120.0
"""How long queries may take to end: after a start of this server, Spark starts first."""
APPLIED_S = 5.0
"""How long a request waits for a command; as in ksqlDB."""
_POLL_S = 0.05
_HEALTH_S = 2.0
"""After so long brokers count as not answering."""
LONGEST_TEXT = 1 << 20
"""Characters of one request's statements."""
MOST_STATEMENTS = 1_000
"""Of one request."""
MOST_OF_PROGRAM = 100_000
MOST_STATUSES = 10_000
MOST_INSERTS = 16
"""Rows that are encoded at a time: for some formats a registry is asked."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """What a server is made of."""

    service_id: str
    client: Mapping[str, object]
    functions: FunctionTable
    settings: Mapping[str, str]
    registry: Registry | None
    data: Path
    """The directory of the rows of tables."""
    replication_factor: int = 1
    program: str | None = None
    """The statements of a server that takes no others, and keeps none in a topic."""
    worker: WorkerAddress = field(default_factory=WorkerAddress)
    """The Connect worker that has the connectors."""
    options: Mapping[str, str] = field(default_factory=dict)
    """The options of the server's start that SHOW PROPERTIES shows and SET cannot change."""

    @property
    def topic(self) -> str:
        """The name of the command topic."""
        return f"_confluent-ksql-{self.service_id}_command_topic"


@dataclass(slots=True)
class _Pending:
    """A command that is being written: its record, and what the command does."""

    record: tuple[bytes, bytes]
    read: Read
    refused: SqlError | None = None
    """Why it could not be applied."""


class SqlService:
    """The server without its HTTP."""

    def __init__(self, deployment: Deployment, queries: PersistentQueries) -> None:
        self.deployment = deployment
        empty: Registry = MemoryRegistry()
        # As for `felice run`, a query of a file keeps its id when statements are put before it.
        self.engine = Engine(
            deployment.functions,
            deployment.settings,
            deployment.registry or empty,
            numbers_queries=deployment.program is None,
        )
        self.cluster = Cluster(deployment.client)
        self.followers: dict[str, Follower] = {}
        self._empty, self._queries = empty, queries
        self._topic: CompactedTopic[bytes, bytes] = CompactedTopic(
            deployment.client,
            deployment.topic,
            fence=deployment.topic,
            on_record=self._on_record,
            keep=False,
            replication_factor=deployment.replication_factor,
        )
        self._pending: _Pending | None = None
        """The command that this server writes, until it is read."""
        self._may_be_behind = False
        """Whether a command that this server wrote may come back later: its write has failed, or it was not read in
        time.
        """
        self.statuses: dict[str, str] = {}
        """What the last commands did, by their ids; the last one of an id counts."""
        self._identity: str | None = None
        """The topic id of the command topic."""
        self.on_terminated: Callable[[], None] = lambda: None
        """Called when this server reads that the cluster was terminated."""
        self._one_at_a_time = asyncio.Lock()
        self._inserting = asyncio.Semaphore(MOST_INSERTS)
        self._stopping: set[asyncio.Task[None]] = set()
        self._is_read = False
        self._has_skipped = False
        """Whether the topic has a command that this server cannot apply. The checkpoints of queries that it does not
        know are kept then: a server with the missing function, or a newer one, may go on with them.
        """
        self.leads = False
        """Whether this server writes commands, and runs the queries."""
        self.has_own_address: Callable[[], bool] = lambda: True
        """Whether no other server has the address of this one."""
        self._answers = Answers(
            self.engine, self.cluster, deployment.registry, self.states, deployment.options
        )
        self._connectors = Connectors(deployment.worker, self._answers.sources_of)

    # Start and stop

    async def start(self, timeout_s: float) -> None:
        """Read the commands, or run the program. Raises `KafkaException`, and `StatementFailed` for the program."""
        await self.cluster.start()
        if self.deployment.program is None:
            await self._topic.start(timeout_s)
            self._identity = await self.cluster.identity(self.deployment.topic)
        else:
            await self._run_program(self.deployment.program)
            self.leads = True
            await self._run_queries()
        self._is_read = True
        self._follow_tables()

    async def _run_program(self, text: str) -> None:
        settings: dict[str, str] = {}
        for written in parsed(text, {}, most=MOST_OF_PROGRAM):
            given = written.statement
            try:
                match given:
                    case SetProperty(is_of_system=False):
                        self.set(given, settings)
                    case Define():
                        continue
                    case _ if _is_command(given) and not isinstance(given, ControlQuery | SetProperty):
                        await self._accept(given, written.text, settings)
                    case _:
                        raise SqlError(
                            "a file of queries has CREATE, INSERT INTO … SELECT, SET and DEFINE statements",
                            given.position,
                        )
            except SqlError as error:
                raise StatementFailed.of(error, written.text + ";") from None

    async def lead(self) -> None:
        """Take the command topic over from other servers, and run the queries. Raises `KafkaException`."""
        async with self._one_at_a_time:
            if not self.is_terminated:
                await self._read_all()
            self.leads = True
            await self._run_queries()
            if self.is_terminated:
                await self._clean_up()

    def follow(self) -> None:
        """End the queries: another server runs them."""
        self.leads = False
        self._queries.want({}, None)

    async def stop(self) -> None:
        """End everything that runs here; persistent queries are ended by their runner."""
        for follower in self.followers.values():
            await follower.stop()
        if self._stopping:
            await asyncio.wait(self._stopping)
        if self.deployment.program is None:
            await self._topic.stop()
        await self._connectors.close()
        await self.cluster.stop()

    async def _on_record(self, record: CompactedRecord) -> None:
        try:
            command = await asyncio.to_thread(Command.decode, record.key, record.value)
        except DamagedCommand as error:
            self._has_skipped = True
            _log.error("skipped a damaged command", extra={"offset": record.offset, "reason": str(error)})
            return
        pending = self._pending
        if pending is not None and pending.record == (record.key, record.value):
            self._pending = None
        else:
            pending = None
        try:
            if pending is not None and command.number == self.engine.commands:
                read = pending.read  # It is not analysed again: the catalogue is as it was.
            else:
                read = await asyncio.to_thread(self.engine.read, command)
            self.engine.apply(command, read)
            self._note_status(command.id, read.change.message)
        except Exception as error:  # Whatever a record has: the commands behind it are read.
            self.engine.skip(command)
            reason = str(error) or type(error).__name__
            self._has_skipped = True
            if pending is not None:
                pending.refused = error if isinstance(error, SqlError) else SqlError(reason)
            _log.error(
                "skipped a command that cannot be applied",
                extra={"offset": record.offset, "command": command.id, "reason": reason},
            )
            return
        if self._is_read:
            await self._run_queries()
            self._follow_tables()
            if self.is_terminated:
                self.on_terminated()

    def _note_status(self, id: str, message: str) -> None:
        self.statuses.pop(id, None)
        self.statuses[id] = message
        if len(self.statuses) > MOST_STATUSES:
            del self.statuses[next(iter(self.statuses))]

    async def _run_queries(self) -> None:
        if not self.leads:
            return
        before = self.engine.faults
        apps = await asyncio.to_thread(self.engine.running_apps)
        for id, reason in self.engine.faults.items():
            if before.get(id) != reason:
                _log.error("a persistent query cannot be built", extra={"query": id, "reason": reason})
        if not self.leads:
            return  # Another server took over meanwhile.
        keeps_all = self._has_skipped and not self.is_terminated
        known = None if keeps_all else frozenset(self.engine.queries)
        self._queries.want(apps, known)

    def _follow_tables(self) -> None:
        wanted = {
            source.topic: source
            for source in self.engine.catalogue.sources.values()
            if self.engine.is_queryable(source)
        }
        for topic in self.followers.keys() - wanted.keys():
            task = asyncio.get_running_loop().create_task(self.followers.pop(topic).forget())
            self._stopping.add(task)
            task.add_done_callback(self._stopping.discard)
        for topic, source in wanted.items():
            if topic not in self.followers:
                path = self.deployment.data / "tables" / f"{file_name(topic)}.sqlite"
                try:
                    follower = Follower(source, path, self.cluster, self.engine.retention_ms(source))
                except (sqlite3.Error, OSError) as error:
                    _log.error(
                        "the rows of a table cannot be kept",
                        extra={"table": source.name, "path": str(path), "reason": str(error)},
                    )
                    continue  # It is tried again after the next statement.
                self.followers[topic] = follower
                follower.start()

    # Statements

    async def wait_applied(self, number: int | None) -> None:
        """Wait until the command with this number is applied here: a client has read it in an answer, which may be that
        of another server. Raises `StatementFailed` if it takes long.
        """
        if number is None:
            return
        try:
            async with asyncio.timeout(APPLIED_S):
                while self.engine.commands <= number:
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            raise StatementFailed(
                f"this server has applied {self.engine.commands} commands, and not the one with the number {number}",
                "",
                code=NOT_READY,
                status=HTTPStatus.SERVICE_UNAVAILABLE,
            ) from None

    async def execute(
        self, text: str, settings: Mapping[str, str], variables: Mapping[str, str]
    ) -> list[Entity]:
        """Run statements, one after the other, and return their answers. Raises `StatementFailed`."""
        self.check_lives()
        check_settings(settings)
        own, known = with_short_names(settings), dict(variables)
        done = list[Entity]()
        for written in await asyncio.to_thread(parsed, text, known):
            text = masked(written.statement, written.text) + ";"
            try:
                answer = await self._execute(written, text, own)
            except StatementFailed as error:
                raise error.after(done) from None
            except SqlError as error:
                raise StatementFailed.of(error, text, done) from None
            except (KafkaException, OutsideError, OSError) as error:
                raise StatementFailed(reason_of(error), text, done) from None
            if answer is not None:
                done.append(answer)
            await asyncio.sleep(0)  # Many statements wait for nothing.
        return done

    async def _execute(
        self, written: Written, text: str, settings: MutableMapping[str, str]
    ) -> Entity | None:
        given = written.statement
        match given:
            case SetProperty(is_of_system=False):
                self.set(given, settings)
                return None
            case SetProperty():
                check_settings({given.name: str(given.value)})
            case Define():
                return None  # `statements_of` keeps variables.
            case Query() | PrintTopic():
                raise StatementFailed(
                    "SELECT and PRINT statements must use the /query endpoint", text, code=40002
                )
            case InsertValues():
                await self._insert(given)
                return None
        if isinstance(given, CreateConnector) or _drops_connector(given):
            self._check_takes_changes()
        answer = self._connectors.of(given) or self._answers.of(given)
        if answer is not None:
            return await answer(text, settings)
        if _is_command(given):
            return await self._change(given, written.text, settings)
        raise SqlError(
            f"the server does not support {text.split(maxsplit=1)[0].upper()} statements of this kind",
            given.position,
        )

    def set(self, given: SetProperty, settings: MutableMapping[str, str]) -> None:
        """Apply SET or UNSET to the settings of a request. Raises `StatementFailed`."""
        check_settings({} if given.value is None else {given.name: given.value})
        set_property(given, settings, self.deployment.settings)

    async def _insert(self, given: InsertValues) -> None:
        engine = self.engine
        source = engine.catalogue.source(given.name, given.position)
        await self.insert(source, lambda: inserted(given, source, engine.functions, engine.catalogue.types))

    async def insert(self, source: SourceInfo, row: Callable[[], Inserted]) -> None:
        """Write a row, which is computed in a thread. Raises what `row` raises, `SqlError` and `KafkaException`."""
        async with self._inserting:
            record = await asyncio.to_thread(lambda: self.record_of(source, row()))
        await self.cluster.write(record)

    def record_of(self, source: SourceInfo, row: Any) -> TopicRecord:
        """The record of an inserted row. Raises `SqlError`."""
        key, value = self._answers.formats(source)
        try:
            return TopicRecord(source.topic, key.encode(row.key), value.encode(row.value), row.timestamp or 0)
        except ValueError as error:
            raise SqlError(str(error)) from None

    def _check_takes_changes(self) -> None:
        if self.deployment.program is not None:
            raise SqlError(
                "this server runs the queries of a file, and takes no other statements that change something"
            )

    async def _change(self, given: Statement, text: str, settings: Mapping[str, str]) -> Entity:
        self._check_takes_changes()
        async with self._leading(text):
            self.check_lives()
            return await self._change_alone(given, text, settings)

    @asynccontextmanager
    async def _leading(self, text: str) -> AsyncIterator[None]:
        """One change at a time. Raises `StatementFailed` if another server leads."""
        async with self._one_at_a_time:
            if not self.leads:
                reason = "no server leads at present; try again"
                if not self.has_own_address():
                    reason = (
                        "another server has the address of this one: give each an --advertised-url of its own"
                    )
                raise StatementFailed(
                    reason, text + ";", code=NOT_READY, status=HTTPStatus.SERVICE_UNAVAILABLE
                )
            if self._may_be_behind:
                # Otherwise two commands could have the same number.
                await self._read_all()
                self._may_be_behind = False
            yield

    async def _read_all(self) -> None:
        """Read all commands that were written, also those whose writers do not know whether they are."""
        await self._topic.take_over(WRITE_S)
        await self._topic.wait_end(WRITE_S)

    async def _accept(
        self, given: Statement, text: str, settings: Mapping[str, str]
    ) -> tuple[Change, Command | None]:
        """What a statement changes, and its command, after the topics that it needs were made. There is no command if
        nothing changes. Without a command topic the command is applied at once.
        """
        engine = self.engine
        topics = await self.cluster.topics()
        around = Noted(KnownTopics(topics, self.deployment.registry, self._empty))
        change = await asyncio.to_thread(engine.change, given, text, settings, around)
        assert change is not None, "statements with an id change something"
        is_of_catalogue = not isinstance(given, ControlQuery | SetProperty)
        if change.catalogue == engine.catalogue and not change.stopped and is_of_catalogue:
            return change, None
        made = _made(change, engine)
        for source in made:
            if (topic := topics.get(source.topic)) is not None:
                check_topic(given, topic.name, topic.partitions, topic.replicas)
        for source in made:
            if source.topic not in topics:
                await self.cluster.create(NeededTopic.of(source))
        kept = dict(settings)
        command = Command(_IDS[type(given)](given, change), engine.commands, text, kept, around.facts)
        if self.deployment.program is not None:
            engine.apply(command, Read(given, text, change))
        return change, command

    async def _change_alone(self, given: Statement, text: str, settings: Mapping[str, str]) -> Entity:
        change, command = await self._accept(given, text, settings)
        if command is None:
            return entities.warning(text + ";", change.message)
        subjects = self._subjects(change.deleted_topic)
        await self._write(command, Read(given, text, change))
        if change.deleted_topic is not None:
            # An earlier TERMINATE does not wait for the running batch, so wait here in any case.
            await self._queries_end(f"{change.message.rstrip('.')}, but ")
            await self.cluster.delete(change.deleted_topic)
            await self._forget(subjects)
        query = change.started.id if change.started is not None else None
        warnings = _warnings(change)
        return entities.status(text + ";", command.id, command.number, change.message, query, warnings)

    async def _write(self, command: Command, read: Read) -> None:
        """Keep a command, and wait until it is applied. Raises `SqlError` and `KafkaException`."""
        record = command.encode()
        pending = self._pending = _Pending(record, read)
        self._may_be_behind = True
        offset = await self._topic.write([record])
        await self._topic.wait_read(offset, WRITE_S)
        self._may_be_behind = False
        if pending.refused is not None:
            raise pending.refused

    def _subjects(self, topic: str | None) -> list[str]:
        """The subjects of a topic's schemas in the registry."""
        return [
            f"{topic}-{part}"
            for source in self.engine.catalogue.sources.values()
            if source.topic == topic
            for part, format_ in (("key", source.key_format), ("value", source.value_format))
            if features_of(format_).infers
        ]

    async def _forget(self, subjects: Sequence[str]) -> None:
        """Delete subjects. A registry that fails is only noted, as in ksqlDB: the topic is gone."""
        registry = self.deployment.registry
        for subject in dict.fromkeys(subjects):
            try:
                if registry is not None:
                    await asyncio.to_thread(registry.forget, subject)
            except (OutsideError, ValueError) as error:
                _log.warning("a subject was not deleted", extra={"subject": subject, "reason": str(error)})

    # The end of the cluster

    @property
    def is_terminated(self) -> bool:
        """Whether the cluster was terminated: then nothing runs, and no statement is taken."""
        return self.engine.deleted_topics is not None

    def check_lives(self) -> None:
        """Raise `StatementFailed` if the cluster was terminated."""
        if self.is_terminated:
            raise StatementFailed(
                "the cluster was terminated; this server takes no statements until you start it again, and then has "
                "no streams, tables or queries",
                "",
                code=NOT_READY,
                status=HTTPStatus.SERVICE_UNAVAILABLE,
            )

    async def terminate(self, patterns: Sequence[str]) -> Entity:
        """End all queries and delete their state, the command topic, and the topics of queries whose whole name matches
        a pattern. A request that failed may be sent again. Raises `StatementFailed` and `KafkaException`.
        """
        text = "TERMINATE CLUSTER"
        try:
            compiled = [_whole(one) for one in patterns]
        except ValueError as error:
            raise StatementFailed(f"Invalid pattern in deleteTopicList: {error}", f"{text};") from None
        self._check_takes_changes()
        engine = self.engine
        if not self.is_terminated:
            async with self._leading(text):
                if not self.is_terminated:  # by a request before this one
                    await self._write_end(text, compiled)
        async with self._one_at_a_time:
            await self._clean_up()
        message = "The cluster was terminated."
        return entities.status(f"{text};", TERMINATE_CLUSTER, engine.commands - 1, message, None)

    async def _write_end(self, text: str, patterns: Sequence[LinearPattern]) -> None:
        """Keep the command that ends the cluster, with the topics that match a pattern, and their subjects."""
        engine = self.engine
        made = {one.topic for one in engine.catalogue.sources.values() if one.query is not None}
        topics = sorted(topic for topic in made if any(one.first(topic) for one in patterns))
        subjects = [subject for topic in topics for subject in self._subjects(topic)]
        settings = {DELETED_TOPICS: json_text(topics), DELETED_SUBJECTS: json_text(subjects)}
        command = Command(TERMINATE_CLUSTER, engine.commands, text, settings, Facts())
        await self._write(command, engine.read(command))

    async def _clean_up(self) -> None:
        """Delete the topics of a cluster that was terminated, and the command topic last. If the command topic was
        already deleted, all other topics were deleted, too. Topics with these names then belong to a newer cluster.
        """
        await self._queries_end()
        try:
            if await self.cluster.identity(self.deployment.topic) != self._identity:
                return
        except KafkaException as error:
            if error.error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
            return
        for topic in self.engine.deleted_topics or ():
            await self.cluster.delete(topic)
        await self._forget(self.engine.deleted_subjects)
        await self._topic.stop()
        await self.cluster.delete(self.deployment.topic)

    async def _queries_end(self, done: str = "") -> None:
        """Wait until all queries that are not in the catalogue have ended, so that no query writes to a topic that is
        being deleted. Raises `KafkaException` if they do not end in time. Its text begins with `done`.
        """
        try:
            async with asyncio.timeout(ENDING_S):
                while not self._queries.others_have_ended():
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            reason = f"{done}the queries have not ended within {ENDING_S:.0f} s, so no topic was deleted"
            raise failure(KafkaError._TIMED_OUT, reason, retriable=True) from None

    # Queries

    def states(self, ids: Iterable[str]) -> dict[str, QueryState]:
        """Whether persistent queries run, by id."""
        known = self._queries.states()
        return {id: self._state(id, known.get(id)) for id in ids}

    def _state(self, id: str, known: QueryState | None) -> QueryState:
        held = self.engine.queries.get(id)
        if held is not None and held.is_paused:
            return QueryState(PAUSED)
        if (reason := self.engine.faults.get(id)) is not None and self.leads:
            return QueryState(ERROR, reason)
        if known is None and not self.leads:
            return QueryState(ERROR, "no server runs the queries at present")
        return known or QueryState(RUNNING)

    async def health(self) -> dict[str, bool]:
        """Whether brokers answer, each command could be applied, and the rows of each table are kept up to date."""
        try:
            async with asyncio.timeout(_HEALTH_S):
                await self.cluster.topics([self.deployment.topic])
            answers = True
        except (KafkaException, TimeoutError):
            answers = False
        tables = all(one.fault is None for one in self.followers.values())
        return {"kafka": answers, "commandRunner": not self._has_skipped, "metastore": tables}

    async def close(self) -> None:
        """As `stop`, also after a failed start."""
        with suppress(KafkaException):
            await self.stop()


def check_settings(settings: Mapping[str, str]) -> None:
    """Raise `StatementFailed` for a setting that nothing here looks at, and for a value that one cannot have."""
    for name, value in settings.items():
        if name.startswith(PREFIX):
            raise StatementFailed(f"only the start of the server decides {name}", "")
        if not is_known(name):
            raise StatementFailed(
                f"the server has no setting {name}{near(name, KNOWN)}; SHOW PROPERTIES and the documents name them",
                "",
            )
        try:
            check_value(name, value)
        except ValueError as error:
            raise StatementFailed(str(error), "") from None


def parsed(
    text: str, variables: MutableMapping[str, str], *, most: int = MOST_STATEMENTS
) -> Sequence[Written]:
    """The statements of a text, all of which are right. Raises `StatementFailed`."""
    if len(text) > LONGEST_TEXT:
        raise StatementFailed(
            f"the statements have {len(text):,} characters; a request may have {LONGEST_TEXT:,}",
            unparsed(text)[:1_000],
        )
    try:
        found = list(islice(statements_of(text, variables), most + 1))
    except SqlError as error:
        raise StatementFailed.of(refusal(error, text), unparsed(text)) from None
    if not found:
        raise StatementFailed("the request has no statement", text)
    if len(found) > most:
        raise StatementFailed(f"the limit is {most:,} statements, and there are more", unparsed(text)[:1_000])
    return found


def _made(change: Change, engine: Engine) -> list[SourceInfo]:
    """The sources that a change adds."""
    before = engine.catalogue.sources
    return [one for name, one in change.catalogue.sources.items() if before.get(name) != one]


def _whole(pattern: str) -> LinearPattern:
    """A pattern that matches whole names. Raises ValueError."""
    linear(pattern)  # What is wrong is told with the pattern as it is.
    return linear(rf"\A(?:{pattern})\z")


def _drops_connector(given: Statement) -> bool:
    return isinstance(given, Drop) and given.kind == "CONNECTOR"


def _is_command(given: Statement) -> bool:
    """Whether a statement is kept in the command topic."""
    return type(given) in _IDS and not _drops_connector(given)


def _warnings(change: Change) -> list[str]:
    query = change.started
    if query is None or query.sink.topic not in {side.source.topic for side in query.plan.sides}:
        return []
    return [f"the query reads the topic {query.sink.topic}, which it writes: its results may never end"]


def _of_source(action: str) -> Callable[[Any, Change], str]:
    return lambda given, change: f"{given.kind.lower()}/`{given.name}`/{action}"


def _of_insert(given: InsertSelect, change: Change) -> str:
    assert change.started is not None
    return f"stream/`{change.started.id}`/create"


def _of_control(given: ControlQuery, change: Change) -> str:
    action = {"TERMINATE": "execute", "PAUSE": "pause", "RESUME": "resume"}[given.action]
    return f"terminate/`{given.query or 'ALL'}`/{action}"


_IDS: dict[type, Callable[[Any, Change], str]] = {
    CreateSource: _of_source("create"),
    CreateAsSelect: _of_source("create"),
    AlterSource: _of_source("alter"),
    Drop: _of_source("drop"),
    CreateType: lambda given, change: f"type/`{given.name}`/create",
    InsertSelect: _of_insert,
    ControlQuery: _of_control,
    SetProperty: lambda given, change: f"cluster/{uuid.uuid4()}/alter",
}
"""The ids of commands, by the statements that make them."""
