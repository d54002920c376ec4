"""Workers of Connect by their commands, whose tasks Spark runs: on this machine, and on a cluster."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

import waiting
from conformance.spark_cluster import cluster
from conformance.spark_kills import python_workers, send_to_all, tree_of
from connect_rest import TIMEOUT_S, RestClient
from connect_worker import distributed_options, standalone_options
from felice.testing import Broker, felice_broker

# Workers, groups and Spark take their time on a busy machine.
wait_until = partial(waiting.wait_until, timeout_s=TIMEOUT_S)
pytest.importorskip("pyspark", reason="needs Spark: pip install 'felice[spark]'")
pytestmark = [pytest.mark.timeout(600), pytest.mark.felice_only]


@pytest.fixture
def broker() -> Iterator[Broker]:
    with felice_broker() as started:
        started.create_topic("lines", partitions=1)
        yield started


class Command(RestClient):
    """A worker that a command started."""

    def __init__(self, place: Path, words: list[str], options: dict[str, str], *files: Path) -> None:
        file = place / "worker.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in options.items()))
        self.errors = place / "worker.log"
        self._log = self.errors.open("wb")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "felice.cli.main", "connect", *words, str(file), *map(str, files)],
            stdout=subprocess.PIPE,
            stderr=self._log,
        )
        assert self.process.stdout is not None
        said = self.process.stdout.readline().decode()
        found = re.fullmatch(r"The Connect worker is ready on (\S+)\n", said)
        assert found is not None, self.errors.read_text()
        super().__init__(found[1])

    def __enter__(self) -> Command:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        assert self.process.wait(120) == 0, self.errors.read_text()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._log.close()


def cli(worker: RestClient, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "felice.cli.main", "connect", *words, "--url", worker.url],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def append(file: Path, *lines: str) -> None:
    with file.open("a") as out:
        out.writelines(f"{line}\n" for line in lines)


def lines_of(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def test_a_standalone_worker_copies_lines_from_file_to_file(broker: Broker, tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    source, sink = tmp_path / "source.properties", tmp_path / "sink.json"
    source.write_text(f"name=in\nconnector.class=file-source\nfile={before}\ntopic=lines\n")
    sink.write_text(
        json.dumps(
            {"name": "out", "config": {"connector.class": "file-sink", "file": str(after), "topics": "lines"}}
        )
    )
    # The group of a sink notices after this time that a killed member is gone.
    options = {**standalone_options(broker.bootstrap, tmp_path), "consumer.session.timeout.ms": "6000"}
    append(before, "one", "two")
    with Command(tmp_path, ["standalone"], options, source) as worker:
        cli(worker, "create", str(sink))
        wait_until(lambda: lines_of(after) == ["one", "two"], describe=lambda: worker.errors.read_text())
        worker.wait_states("in", "RUNNING", "RUNNING")
        rows = json.loads(cli(worker, "list", "--json"))
        assert [(row["name"], row["type"], row["state"], row["tasks"], row["failed"]) for row in rows] == [
            ("in", "source", "RUNNING", 1, 0),
            ("out", "sink", "RUNNING", 1, 0),
        ]
        # Both tasks lose their process, and are started again by themselves.
        victims = wait_until(lambda: found if len(found := python_workers(worker.process.pid)) >= 2 else None)
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: "is started again in" in worker.errors.read_text())
        append(before, "three")
        wait_until(lambda: lines_of(after)[-1:] == ["three"], describe=lambda: cli(worker, "status"))
        for name in ("in", "out"):
            worker.wait_states(name, "RUNNING", "RUNNING")
    append(before, "four")
    with Command(tmp_path, ["standalone"], options, source, sink):
        wait_until(lambda: lines_of(after)[-1:] == ["four"], describe=lambda: str(lines_of(after)))
    # At least once: what was read and not committed is there again.
    assert list(dict.fromkeys(lines_of(after))) == ["one", "two", "three", "four"]


def test_tasks_run_on_a_cluster_of_which_a_machine_dies(broker: Broker, tmp_path: Path) -> None:
    names = ["a", "b", "c", "d"]
    with cluster(tmp_path, cores=8) as (master, machines):
        options = distributed_options(broker.bootstrap, spark_master=master, spark_executor_memory="512m")
        with Command(tmp_path, ["distributed"], options) as worker:
            for name in names:
                append(tmp_path / f"{name}.txt", f"{name}1")
                config = {
                    "connector.class": "FileStreamSource",
                    "file": str(tmp_path / f"{name}.txt"),
                    "topic": "lines",
                }
                assert worker.ask("POST", "/connectors", {"name": name, "config": config})[0] == 201
            for name in names:
                worker.wait_states(name, "RUNNING", "RUNNING")
            # The machine whose executor was there first may have all tasks.
            victim = max(machines, key=lambda machine: len(python_workers(machine.pid)))
            send_to_all(tree_of(victim.pid), signal.SIGKILL)
            victim.wait()
            wait_until(
                lambda: "is started again in" in worker.errors.read_text(),
                describe=lambda: worker.errors.read_text(),
            )
            for name in names:
                append(tmp_path / f"{name}.txt", f"{name}2")
            wanted = {f"{name}{number}" for name in names for number in (1, 2)}
            wait_until(
                lambda: {(one.value or b"").decode() for one in broker.records("lines")} == wanted,
                describe=lambda: cli(worker, "status"),
            )
            for name in names:
                worker.wait_states(name, "RUNNING", "RUNNING")
