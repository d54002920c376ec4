"""One program that runs unchanged with another master: on a Connect server, and on a cluster of a master and two
workers.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import Producer

from conformance.spark_cluster import START_S, cluster, wait_for
from conformance.spark_kills import send_to_all, tree_of
from conformance.targets import Target
from conformance.topics import create_topic
from conformance.wire import unique_name
from felice.client.blocking import LATEST, BlockingClient
from felice.client.blocking.coordinators import BlockingCoordinators
from peers.cache import PROGRAMS
from waiting import wait_until

pytest.importorskip("pyspark", reason="needs Spark: pip install 'felice[spark]'")

ROWS = 200
pytestmark = pytest.mark.timeout(1200)


class Copy:
    """The program that copies a topic, on a master."""

    def __init__(self, master: str, broker: Target, place: Path, *options: str) -> None:
        self._broker, self._place = broker, place
        source, self._target = unique_name("anywhere"), unique_name("anywhere")
        for topic in (source, self._target):
            create_topic(broker, topic, partitions=2)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for number in range(ROWS):
            producer.produce(source, str(number), partition=number % 2)
        assert producer.flush(60) == 0
        program = [sys.executable, str(PROGRAMS / "python" / "spark_anywhere.py")]
        self._command = [
            *program,
            master,
            broker.bootstrap,
            source,
            self._target,
            str(place / "checkpoint"),
            *options,
        ]

    def run(self, meanwhile: Callable[[Copy], None] = lambda copy: None) -> None:
        """Run it to its end, and `meanwhile` beside it. The copy then has each row once, and no transaction is open."""
        # As a user has it who set nothing up: Spark must find the Python that felice is installed in.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
        # Spark's Connect server takes a free port then, so another one may run on this machine.
        environment["SPARK_TESTING"] = "1"
        with subprocess.Popen(
            self._command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=self._place,
        ) as ran:
            with ThreadPoolExecutor(1) as beside:
                done = beside.submit(meanwhile, self)
                told, errors = ran.communicate(timeout=1000)
            assert ran.returncode == 0, errors[-4000:]
        done.result()
        found = json.loads(told.splitlines()[-1])
        assert (found["rows"], found["distinct"]) == (ROWS, ROWS)
        wait_until(lambda: not self._open_transactions(found["query"]))

    def _open_transactions(self, query_id: str) -> list[str]:
        with BlockingClient(self._broker.bootstrap) as client:
            return BlockingCoordinators(client).list_open(f"felice-spark-{query_id}")

    def written(self) -> int:
        """Number of offsets in the copy so far, markers of transactions included."""
        with BlockingClient(self._broker.bootstrap) as client:
            ends = client.list_offsets({(self._target, number): LATEST for number in range(2)})
        return sum(end.offset for end in ends.values())


def test_spark_connect(broker: Target, tmp_path: Path) -> None:
    with socket.socket() as other:
        with contextlib.suppress(OSError):  # Another test run has it.
            other.bind(("127.0.0.1", 15002))
        Copy("sc://local[2]", broker, tmp_path).run()


def test_a_cluster_whose_second_machine_dies_loses_and_repeats_nothing(
    broker: Target, tmp_path: Path
) -> None:
    with cluster(tmp_path) as (master, workers):
        log = tmp_path / "master.log"
        has_killed, attempts = False, 0

        def kill_one(copy: Copy) -> None:
            nonlocal has_killed, attempts
            attempts += 1
            wait_until(lambda: copy.written() > ROWS // 5, START_S)
            # Each attempt starts one executor on each worker.
            wait_for(log, r"Launching executor", 2 * attempts)
            if copy.written() < ROWS:
                # As if a machine stopped: the worker, its executors and their Python processes end.
                send_to_all(tree_of(workers[1].pid), signal.SIGKILL)
                has_killed = True

        # On a machine under heavy load a copy may end before this process notices that it has begun.
        for attempt in range(3):
            place = tmp_path / f"copy-{attempt}"
            place.mkdir()
            Copy(master, broker, place, str(ROWS // 20)).run(kill_one)
            if has_killed:
                break
        assert has_killed, "each copy ended before the kill"
        assert workers[1].wait(120) == -signal.SIGKILL
        wait_for(log, r"Removing worker", 1)
        assert workers[0].poll() is None
