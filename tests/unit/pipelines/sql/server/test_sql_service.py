"""What the SQL server does with records of its topic that it cannot use. No broker runs here."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from felice.client.compacted.records import CompactedRecord
from felice.client.error import KafkaError, KafkaException
from felice.pipelines.sql.analysis.queries import plan_of
from felice.pipelines.sql.functions import built_in
from felice.pipelines.sql.functions.collecting import LIST_LIMIT
from felice.pipelines.sql.processing_log import TOPIC_SETTING
from felice.pipelines.sql.programs import NeededTopic
from felice.pipelines.sql.rows.registry import MemoryRegistry, Registry
from felice.pipelines.sql.server import server as server_module
from felice.pipelines.sql.server import service as service_module
from felice.pipelines.sql.server.cluster import Topic
from felice.pipelines.sql.server.commands import Command
from felice.pipelines.sql.server.engine import Read
from felice.pipelines.sql.server.facts import Facts
from felice.pipelines.sql.server.failures import StatementFailed
from felice.pipelines.sql.server.persistent import ERROR, PAUSED, RUNNING, QueryState
from felice.pipelines.sql.server.rows import Row
from felice.pipelines.sql.server.selects import Select, Selects
from felice.pipelines.sql.server.service import Deployment, SqlService
from felice.pipelines.sql.syntax.errors import SqlError
from felice.pipelines.sql.syntax.scripts import statements_of
from felice.pipelines.sql.syntax.tree import Query
from felice.pipelines.streams.app import App

STREAM = "CREATE STREAM s (k STRING KEY, v INT) WITH (kafka_topic='s', value_format='JSON')"
COPY = "CREATE STREAM copy AS SELECT * FROM s"
LISTS = "CREATE TABLE lists AS SELECT k, COLLECT_LIST(v) AS vs FROM s GROUP BY k"
COPY_AVRO = "copy WITH (value_format='AVRO')"
AVRO = "CREATE STREAM a WITH (kafka_topic='a', value_format='AVRO')"


class Wanted:
    """Queries that only remember what they were asked."""

    apps: Mapping[str, App]
    known: frozenset[str] | None

    def want(self, apps: Mapping[str, App], known: frozenset[str] | None) -> None:
        self.apps, self.known = apps, known

    def states(self) -> Mapping[str, QueryState]:
        return {}

    has_ended = True

    def others_have_ended(self) -> bool:
        return self.has_ended


def after(directory: Path, *statements: str) -> tuple[SqlService, Wanted]:
    """A leader that has read these statements, as they stand."""
    wanted = Wanted()

    async def read() -> SqlService:
        client = {"bootstrap.servers": "127.0.0.1:1"}
        service = SqlService(Deployment("a", client, built_in(), {}, None, directory), wanted)
        service._is_read = service.leads = True
        for number, statement in enumerate(statements):
            command = Command("x", number, statement, {}, Facts({"s": 1, "COPY": 1, "LISTS": 1, "t": 1}, {}))
            await service._on_record(CompactedRecord(*command.encode(), number, 0, []))
        for follower in service.followers.values():
            await follower.stop()
        return service

    return asyncio.run(read()), wanted


def test_commands_name_the_queries_to_run(tmp_path: Path) -> None:
    _, wanted = after(tmp_path, STREAM, COPY)
    assert list(wanted.apps) == ["CSAS_COPY_1"]
    assert wanted.known == {"CSAS_COPY_1"}


@pytest.mark.parametrize("damaged", ["", "nonsense", STREAM + ";" + COPY, "SHOW STREAMS", "PAUSE x", AVRO])
def test_a_command_that_cannot_be_applied_stops_nothing_and_no_checkpoint_is_deleted(
    tmp_path: Path, damaged: str
) -> None:
    service, wanted = after(tmp_path, STREAM, damaged, COPY)
    assert list(service.engine.queries) == list(wanted.apps) == ["CSAS_COPY_2"]
    assert wanted.known is None


def test_a_damaged_file_of_rows_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "tables" / "t.sqlite"
    path.parent.mkdir()
    path.write_bytes(b"no database" * 1000)
    table = "CREATE SOURCE TABLE t (k STRING PRIMARY KEY, v INT) WITH (kafka_topic='t', value_format='JSON')"
    service, _ = after(tmp_path, table)
    assert list(service.followers) == ["t"]
    assert path.read_bytes().startswith(b"SQLite format 3")


def test_a_table_whose_rows_cannot_be_kept_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "tables").write_text("a file where a directory should be")
    table = "CREATE SOURCE TABLE t (k STRING PRIMARY KEY, v INT) WITH (kafka_topic='t', value_format='JSON')"
    service, wanted = after(tmp_path, STREAM, table, COPY)
    assert list(wanted.apps) == ["CSAS_COPY_2"]
    assert not service.followers


def state_of(service: SqlService, id: str) -> QueryState:
    return service.states([id])[id]


def test_no_query_runs_while_no_server_leads(tmp_path: Path) -> None:
    """Statements of clients are forwarded to the leader, so the others are asked only if there is none."""
    service, _ = after(tmp_path, STREAM, COPY)
    assert state_of(service, "CSAS_COPY_1") == QueryState(RUNNING)
    service.follow()
    assert state_of(service, "CSAS_COPY_1") == QueryState(ERROR, "no server runs the queries at present")
    service.engine.queries["CSAS_COPY_1"] = replace(service.engine.queries["CSAS_COPY_1"], is_paused=True)
    assert state_of(service, "CSAS_COPY_1") == QueryState(PAUSED)


def test_a_command_is_analysed_beside_other_requests(tmp_path: Path) -> None:
    """Thousands of columns take a second, in which a follower answered nothing."""

    async def run() -> None:
        client = {"bootstrap.servers": "127.0.0.1:1"}
        service = SqlService(Deployment("a", client, built_in(), {}, None, tmp_path), Wanted())
        goes_on, read = threading.Event(), service.engine.read

        def slow(command: Command) -> Read:
            assert goes_on.wait(100)
            return read(command)

        service.engine.read = slow  # type: ignore[method-assign]
        command = Command("x", 0, STREAM, {}, Facts({"s": 1}, {}))
        applying = asyncio.create_task(service._on_record(CompactedRecord(*command.encode(), 0, 0, [])))  # type: ignore[arg-type]
        (found,) = await service.execute("SHOW STREAMS;", {}, {})
        assert found["streams"] == []
        goes_on.set()
        await applying
        (found,) = await service.execute("SHOW STREAMS;", {}, {})
        assert len(found["streams"]) == 1

    asyncio.run(run())


def test_the_number_of_statuses_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_module, "MOST_STATUSES", 2)
    client = {"bootstrap.servers": "127.0.0.1:1"}
    service = SqlService(Deployment("a", client, built_in(), {}, None, tmp_path), Wanted())
    for id in ("a", "b", "a", "c"):
        service._note_status(id, id)
    assert list(service.statuses) == ["a", "c"]


COMMANDS = "_confluent-ksql-a_command_topic"


class Brokers:
    """Topics, and what was asked of them."""

    def __init__(self, **partitions: int) -> None:
        self.known = {name: Topic(name, count, 1) for name, count in partitions.items()}
        self.deleted: list[str] = []

    async def topics(self, names: Iterable[str] | None = None) -> dict[str, Topic]:
        return dict(self.known)

    async def create(self, needed: NeededTopic) -> None:
        self.known[needed.name] = Topic(needed.name, needed.partitions, needed.replicas)

    async def delete(self, topic: str) -> None:
        self.known.pop(topic, None)
        self.deleted.append(topic)
        if topic == COMMANDS:
            self.id = None

    id: str | None = "first"
    """That of the command topic."""

    async def identity(self, topic: str) -> str:
        assert topic == COMMANDS
        if self.id is None:
            raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, "gone"))
        return self.id


class Log:
    """The command topic, in memory."""

    def __init__(self, *records: tuple[bytes, bytes]) -> None:
        self.records = list(records)
        self.fails = False
        self.service: SqlService
        self.is_stopped = False
        self.is_late = False
        """Whether records are read only when someone waits for the end."""
        self.unread = 0

    async def write(self, records: Sequence[tuple[bytes, bytes]]) -> int:
        if self.fails:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "killed"))
        for record in records:
            self.records.append(record)
        if not self.is_late:
            await self.read_all()
        return len(self.records) - 1

    async def read_all(self) -> None:
        while self.unread < len(self.records):
            self.unread += 1
            await self.read(self.unread - 1)

    async def read(self, offset: int) -> None:
        await self.service._on_record(CompactedRecord(*self.records[offset], offset, 0, []))

    async def wait_read(self, offset: int, timeout_s: float) -> None:
        if self.is_late:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "not read in time"))

    async def take_over(self, timeout_s: float) -> None:
        assert not self.is_stopped

    async def wait_end(self, timeout_s: float) -> int:
        await self.read_all()
        return len(self.records)

    async def stop(self) -> None:
        self.is_stopped = True


def leader(directory: Path, brokers: Brokers, log: Log, registry: Registry | None = None) -> SqlService:
    client = {"bootstrap.servers": "127.0.0.1:1"}
    service = SqlService(Deployment("a", client, built_in(), {}, registry, directory), Wanted())
    service._is_read = service.leads = True
    service._identity = "first"
    service.cluster = brokers  # type: ignore[assignment]
    service._topic = log  # type: ignore[assignment]
    service._follow_tables = lambda: None  # type: ignore[method-assign]
    log.service = service
    return service


MADE = STREAM.replace("value_format", "partitions=3, value_format") + ";"


def test_a_kill_between_a_topic_and_its_command(tmp_path: Path) -> None:
    """The empty topic remains, and the statement can be repeated; so can one whose query makes a topic."""

    async def run() -> None:
        brokers, log = Brokers(), Log()
        service = leader(tmp_path, brokers, log)
        for text, topic in ((MADE, "s"), (f"{COPY};", "COPY")):
            log.fails = True
            with pytest.raises(StatementFailed, match="killed") as failed:
                await service.execute(text, {}, {})
            assert "KafkaError" not in failed.value.message
            assert brokers.known[topic] == Topic(topic, 3, 1)
            again = leader(tmp_path, brokers, log)  # as after a start
            for offset in range(len(log.records)):
                await log.read(offset)
            log.fails = False
            (found,) = await again.execute(text, {}, {})
            assert found["@type"] == "currentStatus"
            service = again
        assert list(service.engine.queries) == ["CSAS_COPY_1"]

    asyncio.run(run())


def test_partitions_and_replicas_that_a_topic_does_not_have(tmp_path: Path) -> None:
    async def run() -> None:
        brokers = Brokers(s=2, COPY=2)
        service = leader(tmp_path, brokers, Log())
        with pytest.raises(
            StatementFailed, match="it has 2 partitions, and WITH has 3. Leave PARTITIONS out"
        ):
            await service.execute(MADE, {}, {})
        with pytest.raises(StatementFailed, match="it has 1 replicas, and WITH has 3. Leave REPLICAS out"):
            await service.execute(STREAM.replace("value_format", "replicas=3, value_format") + ";", {}, {})
        await service.execute(f"{STREAM};", {}, {})
        with pytest.raises(StatementFailed, match="'COPY' already exists, with different partition"):
            await service.execute("CREATE STREAM copy WITH (partitions=1) AS SELECT * FROM s;", {}, {})
        await service.execute("CREATE STREAM copy WITH (partitions=2) AS SELECT * FROM s;", {}, {})

    asyncio.run(run())


def test_a_query_that_reads_what_it_writes_is_warned_of(tmp_path: Path) -> None:
    """ksqlDB takes it as well, and its results are its input for ever."""

    async def run() -> None:
        service = leader(tmp_path, Brokers(s=1), Log())
        first, second = await service.execute(f"{STREAM}; INSERT INTO s SELECT * FROM s;", {}, {})
        assert first["warnings"] == []
        assert "reads the topic s, which it writes" in second["warnings"][0]["message"]

    asyncio.run(run())


def test_a_command_that_is_read_late_is_not_taken_for_the_next_one(tmp_path: Path) -> None:
    """Both had the same number, so the statement of one was applied under the record of the other."""

    async def run() -> None:
        log = Log()
        service = leader(tmp_path, Brokers(a=1, b=1), log)
        first, second = (
            f"CREATE STREAM {name} (v INT) WITH (kafka_topic='{name}', value_format='JSON');" for name in "ab"
        )
        log.is_late = True
        with pytest.raises(StatementFailed, match="not read in time"):
            await service.execute(first, {}, {})
        log.is_late = False
        (found,) = await service.execute(second, {}, {})
        assert found["commandSequenceNumber"] == 1
        other = leader(tmp_path, Brokers(), log)
        for offset in range(len(log.records)):
            await log.read(offset)
        assert list(service.engine.catalogue.sources) == list(other.engine.catalogue.sources) == ["A", "B"]

    asyncio.run(run())


def test_only_a_command_itself_is_applied_as_what_was_written(tmp_path: Path) -> None:
    """A record of another server may have its number."""

    async def run() -> None:
        log = Log()
        service = leader(tmp_path, Brokers(s=1), log)
        foreign = Command("x", 0, STREAM.replace("STREAM s", "STREAM foreign"), {}, Facts({"s": 1}, {}))
        log.records.append(foreign.encode())
        await service.execute(f"{STREAM};", {}, {})
        assert list(service.engine.catalogue.sources) == ["FOREIGN", "S"]

    asyncio.run(run())


def test_a_request_waits_for_the_command_that_it_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another server may have answered it, and this one reads it later."""
    service, _ = after(tmp_path, STREAM)

    async def run() -> None:
        for number in (None, -1, 0):
            await service.wait_applied(number)
        waiting = asyncio.create_task(service.wait_applied(1))
        await asyncio.sleep(0)
        assert not waiting.done()
        command = Command("x", 1, COPY, {}, Facts({"s": 1, "COPY": 1}, {}))
        await service._on_record(CompactedRecord(*command.encode(), 1, 0, []))
        await waiting
        monkeypatch.setattr(service_module, "APPLIED_S", 0.01)
        with pytest.raises(StatementFailed, match="not the one with the number 2") as refused:
            await service.wait_applied(2)
        assert (refused.value.code, refused.value.status) == (50300, 503)

    asyncio.run(run())


def test_a_cluster_is_terminated(tmp_path: Path) -> None:
    async def run() -> None:
        brokers, log, registry = Brokers(s=1), Log(), MemoryRegistry()
        registry.register("AVRO-value", "AVRO", '"int"')
        registry.register("s-value", "AVRO", '"int"')
        service = leader(tmp_path, brokers, log, registry)
        avro = COPY.replace("copy", "avro WITH (value_format='AVRO')")
        await service.execute(f"{STREAM}; {COPY}; {avro}; {COPY.replace('copy', 'kept')};", {}, {})
        with pytest.raises(StatementFailed, match="Invalid pattern in deleteTopicList"):
            await service.terminate(["a("])
        found = await service.terminate(["COP.", "A.*O", "KEP", "s", "other"])
        assert found["commandId"] == "cluster/TerminateCluster/terminate"
        assert found["commandStatus"]["status"] == "SUCCESS"
        # Only topics that queries made, whose whole name matches, and the command topic.
        assert brokers.deleted == ["AVRO", "COPY", COMMANDS]
        assert (registry.latest("AVRO-value"), registry.latest("s-value") is None) == (None, False)
        wanted = service._queries
        assert isinstance(wanted, Wanted)
        assert (wanted.apps, wanted.known) == ({}, frozenset())
        assert log.is_stopped
        with pytest.raises(StatementFailed, match="the cluster was terminated") as refused:
            await service.execute("SHOW STREAMS;", {}, {})
        assert (refused.value.code, refused.value.status) == (50300, 503)

    asyncio.run(run())


def test_a_kill_while_a_cluster_is_terminated(tmp_path: Path) -> None:
    """The command is kept: the server that leads next deletes what remains, and nothing of a later cluster."""

    async def run() -> None:
        brokers, log = Brokers(s=1), Log()
        service = leader(tmp_path, brokers, log)
        await service.execute(f"{STREAM}; {COPY};", {}, {})
        await service.terminate(["COPY"])
        for id, deleted in (("first", ["COPY", COMMANDS]), (None, []), ("of another cluster", [])):
            brokers.id = id
            brokers.deleted.clear()
            log.is_stopped = False
            again, told = leader(tmp_path, brokers, log), []
            again.on_terminated = lambda told=told: told.append(True)  # type: ignore[misc]
            for offset in range(len(log.records)):
                await log.read(offset)
            await again.lead()
            assert brokers.deleted == deleted
            assert (again.is_terminated, told) == (True, [True])

    asyncio.run(run())


def test_the_topics_of_a_cluster_stay_until_its_queries_have_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their state goes first, also after a start: when the topic of the commands is gone, nothing names it."""
    monkeypatch.setattr(service_module, "ENDING_S", 0.01)

    async def run() -> None:
        brokers, log, registry = Brokers(s=1), Log(), MemoryRegistry()
        registry.register("COPY-value", "AVRO", '"int"')
        service = leader(tmp_path, brokers, log, registry)
        await service.execute(f"{STREAM}; {COPY.replace('copy', COPY_AVRO)};", {}, {})
        assert isinstance(service._queries, Wanted)
        await service.execute(f"{COPY.replace('copy', 'gone')};", {}, {})
        service._queries.has_ended = False
        with pytest.raises(StatementFailed, match="was dropped, but the queries have not ended"):
            await service.execute("DROP STREAM gone DELETE TOPIC;", {}, {})
        create = COPY.replace("copy", "ended")
        await service.execute(f"{create}; TERMINATE ALL;", {}, {})  # It does not wait for a batch.
        with pytest.raises(StatementFailed, match="was dropped, but the queries have not ended"):
            await service.execute("DROP STREAM ended DELETE TOPIC;", {}, {})
        assert not brokers.deleted
        with pytest.raises(KafkaException, match="the queries have not ended"):
            await service.terminate(["COPY"])
        assert registry.latest("COPY-value")
        again = leader(tmp_path, brokers, log, registry)
        assert isinstance(again._queries, Wanted)
        again._queries.has_ended = False
        for offset in range(len(log.records)):
            await log.read(offset)
        with pytest.raises(KafkaException, match="the queries have not ended"):
            await again.lead()
        assert brokers.deleted == []
        again._queries.has_ended = True
        await again.lead()
        assert brokers.deleted == ["COPY", COMMANDS]
        assert registry.latest("COPY-value") is None

    asyncio.run(run())


def test_a_cluster_is_terminated_once(tmp_path: Path) -> None:
    """A command that was read late ended it; another one would name no topics."""

    async def run() -> None:
        brokers, log = Brokers(s=1), Log()
        service = leader(tmp_path, brokers, log)
        await service.execute(f"{STREAM}; {COPY};", {}, {})
        log.is_late = True
        with pytest.raises(KafkaException, match="not read in time"):
            await service.terminate(["COPY"])
        log.is_late = False
        with pytest.raises(StatementFailed, match="the cluster was terminated"):
            await service.execute("CREATE TYPE t AS STRUCT<x INT>;", {}, {})
        await service.terminate(["COPY"])
        assert brokers.deleted == ["COPY", COMMANDS]

    asyncio.run(run())


def test_a_setting_of_the_system(tmp_path: Path) -> None:
    """It holds for statements from then on, on each server, and for queries whose statement did not have it."""

    async def run() -> None:
        limit = "ksql.functions.collect_list.limit"
        brokers, log = Brokers(s=1), Log()
        service = leader(tmp_path, brokers, log)
        await service.execute(f"{STREAM}; {COPY};", {}, {})
        await service.execute(f"{COPY.replace('copy', 'own')};", {limit: "3"}, {})
        before = service.engine.running_apps()
        (found,) = await service.execute(f"ALTER SYSTEM '{limit}'='7';", {}, {})
        assert found["commandId"].startswith("cluster/")
        assert found["commandStatus"]["message"] == f"System property {limit} was set to '7'."
        other = leader(tmp_path, brokers, log)
        for offset in range(len(log.records)):
            await log.read(offset)
        for one in (service, other):
            settings = {id: held.settings[limit] for id, held in one.engine.queries.items()}
            assert settings == {"CSAS_COPY_1": "7", "CSAS_OWN_2": "3"}
            assert one.engine.settings[limit] == "7"
        after = service.engine.running_apps()
        assert after["CSAS_COPY_1"] is not before["CSAS_COPY_1"]
        await service.execute("ALTER SYSTEM 'ksql.output.topic.name.prefix'='x-';", {}, {})
        assert service.engine.running_apps()["CSAS_COPY_1"] is after["CSAS_COPY_1"]
        assert after["CSAS_OWN_2"] is before["CSAS_OWN_2"]
        for name, value, reason in (
            ("ksql.connect.url", "x", "only the start of the server decides"),
            ("nothing", "x", "the server has no setting nothing"),
            (limit, "x", "must be a whole number"),
            (limit, "--5", "must be a whole number"),
            (limit, "5-", "must be a whole number"),
            (limit, "\u0663", "must be a whole number"),
            (TOPIC_SETTING, "", "must be the name of a topic"),
            (TOPIC_SETTING, "a b", "must be the name of a topic"),
            (TOPIC_SETTING, "..", "must be the name of a topic"),
            (TOPIC_SETTING, "s", "CSAS_COPY_1 reads or writes; it must be another topic"),
            (TOPIC_SETTING, "OWN", "CSAS_OWN_2 reads or writes; it must be another topic"),
            ("auto.offset.reset", "x", "must be"),
        ):
            with pytest.raises(StatementFailed, match=reason):
                await service.execute(f"ALTER SYSTEM '{name}'='{value}';", {}, {})

    asyncio.run(run())


def test_a_setting_with_which_a_query_cannot_be_built_is_refused_before_it_is_kept(tmp_path: Path) -> None:
    """It ended the reading of commands, on each server and after each start."""

    async def run() -> None:
        log = Log()
        service = leader(tmp_path, Brokers(s=1), log)
        await service.execute(f"{STREAM}; {LISTS};", {}, {})
        count = len(log.records)
        with pytest.MonkeyPatch.context() as patch, pytest.raises(StatementFailed, match="whole number"):
            patch.setattr(service_module, "check_settings", lambda settings: None)
            await service.execute(f"ALTER SYSTEM '{LIST_LIMIT}'='--5';", {}, {})
        assert len(log.records) == count
        with pytest.raises(StatementFailed, match="CTAS_OWN_2 reads or writes"):
            await service.execute(
                "CREATE TABLE own AS SELECT k, COUNT(*) FROM s GROUP BY k;", {TOPIC_SETTING: "s"}, {}
            )

    asyncio.run(run())


def test_a_kept_setting_with_which_a_query_cannot_be_built_is_skipped(tmp_path: Path) -> None:
    """An older server kept it."""
    service, wanted = after(tmp_path, STREAM, LISTS, f"ALTER SYSTEM '{LIST_LIMIT}'='--5'", COPY)
    assert list(wanted.apps) == ["CTAS_LISTS_1", "CSAS_COPY_3"]
    assert service._has_skipped


def test_a_query_that_cannot_be_built_stops_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    service, wanted = after(tmp_path, STREAM, COPY, LISTS)
    broken = replace(service.engine.queries["CTAS_LISTS_2"], settings={LIST_LIMIT: "--5"})
    service.engine.queries["CTAS_LISTS_2"] = broken
    for _ in range(2):
        asyncio.run(service._run_queries())
    assert list(wanted.apps) == ["CSAS_COPY_1"]
    assert wanted.known == {"CSAS_COPY_1", "CTAS_LISTS_2"}  # Its state is kept.
    state = state_of(service, "CTAS_LISTS_2")
    assert (state.name, "expected a whole number" in str(state.reason)) == (ERROR, True)
    assert [record.getMessage() for record in caplog.records].count("a persistent query cannot be built") == 1


def test_names_of_kafka_streams_may_have_their_prefix(tmp_path: Path) -> None:
    """The names that begin so were accepted, and nothing looked at them."""

    async def run() -> None:
        service = leader(tmp_path, Brokers(s=1), Log())
        prefixed = "ksql.streams.auto.offset.reset"
        await service.execute(f"{STREAM}; {COPY};", {prefixed: "latest"}, {})
        assert service.engine.queries["CSAS_COPY_1"].settings["auto.offset.reset"] == "latest"
        seen = list[Mapping[str, str]]()
        selects = Selects(service)

        async def made(query: object, settings: Mapping[str, str]) -> Select:
            seen.append(settings)
            raise SqlError("seen")

        selects._made = made  # type: ignore[method-assign]
        with pytest.raises(StatementFailed, match="seen"):
            await selects.begin("SELECT * FROM s EMIT CHANGES;", {prefixed: "earliest"}, {})
        assert seen[0]["auto.offset.reset"] == "earliest"
        with pytest.raises(StatementFailed, match="no setting"):
            await service.execute("SHOW STREAMS;", {f"ksql.streams.{LIST_LIMIT}": "3"}, {})

    asyncio.run(run())


def test_delete_topic_deletes_its_subjects(tmp_path: Path) -> None:
    async def run() -> None:
        brokers, registry = Brokers(s=1), MemoryRegistry()
        registry.register("s-value", "AVRO", '"int"')
        registry.register("s-key", "AVRO", '"int"')
        service = leader(tmp_path, brokers, Log(), registry)
        create = STREAM.replace("JSON", "AVRO")
        await service.execute(f"{create}; DROP STREAM s; {create};", {}, {})
        assert registry.latest("s-value")
        await service.execute("DROP STREAM s DELETE TOPIC;", {}, {})
        assert brokers.deleted == ["s"]
        # Its keys are in the format KAFKA.
        assert (registry.latest("s-value"), registry.latest("s-key") is None) == (None, False)

    asyncio.run(run())


@pytest.mark.parametrize(("fails", "led"), [(True, ["lead"]), (False, ["lead", "follow"])])
def test_a_server_that_lost_its_role_does_not_lead(
    monkeypatch: pytest.MonkeyPatch, fails: bool, led: list[str]
) -> None:
    """It took the commands over from the new leader when brokers answered again."""
    monkeypatch.setattr(server_module, "RETRY_S", 0.0)
    told = list[str]()

    class Service:
        async def lead(self) -> None:
            told.append("lead")
            if fails:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "away"))

        def follow(self) -> None:
            told.append("follow")

    async def run() -> None:
        async with asyncio.timeout(60):
            await server_module._lead(Service(), lambda: not told)  # type: ignore[arg-type]

    asyncio.run(run())
    assert told == led


def test_no_select_begins_while_the_server_stops(tmp_path: Path) -> None:
    """Its answer would have no end, and the stop would wait for it."""

    async def run() -> None:
        service = leader(tmp_path, Brokers(s=1), Log())
        await service.execute(f"{STREAM};", {}, {})
        selects = Selects(service)

        async def made(query: object, settings: Mapping[str, str]) -> Select:
            return Select(str(len(made_ids)), plan, None, nothing())

        async def nothing() -> AsyncIterator[list[Row]]:
            for _ in ():
                yield []

        made_ids = selects.running
        (written,) = statements_of("SELECT * FROM s EMIT CHANGES;", {})
        assert isinstance(written.statement, Query)
        plan = plan_of(written.statement, service.engine.catalogue, built_in(), {}, target=None)
        selects._made = made  # type: ignore[method-assign]
        found = await selects.begin("SELECT * FROM s EMIT CHANGES;", {}, {})
        assert isinstance(found, Select)
        selects.stop()
        assert found.closed.is_set()
        with pytest.raises(StatementFailed, match="the server stops"):
            await selects.begin("SELECT * FROM s EMIT CHANGES;", {}, {})
        assert not selects.running

    asyncio.run(run())
