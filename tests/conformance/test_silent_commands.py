"""Every command that asks a broker ends at its limit where no answer comes: one line says why, the exit code is not 0.

The table names every command that is installed. A new command needs a row: its arguments, or the reason why it asks no
broker. Each row is a test: beside a broker that answers nothing, and beside a broker that answers only what each client
asks first. Commands that find all answers run one after the other, then all others at the same time, each on a thread.
"""

from __future__ import annotations

import io
import shlex
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Set
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import click
import pytest

from felice.cli import main, rounds
from felice.client.admin import retries
from proxy import SILENT, Fault, behind
from tidy.commands import all_commands, programs

# The limits that a file of client properties sets. `message.timeout.ms` has no effect in consumers, and they say so.
_FILES = {
    "@client": "request.timeout.ms=1000\nsocket.connection.setup.timeout.ms=1000\nmessage.timeout.ms=1000\n",
    # For rows that expect an answer, however busy the machine is.
    "@patient": "request.timeout.ms=35000\nsocket.connection.setup.timeout.ms=35000\n",
    "@plan": '{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1]}]}',
    "@offsets": '{"version": 1, "partitions": [{"topic": "t", "partition": 0, "offset": 0}]}',
}
# Instead of the 54 s and 60 s that commands have.
_LIMIT_S = 3.0
# Far below those, and far above the limits here, for a machine under load.
_SOON_S = 40.0
NO_BROKER = "asks no broker"
SERVES = "is a server, which runs until it is stopped"
WORKER = "asks a worker of Connect: tests/conformance/test_connect_cli.py"
SPARK = "waits for the broker, then starts Spark: tests/unit/cli/test_run.py"

# The words of a command -> its arguments, in one or more ways; or the reason why it has no test here. `@plan` and
# `@offsets` are files.
TABLE: dict[str, list[str] | str] = {
    "felice start": SERVES,
    "felice broker": SERVES,
    "felice connect config": WORKER,
    "felice connect create": WORKER,
    "felice connect delete": WORKER,
    "felice connect distributed": SERVES,
    "felice connect list": WORKER,
    "felice connect logs": WORKER,
    "felice connect offsets": WORKER,
    "felice connect pause": WORKER,
    "felice connect plugins": WORKER,
    "felice connect restart": WORKER,
    "felice connect resume": WORKER,
    "felice connect standalone": SERVES,
    "felice connect status": WORKER,
    "felice connect stop": WORKER,
    "felice connect topics": WORKER,
    "felice connect trace": WORKER,
    "felice connect validate": WORKER,
    "felice mirror": SERVES,
    "felice topics alter": ["t --partitions 3"],
    "felice topics create": ["new"],
    "felice topics delete": ["t"],
    "felice topics describe": ["t"],
    "felice topics list": [""],
    "felice produce": ["t"],
    "felice consume": ["t --timeout-ms 500", "t --timeout-ms 500 --group g"],
    "felice groups delete": ["g"],
    "felice groups describe": ["g"],
    "felice groups list": [""],
    "felice groups reset-offsets": ["g --topic t --to-earliest"],
    "felice transactions abort": ["t 0 --start-offset 0"],
    "felice transactions describe": ["x"],
    "felice transactions describe-producers": ["t"],
    "felice transactions find-hanging": ["t"],
    "felice transactions force-terminate": ["x"],
    "felice transactions list": [""],
    "felice configs alter": ["topics t --set retention.ms=1"],
    "felice configs describe": ["topics t", "brokers 1"],
    "felice acls add": ["--allow-principal User:a --operation read --topic t"],
    "felice acls list": [""],
    "felice acls remove": ["--topic t"],
    "felice offsets delete-records": ["t --partition 0 --before 0"],
    "felice offsets get": ["t"],
    "felice log-dirs describe": [""],
    "felice log-dirs move": ["t 0 --to /tmp"],
    "felice cluster": ["", "--check"],
    "felice cluster api-versions": [""],
    "felice metrics": NO_BROKER,
    "felice quotas alter": ["--user a --set producer_byte_rate=1"],
    "felice quotas describe": [""],
    "felice reassign cancel": ["@plan"],
    "felice reassign execute": ["@plan"],
    "felice reassign generate": ["t --brokers 1"],
    "felice reassign list": [""],
    "felice reassign verify": ["@plan"],
    "felice elect-leaders": ["t"],
    "felice features describe": [""],
    "felice features downgrade": ["transaction.version=0"],
    "felice features upgrade": ["transaction.version=2"],
    "felice perf consume": ["t --messages 1 --timeout 500"],
    "felice perf latency": ["t --num-records 1"],
    "felice perf produce": ["t --num-records 1"],
    "felice advise": ["--throughput 1MB/s"],
    "felice dump-log": NO_BROKER,
    "felice export": NO_BROKER,
    "felice import": NO_BROKER,
    "felice metadata journal export": NO_BROKER,
    "felice metadata journal repair": NO_BROKER,
    "felice metadata journal show": NO_BROKER,
    "felice zookeeper export": NO_BROKER,
    "felice scram delete": NO_BROKER,
    "felice scram list": NO_BROKER,
    "felice scram set": NO_BROKER,
    "felice tokens create": [""],
    "felice tokens delete": ["YQ=="],
    "felice tokens list": [""],
    "felice tokens renew": ["YQ=="],
    "felice decode-frame": NO_BROKER,
    "felice registry": SERVES,
    "felice run": SPARK,
    "felice sql": "asks a server of SQL: tests/unit/pipelines/sql/test_sql_shell.py",
    "felice sql apply": NO_BROKER,
    "felice sql functions": NO_BROKER,
    "felice sql plan": NO_BROKER,
    "felice sql-server": SERVES,
    "felice sql test": NO_BROKER,
    "felice streams describe": NO_BROKER,
    "felice streams list": NO_BROKER,
    "felice streams prepare": "uses a broker of its own: tests/conformance/test_spark_class_archive.py",
    "felice streams reload": NO_BROKER,
    "felice streams rescale": NO_BROKER,
    "felice streams serve": NO_BROKER,
    "felice streams reset": "asks a broker about the topics of a checkpoint: tests/streams",
    "felice streams stop": NO_BROKER,
    "felice users add": NO_BROKER,
    "felice users delete": NO_BROKER,
    "felice users list": NO_BROKER,
    "felice zookeeper get": NO_BROKER,
    "felice zookeeper ls": NO_BROKER,
    "felice zookeeper start": NO_BROKER,
    "felice zookeeper status": NO_BROKER,
    "felice completion": NO_BROKER,
    "felice demo": NO_BROKER,
    "connect-distributed": SERVES,
    "connect-mirror-maker": SERVES,
    "connect-standalone": SERVES,
    "kafka-acls": [
        "--list",
        "--add --allow-principal User:a --operation Read --topic t",
        "--remove --topic t --force",
    ],
    "kafka-broker-api-versions": [""],
    "kafka-client-metrics": ["--describe", "--alter --name m --interval 1000"],
    "kafka-cluster cluster-id": [""],
    "kafka-cluster list-endpoints": [""],
    "kafka-configs": [
        "--describe --topic t",
        "--alter --topic t --add-config retention.ms=1",
        "--describe --group g",
        "--describe --entity-type users",
        "--alter --entity-type users --entity-name a --add-config producer_byte_rate=1",
    ],
    "kafka-console-consumer": ["--topic t --timeout-ms 500", "--topic t --partition 0 --timeout-ms 500"],
    "kafka-console-producer": ["--topic t"],
    "kafka-consumer-groups": [
        "--list",
        "--describe --group g",
        "--describe --group g --members",
        "--describe --all-groups",
        "--delete --group g",
        "--reset-offsets --group g --topic t --to-earliest --execute",
        "--delete-offsets --group g --topic t",
    ],
    "kafka-consumer-perf-test": ["--topic t --num-records 1 --timeout 500"],
    "kafka-delegation-tokens": [
        "--describe",
        "--create --max-life-time-period -1",
        "--expire --hmac YQ== --expiry-time-period -1",
    ],
    "kafka-delete-records": ["--offset-json-file @offsets"],
    "kafka-dump-log": NO_BROKER,
    "kafka-e2e-latency": ["--topic t --num-records 1 --producer-acks all --record-size 10"],
    "kafka-features describe": [""],
    "kafka-features disable": ["--feature transaction.version"],
    "kafka-features downgrade": ["--feature transaction.version=0"],
    "kafka-features upgrade": ["--feature transaction.version=2"],
    "kafka-get-offsets": ["--topic t"],
    "kafka-groups": ["--list"],
    "kafka-leader-election": ["--election-type preferred --all-topic-partitions"],
    "kafka-log-dirs": ["--describe --topic-list t"],
    "kafka-producer-perf-test": ["--topic t --num-records 1 --record-size 10 --throughput -1"],
    "kafka-reassign-partitions": [
        "--list",
        "--execute --reassignment-json-file @plan",
        "--verify --reassignment-json-file @plan",
        "--cancel --reassignment-json-file @plan",
    ],
    "kafka-server-start": SERVES,
    "kafka-topics": [
        "--list",
        "--describe --topic t",
        "--create --topic new",
        "--delete --topic t",
        "--alter --topic t --partitions 3",
    ],
    "kafka-transactions abort": ["--topic t --partition 0 --start-offset 0"],
    "kafka-transactions describe": ["--transactional-id x"],
    "kafka-transactions describe-producers": ["--topic t --partition 0"],
    "kafka-transactions find-hanging": ["--topic t"],
    "kafka-transactions forceTerminateTransaction": ["--transactionalId x"],
    "kafka-transactions list": [""],
}
# Rows of which a broker that answers only ApiVersions and Metadata has told all.
ANSWERED = {
    "felice cluster api-versions",
    "felice features describe",
    "felice topics list",
    "kafka-broker-api-versions",
    "kafka-cluster cluster-id",
    "kafka-cluster list-endpoints",
    "kafka-features describe",
    "kafka-topics --list",
}
# These succeed with what they have, as Kafka's tools do, unless their connection was given up for its silence before.
# Which of both comes first depends on the load of the machine.
DEPENDS = {
    "felice cluster",
    "felice consume t --timeout-ms 500",
    "felice consume t --timeout-ms 500 --group g",
    "felice perf consume t --messages 1 --timeout 500",
    "kafka-console-consumer --topic t --partition 0 --timeout-ms 500",
    "kafka-console-consumer --topic t --timeout-ms 500",
    "kafka-consumer-perf-test --topic t --num-records 1 --timeout 500",
    "kafka-get-offsets --topic t",
}
CASES = {
    f"{words} {way}".strip(): (words, way)
    for words, ways in TABLE.items()
    if not isinstance(ways, str)
    for way in ways
}


class PerThread:
    """In the place of a standard stream: each thread has a stream of its own. The others share the usual one."""

    def __init__(self, usual: Any) -> None:
        self._usual = usual
        self._own = threading.local()

    def put(self, stream: io.TextIOWrapper) -> None:
        self._own.stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(getattr(self._own, "stream", self._usual), name)


@dataclass(frozen=True)
class Ended:
    code: int
    error: str
    seconds: float


def text(content: bytes = b"") -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(content), encoding="utf-8", write_through=True)


def run_command(words: str, way: str, bootstrap: str, client: str, files: dict[str, str]) -> Ended:
    program, *names = words.split()
    connection = ["--bootstrap-server", bootstrap]
    if program == "kafka-leader-election":
        connection += ["--admin.config", client]
    elif program == "kafka-cluster":
        connection += ["--config", client]
    else:
        connection += ["--command-config", client]
    own = [files.get(word, word) for word in shlex.split(way)]
    is_before = program in ("kafka-features", "kafka-transactions")
    arguments = [*connection, *names, *own] if is_before else [*names, *connection, *own]
    streams = {"stdin": text(b"line\n"), "stdout": text(), "stderr": text()}
    for name, stream in streams.items():
        getattr(sys, name).put(stream)
    began = time.monotonic()
    code = main.run(programs()[program], arguments, usage_code=99)
    seconds = time.monotonic() - began
    said = streams["stderr"].buffer.getvalue().decode()  # type: ignore[attr-defined]
    return Ended(code, said, seconds)


Outcomes = dict[str, Future[Ended]]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("files")
    for name, content in _FILES.items():
        (folder / name).write_text(content)
    return {name: str(folder / name) for name in _FILES}


@contextmanager
def streams_per_thread() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("stdin", "stdout", "stderr"):
            patch.setattr(sys, name, PerThread(getattr(sys, name)))
        yield


@contextmanager
def shorter_limits() -> Iterator[None]:
    usual = retries.limited

    def limited(limit_s: float, *others: Any, **keys: Any) -> AbstractAsyncContextManager[None]:
        return usual(min(limit_s, _LIMIT_S), *others, **keys)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rounds, "LAST_ROUND_S", _LIMIT_S)
        patch.setattr(retries, "limited", limited)
        yield


def run_all(fault: Fault, files: dict[str, str], answered: Set[str] = frozenset()) -> Outcomes:
    outcomes = {}
    with behind(topics={"t": 1}) as (_, proxy), streams_per_thread():
        proxy.set(fault)

        def begin(pool: ThreadPoolExecutor, client: str, names: Iterable[str]) -> None:
            for name in names:
                outcomes[name] = pool.submit(run_command, *CASES[name], proxy.bootstrap, files[client], files)

        with ThreadPoolExecutor(1) as pool:
            begin(pool, "@patient", answered)
        with shorter_limits(), ThreadPoolExecutor(len(CASES)) as pool:
            begin(pool, "@client", CASES.keys() - answered)
    return outcomes


@pytest.fixture(scope="module")
def beside_silence(files: dict[str, str]) -> Outcomes:
    return run_all(Fault(SILENT), files)


@pytest.fixture(scope="module")
def beside_few_answers(files: dict[str, str]) -> Outcomes:
    return run_all(Fault(SILENT, but=("ApiVersions", "Metadata")), files, ANSWERED)


def check_failed(found: Ended) -> None:
    assert found.code == 1, found
    *before, last = found.error.splitlines()
    assert last.startswith(("error: ", "Error")), found
    expected = ("waiting: ", "configuration without effect ", "left out ", "No broker answered.")
    assert all(line.startswith(expected) for line in before), found


@pytest.mark.parametrize("name", CASES)
def test_a_command_ends_where_nothing_is_answered(beside_silence: Outcomes, name: str) -> None:
    found = beside_silence[name].result()
    assert found.seconds < _SOON_S
    check_failed(found)


@pytest.mark.parametrize("name", CASES)
def test_a_command_ends_where_only_connections_and_metadata_are_answered(
    beside_few_answers: Outcomes, name: str
) -> None:
    found = beside_few_answers[name].result()
    assert found.seconds < _SOON_S
    if name in ANSWERED or (name in DEPENDS and found.code == 0):
        assert found.code == 0, found
    else:
        check_failed(found)


def test_the_table_names_every_command() -> None:
    commands = {
        words
        for words, command in all_commands()
        if not isinstance(command, click.Group) or command.invoke_without_command
    }
    assert commands == TABLE.keys()
