"""The REST API of workers of both kinds, beside that of Kafka Connect's with the same requests."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import pytest

import waiting
from connect_rest import TIMEOUT_S
from connect_worker import distributed_options, running_group, running_worker
from felice.testing import Broker, felice_broker
from peers.kafka_connect import running_kafka_connect

# Workers, groups and Spark take their time on a busy machine.
wait_until = partial(waiting.wait_until, timeout_s=TIMEOUT_S)
SOURCE, SINK, BAD = "FileStreamSource", "FileStreamSink", "/connectors/bad"
LIMIT_S = 300


class Worker(Protocol):
    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]: ...


Step = tuple[str, str, object] | tuple[str, ...]
"""A request, or a wait: `("states", connector, states…)` until connector and tasks have these states, and
`("lines", file, count)` until a file has so many lines."""


@pytest.fixture
def broker() -> Iterator[Broker]:
    with felice_broker() as started:
        started.create_topic("lines", partitions=1)
        yield started


def source(directory: Path, **more: str) -> dict[str, str]:
    return {
        "connector.class": SOURCE,
        "file": str(directory / "in"),
        "topic": "lines",
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def sink(file: Path | str) -> dict[str, str]:
    return {"connector.class": SINK, "file": str(file), "topics": "lines"}


def play(worker: Worker, steps: Sequence[Step]) -> list[tuple[str, object]]:
    """The answers by their requests."""
    answers: list[tuple[str, object]] = []
    for step in steps:
        method, *rest = step
        if method == "states":
            name, *states = map(str, rest)
            wait_until(
                lambda name=name, states=states: states_of(worker, name) == states,
                describe=lambda name=name: str(worker.ask("GET", f"/connectors/{name}/status")),
            )
            continue
        if method == "lines":
            file, count = Path(str(rest[0])), int(str(rest[1]))
            wait_until(lambda file=file, count=count: lines_of(file) >= count)
            continue
        path = str(rest[0])
        body = rest[1] if len(rest) > 1 else None
        answers.append(
            (str(plain(f"{method} {path} {body or ''}")), plain(calm(worker, str(method), path, body)))
        )
    return answers


def calm(worker: Worker, method: str, path: str, body: object) -> tuple[int, Any]:
    """The answer, asked for again while a group divides its work: then a worker does nothing but say so."""

    def asked() -> tuple[int, Any] | None:
        status, found = worker.ask(method, path, body)
        return None if status in (409, 500) and "rebalance" in str(found) else (status, found)

    answer: tuple[int, Any] = wait_until(
        asked, describe=lambda: f"{method} {path}: the group divides without end"
    )
    return answer


def lines_of(file: Path) -> int:
    return len(file.read_text().splitlines()) if file.exists() else 0


def states_of(worker: Worker, name: str) -> list[str]:
    status, found = worker.ask("GET", f"/connectors/{name}/status")
    if status != 200:
        return []
    return [found["connector"]["state"], *(task["state"] for task in found["tasks"])]


def plain(found: Any) -> Any:
    """An answer without what differs between any two workers: versions, addresses, times, inodes, traces."""
    if isinstance(found, dict):
        return {
            plain(name): plain(value)
            for name, value in found.items()
            if name
            not in ("version", "commit", "kafka_cluster_id", "worker_id", "last_modified", "inode", "trace")
        }
    if isinstance(found, (list, tuple)):
        values = [plain(value) for value in found]
        return sorted(values) if all(isinstance(value, str) for value in values) else values
    if isinstance(found, str):
        return re.sub(r"\b(ours|kafka)\b", "WORKER", found)
    return found


KINDS = ("standalone", "distributed")


def both(broker: Broker, path: Path, steps: Any, kind: str = KINDS[0]) -> None:
    """Plays the steps on both workers, each with a directory of its own, and compares the answers.

    Of two distributed workers the second is asked, which does not lead.
    """
    answers = []
    for name in ("kafka", "ours"):
        directory = path / name
        directory.mkdir()
        (directory / "in").write_text("a\nb\n")
        with ExitStack() as stack:
            if name == "kafka":
                group = kafkas_group(broker) if kind == "distributed" else None
                worker: Worker = stack.enter_context(
                    running_kafka_connect(broker.bootstrap, directory, group)
                )
            elif kind == "distributed":
                worker = stack.enter_context(running_group(broker.bootstrap, 2))[1]
            else:
                worker = stack.enter_context(running_worker(broker.bootstrap, directory))
            answers.append(play(worker, steps(directory)))
    kafka, ours = answers
    for theirs, own in zip(kafka, ours, strict=True):
        assert own == theirs


def kafkas_group(broker: Broker) -> dict[str, str]:
    """The options of a group of Kafka's workers, with topics of its own."""
    options = distributed_options(broker.bootstrap, group_id="kafka")
    return {
        name: "kafka-" + value if name.endswith(".topic") else value
        for name, value in options.items()
        if "storage" in name or name in ("group.id", "offset.flush.interval.ms")
    }


@pytest.mark.timeout(LIMIT_S)
def test_what_is_unknown(broker: Broker, tmp_path: Path) -> None:
    def steps(directory: Path) -> list[Step]:
        x = "/connectors/x"
        gets = [
            "",
            "/status",
            "/config",
            "/tasks",
            "/tasks-config",
            "/tasks/0/status",
            "/offsets",
            "/topics",
            "/nope",
        ]
        return [
            ("GET", "/"),
            ("GET", "/health"),
            ("GET", "/connectors"),
            ("GET", "/nope"),
            *(("GET", x + path) for path in gets),
            ("PUT", x + "/pause"),
            ("PUT", x + "/resume"),
            ("POST", x + "/restart?includeTasks=true"),
            ("DELETE", x),
            ("DELETE", x + "/offsets"),
            ("PATCH", x + "/offsets", {"offsets": []}),
            ("PATCH", x + "/offsets", {"offsets": [{"partition": {"a": 1}, "offset": None}]}),
            ("PATCH", x + "/config", {"a": "b"}),
            ("PUT", x + "/topics/reset"),
            ("POST", x + "/config", {}),
            ("GET", "/connector-plugins/Nope/config"),
            ("GET", "/connector-plugins/org.apache.kafka.connect.transforms.Filter/config"),
            ("GET", "/admin/loggers/nope"),
        ]

    both(broker, tmp_path, steps)


@pytest.mark.timeout(LIMIT_S)
@pytest.mark.parametrize("kind", KINDS)
def test_the_life_of_a_source(broker: Broker, tmp_path: Path, kind: str) -> None:
    def steps(directory: Path) -> list[Step]:
        src, place = "/connectors/src", {"filename": str(directory / "in")}
        config = source(directory, tasks_max="2")
        # The answer has states, which other workers may not have read yet.
        only_failed: list[Step] = [
            ("POST", src + "/restart?onlyFailed=true"),
            ("POST", src + "/restart?includeTasks=true&onlyFailed=true"),
        ]
        return [
            ("POST", "/connectors", {"name": "", "config": config}),
            ("POST", "/connectors", {"config": config}),
            ("POST", "/connectors", {"name": "src", "config": {**config, "name": "other"}}),
            ("POST", "/connectors", {"name": "src", "config": {**config, "topic": ""}}),
            ("POST", "/connectors", {"name": "src", "config": config}),
            ("POST", "/connectors", {"name": "src", "config": config}),
            ("states", "src", "RUNNING", "RUNNING"),
            *(("GET", src + path) for path in ("", "/status", "/config", "/tasks", "/tasks/0/status")),
            ("GET", src + "/tasks/1/status"),
            ("GET", src + "/tasks/x/status"),
            ("GET", "/connectors?expand=status&expand=info"),
            ("GET", "/connectors?expand=nope"),
            ("PUT", src + "/pause"),
            ("states", "src", "PAUSED", "PAUSED"),
            ("PUT", src + "/resume"),
            ("states", "src", "RUNNING", "RUNNING"),
            ("POST", src + "/restart"),
            ("states", "src", "RUNNING", "RUNNING"),
            ("POST", src + "/restart?includeTasks=true"),
            ("states", "src", "RUNNING", "RUNNING"),
            *(() if kind == "distributed" else only_failed),
            ("POST", src + "/tasks/0/restart"),
            ("states", "src", "RUNNING", "RUNNING"),
            ("PATCH", src + "/offsets", {"offsets": [{"partition": place, "offset": {"position": 0}}]}),
            ("DELETE", src + "/offsets"),
            ("PUT", src + "/stop"),
            ("states", "src", "STOPPED"),
            *(("GET", src + path) for path in ("", "/status", "/tasks", "/offsets")),
            ("PATCH", src + "/offsets", {}),
            (
                "PATCH",
                src + "/offsets",
                {"offsets": [{"partition": {"nope": "x"}, "offset": {"position": 0}}]},
            ),
            ("PATCH", src + "/offsets", {"offsets": [{"partition": place, "offset": {"position": 2}}]}),
            ("GET", src + "/offsets"),
            ("PATCH", src + "/offsets", {"offsets": [{"partition": place, "offset": {"position": -2}}]}),
            ("PATCH", src + "/offsets", {"offsets": [{"partition": place, "offset": {"nope": 2}}]}),
            ("PATCH", src + "/offsets", {"offsets": [{"partition": place, "offset": {"position": "2"}}]}),
            ("PATCH", src + "/offsets", {"offsets": [{"offset": {"position": 2}}]}),
            ("DELETE", src + "/offsets"),
            ("GET", src + "/offsets"),
            ("PUT", src + "/resume"),
            ("states", "src", "RUNNING", "RUNNING"),
            ("PUT", src + "/config", {**config, "tasks.max": "1"}),
            ("states", "src", "RUNNING", "RUNNING"),
            ("PATCH", src + "/config", {"batch.size": "7", "tasks.max": None}),
            ("states", "src", "RUNNING", "RUNNING"),
            ("GET", src + "/config"),
            ("PATCH", src + "/config", {"topic": None}),
            ("PUT", "/connectors/new/config", {**config, "name": "old"}),
            ("PUT", "/connectors/new/config", config),
            ("states", "new", "RUNNING", "RUNNING"),
            ("DELETE", "/connectors/new"),
            ("DELETE", src),
            *([("GET", src + "/status")] if kind == "standalone" else []),
            ("GET", src + "/offsets"),
            ("GET", "/connectors"),
        ]

    both(broker, tmp_path, steps, kind)


@pytest.mark.timeout(LIMIT_S)
@pytest.mark.parametrize("kind", KINDS)
def test_the_life_of_a_sink(broker: Broker, tmp_path: Path, kind: str) -> None:
    for number in range(5):
        broker.produce("lines", str(number))

    def steps(directory: Path) -> list[Step]:
        snk, place = f"/connectors/{directory.name}", {"kafka_topic": "lines", "kafka_partition": 0}
        patch = ("PATCH", snk + "/offsets")
        wrong = [
            {"partition": {**place, "kafka_partition": "x"}, "offset": {"kafka_offset": 1}},
            {"partition": {"topic": "lines"}, "offset": {"kafka_offset": 1}},
            {"partition": place, "offset": {"a": 1}},
            {"partition": place, "offset": {"kafka_offset": "x"}},
        ]
        return [
            ("POST", "/connectors", {"name": directory.name, "config": sink(directory / "out")}),
            ("states", directory.name, "RUNNING", "RUNNING"),
            ("lines", str(directory / "out"), "5"),
            *(("GET", snk + path) for path in ("", "/tasks", "/topics")),
            ("PUT", snk + "/stop"),
            ("states", directory.name, "STOPPED"),
            ("GET", snk + "/offsets"),
            (*patch, {"offsets": [{"partition": place, "offset": {"kafka_offset": 1}}]}),
            ("GET", snk + "/offsets"),
            *((*patch, {"offsets": [one]}) for one in wrong),
            (*patch, {"offsets": [{"partition": place, "offset": None}]}),
            ("GET", snk + "/offsets"),
            (*patch, {"offsets": [{"partition": place, "offset": {"kafka_offset": 1}}]}),
            ("DELETE", snk + "/offsets"),
            ("GET", snk + "/offsets"),
            ("PUT", snk + "/topics/reset"),
            *([("GET", snk + "/topics")] if kind == "standalone" else []),
            ("DELETE", snk),
        ]

    both(broker, tmp_path, steps, kind)


@pytest.mark.timeout(LIMIT_S)
@pytest.mark.parametrize("kind", KINDS)
def test_other_beginnings_and_a_failure(broker: Broker, tmp_path: Path, kind: str) -> None:
    def steps(directory: Path) -> list[Step]:
        config = source(directory)
        return [
            ("POST", "/connectors", {"name": "a b", "config": config}),
            ("states", "a%20b", "RUNNING", "RUNNING"),
            ("GET", "/connectors/a%20b"),
            ("DELETE", "/connectors/a%20b"),
            ("POST", "/connectors", {"name": "number", "config": {**config, "tasks.max": 3}}),
            ("states", "number", "RUNNING", "RUNNING"),
            ("GET", "/connectors/number/config"),
            ("POST", "/connectors", {"name": "paused", "config": config, "initial_state": "PAUSED"}),
            ("states", "paused", "PAUSED"),
            ("GET", "/connectors/paused/tasks"),
            ("PUT", "/connectors/paused/resume"),
            ("states", "paused", "RUNNING", "RUNNING"),
            ("POST", "/connectors", {"name": "stopped", "config": config, "initial_state": "stopped"}),
            ("states", "stopped", "STOPPED"),
            ("GET", "/connectors/stopped/tasks"),
            ("POST", "/connectors", {"name": "bad", "config": sink("/nonexistent/folder/file")}),
            ("states", "bad", "RUNNING", "FAILED"),
            ("GET", BAD + "/status"),
            ("POST", BAD + "/restart?includeTasks=true&onlyFailed=true"),
            ("states", "bad", "RUNNING", "FAILED"),
            ("POST", BAD + "/tasks/0/restart"),
            ("states", "bad", "RUNNING", "FAILED"),
        ]

    both(broker, tmp_path, steps, kind)


@pytest.mark.timeout(LIMIT_S)
def test_levels_of_loggers(broker: Broker, tmp_path: Path) -> None:
    logger = "/admin/loggers/org.apache.kafka.connect.runtime"

    def steps(directory: Path) -> list[Step]:
        return [
            ("PUT", logger, {"level": "DEBUG"}),
            ("GET", logger),
            ("PUT", logger, {"level": "BAD"}),
            ("PUT", logger, {}),
            ("PUT", logger + "?scope=cluster", {"level": "WARN"}),
            ("GET", logger),
        ]

    both(broker, tmp_path, steps)
