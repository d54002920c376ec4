"""What the SQL server does with records of its topic that it cannot use. No broker runs here."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from felice.client.compacted.records import CompactedRecord
from felice.pipelines.sql.functions import built_in
from felice.pipelines.sql.server import service as service_module
from felice.pipelines.sql.server.commands import Command
from felice.pipelines.sql.server.engine import Read
from felice.pipelines.sql.server.facts import Facts
from felice.pipelines.sql.server.persistent import ERROR, PAUSED, RUNNING, QueryState
from felice.pipelines.sql.server.service import Deployment, SqlService
from felice.pipelines.streams.app import App

STREAM = "CREATE STREAM s (k STRING KEY, v INT) WITH (kafka_topic='s', value_format='JSON')"
COPY = "CREATE STREAM copy AS SELECT * FROM s"
AVRO = "CREATE STREAM a WITH (kafka_topic='a', value_format='AVRO')"


class Wanted:
    """Queries that only remember what they were asked."""

    apps: Mapping[str, App]
    known: frozenset[str] | None

    def want(self, apps: Mapping[str, App], known: frozenset[str] | None) -> None:
        self.apps, self.known = apps, known

    def states(self) -> Mapping[str, QueryState]:
        return {}

    def running(self) -> frozenset[str]:
        return frozenset()


def after(directory: Path, *statements: str) -> tuple[SqlService, Wanted]:
    """A leader that has read these statements, as they stand."""
    wanted = Wanted()

    async def read() -> SqlService:
        client = {"bootstrap.servers": "127.0.0.1:1"}
        service = SqlService(Deployment("a", client, built_in(), {}, None, directory), wanted)
        service._is_read = service.leads = True
        for number, statement in enumerate(statements):
            command = Command("x", number, statement, {}, Facts({"s": 1, "COPY": 1, "t": 1}, {}))
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


def test_no_query_runs_while_no_server_leads(tmp_path: Path) -> None:
    """Statements of clients are forwarded to the leader, so the others are asked only if there is none."""
    service, _ = after(tmp_path, STREAM, COPY)
    assert service.state("CSAS_COPY_1") == QueryState(RUNNING)
    service.follow()
    assert service.state("CSAS_COPY_1") == QueryState(ERROR, "no server runs the queries at present")
    service.engine.queries["CSAS_COPY_1"] = replace(service.engine.queries["CSAS_COPY_1"], is_paused=True)
    assert service.state("CSAS_COPY_1") == QueryState(PAUSED)


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
