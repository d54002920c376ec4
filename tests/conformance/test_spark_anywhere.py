"""One program that runs unchanged with another master: on a Connect server, and on a cluster of a master and two
workers.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer

from conformance.targets import Target
from conformance.topics import create_topic
from conformance.wire import unique_name
from felice.env.java import find_java
from peers.apache_kafka import free_port
from peers.cache import PROGRAMS

pyspark = pytest.importorskip("pyspark", reason="needs Spark: pip install 'felice[spark]'")

ROWS = 200
START_S = 300
pytestmark = pytest.mark.timeout(1200)

needs_connect = pytest.mark.skipif(
    importlib.util.find_spec("grpc") is None, reason="needs Spark Connect: pip install 'pyspark[connect]'"
)


def run(master: str, broker: Target, place: Path) -> None:
    source, target = unique_name("anywhere"), unique_name("anywhere")
    for topic in (source, target):
        create_topic(broker, topic, partitions=2)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(ROWS):
        producer.produce(source, str(number), partition=number % 2)
    assert producer.flush(30) == 0
    program = [sys.executable, str(PROGRAMS / "python" / "spark_anywhere.py")]
    # As a user has it who set nothing up: Spark must find the Python that felice is installed in.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    ran = subprocess.run(
        [*program, master, broker.bootstrap, source, target, str(place / "checkpoint")],
        capture_output=True,
        text=True,
        timeout=1000,
        env=environment,
        cwd=place,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    found = json.loads(ran.stdout.splitlines()[-1])
    assert (found["rows"], found["distinct"]) == (ROWS, ROWS)


@needs_connect
def test_spark_connect(broker: Target, tmp_path: Path) -> None:
    run("sc://local[2]", broker, tmp_path)


def test_a_cluster_of_a_master_and_two_workers(broker: Target, tmp_path: Path) -> None:
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    log = tmp_path / "master.log"
    with daemon("master.Master", log, "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"):
        wait_for(log, r"I have been elected leader", 1)
        arguments = (
            "--cores",
            "1",
            "--memory",
            "600m",
            "--webui-port",
            "0",
            "--work-dir",
            str(tmp_path),
            master,
        )
        with (
            daemon("worker.Worker", tmp_path / "one.log", *arguments),
            daemon("worker.Worker", tmp_path / "two.log", *arguments),
        ):
            wait_for(log, r"Registering worker", 2)
            run(master, broker, tmp_path)
            wait_for(log, r"Launching executor", 2)


@contextmanager
def daemon(name: str, log: Path, *arguments: str) -> Iterator[None]:
    home = Path(pyspark.__file__).parent
    java = find_java().home / "bin" / "java"
    command = [str(java), "-Xmx256m", "-XX:+UseSerialGC", "-cp", f"{home}/jars/*"]
    environment = os.environ | {
        "SPARK_HOME": str(home),
        "SPARK_SCALA_VERSION": "2.13",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, f"org.apache.spark.deploy.{name}", *arguments],
            stdout=output,
            stderr=output,
            env=environment,
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


def wait_for(log: Path, said: str, times: int) -> None:
    deadline = time.monotonic() + START_S
    while len(re.findall(said, log.read_text(errors="replace"))) < times:
        assert time.monotonic() < deadline, log.read_text(errors="replace")[-3000:]
        time.sleep(0.1)
