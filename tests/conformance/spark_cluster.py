"""A cluster of Spark on this machine: a master and two workers as processes."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from conformance.spark_session import QUICK
from felice.env.java import find_java
from peers.apache_kafka import free_port

START_S = 300


@contextmanager
def cluster(
    place: Path, cores: int = 1, *, memory: str = "600m", hidden: Path | None = None
) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """The address of a master, and its two workers with so many cores, which are slots for tasks.

    The directory `hidden` is empty for the workers, as if they ran on machines of their own.
    """
    port, log = free_port(), place / "master.log"
    master = f"spark://127.0.0.1:{port}"
    arguments = [
        "--cores",
        str(cores),
        "--memory",
        memory,
        "--webui-port",
        "0",
        "--work-dir",
        str(place),
        master,
    ]
    with daemon("master.Master", log, "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"):
        wait_for(log, r"I have been elected leader", 1)
        with (
            daemon("worker.Worker", place / "one.log", *arguments, hidden=hidden) as one,
            daemon("worker.Worker", place / "two.log", *arguments, hidden=hidden) as two,
        ):
            wait_for(log, r"Registering worker", 2)
            yield master, [one, two]


@contextmanager
def daemon(
    name: str, log: Path, *arguments: str, hidden: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None and spec.origin is not None, "Spark is not installed"
    home = Path(spec.origin).parent
    java = find_java().home / "bin" / "java"
    command = [str(java), "-Xmx256m", "-cp", f"{home}/jars/*"]
    if hidden is not None:
        script = f'mount -t tmpfs none {shlex.quote(str(hidden))} && exec "$@"'
        command = ["unshare", "--mount", "--map-root-user", "sh", "-c", script, "sh", *command]
    environment = os.environ | {
        "SPARK_HOME": str(home),
        "SPARK_SCALA_VERSION": "2.13",
        "SPARK_LOCAL_IP": "127.0.0.1",
        # Executors inherit it from their worker.
        "JDK_JAVA_OPTIONS": f"{QUICK} -XX:+UseSerialGC",
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, f"org.apache.spark.deploy.{name}", *arguments],
            stdout=output,
            stderr=output,
            env=environment,
        )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(120)


def wait_for(log: Path, said: str, times: int) -> None:
    deadline = time.monotonic() + START_S
    while len(re.findall(said, log.read_text(errors="replace"))) < times:
        assert time.monotonic() < deadline, log.read_text(errors="replace")[-3000:]
        time.sleep(0.1)
