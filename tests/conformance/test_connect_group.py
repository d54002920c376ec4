"""Workers of a group: they share work, take over what a lost one had, and understand the topics of Kafka's workers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest

import waiting
from connect_rest import TIMEOUT_S, RestClient
from connect_worker import distributed_options, running_group
from felice.testing import Broker, felice_broker
from felice.web.users import PasswordHash, write_users
from peers.kafka_connect import running_kafka_connect

# Workers, groups and Spark take their time on a busy machine.
wait_until = partial(waiting.wait_until, timeout_s=TIMEOUT_S)
PROGRAM = Path(__file__).parent / "programs" / "distributed_worker.py"
LIMIT_S = 240


@pytest.fixture
def broker() -> Iterator[Broker]:
    with felice_broker() as started:
        started.create_topic("lines", partitions=1)
        yield started


class WorkerProcess(RestClient):
    """A worker in a process of its own, which can be killed."""

    def __init__(self, options: dict[str, str], log: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": str(PROGRAM.parents[2])}
        self._log = log.open("wb")
        self._process = subprocess.Popen(
            [sys.executable, str(PROGRAM), json.dumps(options)],
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=environment,
        )
        assert self._process.stdout is not None
        url = self._process.stdout.readline().decode().strip()
        assert url, log.read_text()[-4000:]
        super().__init__(url)

    @property
    def worker_id(self) -> str:
        return self.url.removeprefix("http://")

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._log.close()


@contextmanager
def killed_at_end(worker: WorkerProcess) -> Iterator[WorkerProcess]:
    try:
        yield worker
    finally:
        worker.kill()


def file_source(file: Path, **more: str) -> dict[str, str]:
    return {"connector.class": "FileStreamSource", "file": str(file), "topic": "lines", **more}


def lines_of(broker: Broker) -> list[str]:
    return [(record.value or b"").decode() for record in broker.records("lines")]


def append(file: Path, *lines: str) -> None:
    with file.open("a") as out:
        out.writelines(f"{line}\n" for line in lines)


def owners(worker: RestClient, names: list[str]) -> tuple[Counter[str], Counter[str]]:
    """How many connectors and tasks each worker has; empty if not all run."""
    connectors, tasks = Counter[str](), Counter[str]()
    for name in names:
        status, found = worker.ask("GET", f"/connectors/{name}/status")
        if status != 200 or not found["tasks"]:
            return Counter(), Counter()
        for part in (found["connector"], *found["tasks"]):
            if part["state"] != "RUNNING":
                return Counter(), Counter()
        connectors[found["connector"]["worker_id"]] += 1
        tasks.update(task["worker_id"] for task in found["tasks"])
    return connectors, tasks


@pytest.mark.timeout(LIMIT_S)
def test_work_is_shared_and_a_lost_worker_is_replaced(broker: Broker, tmp_path: Path) -> None:
    names = ["a", "b", "c", "d"]
    options = distributed_options(broker.bootstrap)
    with ExitStack() as stack:
        first, second = (
            stack.enter_context(killed_at_end(WorkerProcess(options, tmp_path / f"{number}.log")))
            for number in range(2)
        )
        for name in names:
            append(tmp_path / name, f"{name}1")
            # The second worker does not lead: it forwards. While the group changes it answers 409, as Kafka's does.
            body = {"name": name, "config": file_source(tmp_path / name)}
            answers: list[int] = []

            def is_created(body: object = body, answers: list[int] = answers) -> bool:
                answers.append(second.ask("POST", "/connectors", body)[0])
                return answers[-1] != 409

            wait_until(is_created)
            assert answers[-1] == 201
        both = {first.worker_id: 2, second.worker_id: 2}
        wait_until(lambda: owners(first, names) == (both, both), describe=lambda: str(owners(first, names)))
        wait_until(lambda: sorted(lines_of(broker)) == [f"{name}1" for name in names])
        second.kill()
        alone = {first.worker_id: 4}
        wait_until(lambda: owners(first, names) == (alone, alone), describe=lambda: str(owners(first, names)))
        for name in names:
            append(tmp_path / name, f"{name}2")
        wait_until(
            lambda: set(lines_of(broker)) == {f"{name}{number}" for name in names for number in (1, 2)}
        )
        third = stack.enter_context(killed_at_end(WorkerProcess(options, tmp_path / "third.log")))
        both = {first.worker_id: 2, third.worker_id: 2}
        wait_until(lambda: owners(third, names) == (both, both), describe=lambda: str(owners(third, names)))


@pytest.mark.timeout(LIMIT_S)
def test_a_lost_worker_may_come_back(broker: Broker, tmp_path: Path) -> None:
    names = ["a", "b"]
    options = distributed_options(broker.bootstrap, scheduled_rebalance_max_delay_ms="600000")
    with ExitStack() as stack:
        first, second = (
            stack.enter_context(killed_at_end(WorkerProcess(options, tmp_path / f"{number}.log")))
            for number in range(2)
        )
        for name in names:
            append(tmp_path / name, f"{name}1")
            first.ask("POST", "/connectors", {"name": name, "config": file_source(tmp_path / name)})
        one_each = {first.worker_id: 1, second.worker_id: 1}
        wait_until(
            lambda: owners(first, names) == (one_each, one_each), describe=lambda: str(owners(first, names))
        )
        second.kill()
        third = stack.enter_context(killed_at_end(WorkerProcess(options, tmp_path / "third.log")))
        one_each = {first.worker_id: 1, third.worker_id: 1}
        wait_until(
            lambda: owners(third, names) == (one_each, one_each), describe=lambda: str(owners(third, names))
        )


@pytest.mark.timeout(LIMIT_S)
def test_exactly_once_over_the_loss_of_workers(broker: Broker, tmp_path: Path) -> None:
    options = distributed_options(
        broker.bootstrap, exactly_once_source_support="enabled", offset_flush_interval_ms="50"
    )
    file, count = tmp_path / "in", 0
    with ExitStack() as stack:

        def started(name: str) -> WorkerProcess:
            return stack.enter_context(killed_at_end(WorkerProcess(options, tmp_path / f"{name}.log")))

        workers = [started("first"), started("second")]
        config = file_source(file, **{"batch.size": "7", "exactly.once.support": "required"})
        append(file, "0")
        assert workers[0].ask("POST", "/connectors", {"name": "once", "config": config})[0] == 201
        for number in range(3):
            _, tasks = wait_until(
                lambda: owned(owners(workers[0], ["once"])), describe=lambda: "no task runs"
            )
            victim = next(worker for worker in workers if worker.worker_id in tasks)
            append(file, *(str(line) for line in range(count + 1, count + 101)))
            count += 100
            victim.kill()
            workers.remove(victim)
            workers.append(started(f"next{number}"))
            wait_until(lambda gone=victim.worker_id: gone not in owners(workers[0], ["once"])[1])
        wait_until(lambda: len(lines_of(broker)) > count, describe=lambda: str(len(lines_of(broker))))
    assert lines_of(broker) == [str(line) for line in range(count + 1)]


@pytest.mark.timeout(LIMIT_S)
def test_users_log_in_and_workers_do_not(broker: Broker, tmp_path: Path) -> None:
    users = tmp_path / "users"
    write_users(users, {"alice": PasswordHash.of("secret")})
    options = {"rest_users_file": str(users), "exactly_once_source_support": "enabled"}
    with running_group(broker.bootstrap, 2, **options) as workers:
        for method, path in (
            ("GET", "/"),
            ("GET", "/connectors"),
            ("GET", "/connectors/lines/tasks"),
            ("PUT", "/connectors/lines/config"),
            ("POST", "/connectors/lines/tasks/0/restart"),
            ("GET", "/unknown"),
            ("POST", "/connectors/lines/tasks?forward=true/x"),
        ):
            status, _ = workers[0].ask(method, path, {} if method != "GET" else None)
            assert status == (400 if "?" in path else 401), path
        # Without a user and without a signature the requests of workers are refused, too.
        for method, path in (("POST", "/connectors/lines/tasks"), ("PUT", "/connectors/lines/fence")):
            assert workers[0].ask(method, path, [])[0] == 400
        for worker in workers:
            worker.log_in("alice", "wrong")
            assert worker.ask("GET", "/connectors")[0] == 401
            worker.log_in("alice", "secret")
        # One of them is not the leader: it forwards requests, and asks the leader to fence and to publish tasks.
        for number, worker in enumerate(workers):
            name, file = f"lines{number}", tmp_path / f"in{number}"
            append(file, str(number))
            config = file_source(file, **{"exactly.once.support": "required"})
            wait_until(
                lambda worker=worker, name=name, config=config: (
                    worker.ask("PUT", f"/connectors/{name}/config", config)[0] in (200, 201)
                )
            )
        wait_until(
            lambda: sorted(lines_of(broker)) == ["0", "1"],
            describe=lambda: str(workers[0].ask("GET", "/connectors?expand=status")),
        )


@pytest.mark.timeout(LIMIT_S)
def test_the_topics_of_kafka_are_understood_and_the_other_way_round(broker: Broker, tmp_path: Path) -> None:
    file, topics = tmp_path / "in", distributed_options(broker.bootstrap)
    group = {name: value for name, value in topics.items() if "storage" in name or name in ("group.id",)}
    append(file, "one", "two")
    with running_kafka_connect(broker.bootstrap, tmp_path, group) as theirs:
        status, _ = theirs.ask("POST", "/connectors", {"name": "in", "config": file_source(file)})
        assert status == 201
        wait_until(lambda: lines_of(broker) == ["one", "two"])
        theirs_info = wait_until(lambda: with_tasks(theirs.ask("GET", "/connectors/in")))
    append(file, "three")
    with running_group(broker.bootstrap, 1) as (ours,):
        ours.wait_states("in", "RUNNING", "RUNNING")
        assert ours.ask("GET", "/connectors/in") == theirs_info
        wait_until(
            lambda: lines_of(broker) == ["one", "two", "three"], describe=lambda: str(lines_of(broker))
        )
        status, found = ours.ask("POST", "/connectors", {"name": "ours", "config": file_source(file)})
        assert status == 201, found
        ours.wait_states("ours", "RUNNING", "RUNNING")
        assert ours.ask("PUT", "/connectors/ours/stop")[0] == 204
        ours.wait_states("ours", "STOPPED")
    append(file, "four")
    with running_kafka_connect(broker.bootstrap, tmp_path, group) as theirs:
        wait_until(lambda: lines_of(broker)[-1] == "four", describe=lambda: str(lines_of(broker)))
        assert theirs.ask("GET", "/connectors/ours/status")[1]["connector"]["state"] == "STOPPED"
        assert theirs.ask("GET", "/connectors/in") == theirs_info


def owned(found: tuple[Counter[str], Counter[str]]) -> tuple[Counter[str], Counter[str]] | None:
    return found if found[1] else None


def with_tasks(answer: tuple[int, object]) -> tuple[int, object] | None:
    _, found = answer
    return answer if isinstance(found, dict) and found.get("tasks") else None
