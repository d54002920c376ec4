"""Clusters of three brokers to be measured. Each broker is a process that can be killed and started again.

Apache Kafka's processes are brokers and controllers (KRaft), with the Java options of its scripts and a smaller heap.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bench.systems import PYCACHE, free_port, kafka_java

BROKERS = (1, 2, 3)
# Options of both systems.
_COMMON = {
    "min.insync.replicas": "2",
    "default.replication.factor": "3",
    "offsets.topic.replication.factor": "3",
    "auto.create.topics.enable": "false",
}


class Cluster:
    """A context manager that runs three brokers. `session_timeout_s` is the time until a dead broker is noticed."""

    name = ""

    def __init__(self, session_timeout_s: float | None = None) -> None:
        self._session_timeout_s = session_timeout_s
        self._directory = Path(tempfile.mkdtemp(prefix="felice-bench-"))
        self._stack = ExitStack()
        self._processes: dict[int, subprocess.Popen[str]] = {}
        self.ports = {broker_id: free_port() for broker_id in BROKERS}

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers."""
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def pid(self, broker_id: int) -> int:
        """The process id of a broker."""
        return self._processes[broker_id].pid

    @property
    def pids(self) -> list[int]:
        """The process ids of all brokers."""
        return sorted({self.pid(broker_id) for broker_id in BROKERS})

    def __enter__(self) -> Self:
        try:
            self._begin()
            for broker_id in BROKERS:
                self.start(broker_id)
            self._wait_for(3)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def _begin(self) -> None:
        """Prepares what the brokers need, such as ports, directories or ZooKeeper."""

    def start(self, broker_id: int) -> None:
        """Starts one broker."""
        log = self._stack.enter_context((self._directory / f"{broker_id}.log").open("a"))
        self._processes[broker_id] = subprocess.Popen(
            self._command(broker_id),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            text=True,
            env=_environment(),
        )

    def _command(self, broker_id: int) -> list[str]:
        raise NotImplementedError

    def kill(self, broker_id: int) -> None:
        """Kills one broker (SIGKILL)."""
        os.kill(self.pid(broker_id), signal.SIGKILL)

    def restart(self, broker_id: int) -> None:
        """Stops a broker cleanly and starts it again."""
        process = self._processes[broker_id]
        process.terminate()
        process.wait(60)
        self.start(broker_id)

    def _wait_for(self, brokers: int) -> None:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline:
            try:
                if len(admin.list_topics(timeout=2).brokers) == brokers:
                    return
            except KafkaException:
                pass
            time.sleep(0.1)
        raise RuntimeError(f"{self.name} did not start: {self._directory}")

    def properties(self, broker_id: int, properties: Mapping[str, str]) -> Path:
        """Writes a broker's configuration file."""
        path = self._directory / f"{broker_id}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in {**_COMMON, **properties}.items()))
        return path

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()
        self._stack.close()
        shutil.rmtree(self._directory, ignore_errors=True)


class FeliceProcesses(Cluster):
    """`felice start --processes 3`: the parent process keeps the metadata store, and restarts brokers that die."""

    name = "felice"
    _mode = "--processes"

    def _begin(self) -> None:
        first = min(self.ports.values())
        self.ports = {broker_id: first + broker_id - 1 for broker_id in BROKERS}
        command = [*_felice(), "start", self._mode, "3", "--port", str(first)]
        command += ["--data-dir", str(self._directory / "data")]
        command += [word for key, value in _COMMON.items() for word in ("-o", f"{key}={value}")]
        self._parent = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=_environment())
        assert self._parent.stdout is not None
        self._parent.stdout.readline()

    def start(self, broker_id: int) -> None:
        """Does nothing, because the parent process starts the brokers."""

    def pid(self, broker_id: int) -> int:
        found = subprocess.run(
            ["ps", "--ppid", str(self._parent.pid), "-o", "pid=,args="], capture_output=True, text=True
        ).stdout.splitlines()
        for line in found:
            # The command line of each child has its port.
            if re.search(rf"\b{self.ports[broker_id]}\b", line):
                return int(line.split()[0])
        return self._parent.pid

    def restart(self, broker_id: int) -> None:
        pid = self.pid(broker_id)
        os.kill(pid, signal.SIGTERM)
        while self.pid(broker_id) in (pid, self._parent.pid):
            time.sleep(0.05)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._parent.terminate()
        self._parent.wait(60)
        super().__exit__(kind, error, trace)


class FeliceBrokers(FeliceProcesses):
    """`felice start --brokers 3`: all brokers in one process."""

    name = "felice in one process"
    _mode = "--brokers"

    def pid(self, broker_id: int) -> int:
        return self._parent.pid


class FeliceZooKeeper(Cluster):
    """Three `felice broker` around three real ZooKeeper servers."""

    name = "felice with ZooKeeper"

    def _begin(self) -> None:
        from felice.ensemble import Ensemble

        # ZooKeeper grants sessions of 2 to 20 ticks, and ends them up to a tick late.
        ensemble = Ensemble(self._directory / "zookeeper", 3, 0, tick_ms=1_000, with_logs=False)
        self._connect = self._stack.enter_context(ensemble).connect

    def _command(self, broker_id: int) -> list[str]:
        timeout_ms = int(1000 * (self._session_timeout_s or 18))
        path = self.properties(
            broker_id,
            {
                "node.id": str(broker_id),
                "listeners": f"PLAINTEXT://127.0.0.1:{self.ports[broker_id]}",
                "log.dirs": str(self._directory / f"data-{broker_id}"),
                "zookeeper.connect": f"{self._connect}/bench",
                "zookeeper.session.timeout.ms": str(timeout_ms),
            },
        )
        return [*_felice(), "broker", str(path)]


class Kafka(Cluster):
    """Three Apache Kafka 4.3.1 processes, each a broker and a controller."""

    name = "kafka"

    def _begin(self) -> None:
        self._controllers = {broker_id: free_port() for broker_id in BROKERS}
        for broker_id in BROKERS:
            from peers.apache_kafka import CLUSTER_ID

            command = kafka_java("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c")
            subprocess.run([*command, str(self._config(broker_id))], check=True, capture_output=True)

    def _config(self, broker_id: int) -> Path:
        voters = ",".join(f"{number}@127.0.0.1:{port}" for number, port in self._controllers.items())
        client, controller = self.ports[broker_id], self._controllers[broker_id]
        timeout = (
            {}
            if self._session_timeout_s is None
            else {
                "broker.session.timeout.ms": str(int(1000 * self._session_timeout_s)),
                "broker.heartbeat.interval.ms": str(int(250 * self._session_timeout_s)),
            }
        )
        return self.properties(
            broker_id,
            {
                "process.roles": "broker,controller",
                "node.id": str(broker_id),
                "controller.quorum.voters": voters,
                "listeners": f"PLAINTEXT://127.0.0.1:{client},CONTROLLER://127.0.0.1:{controller}",
                "advertised.listeners": f"PLAINTEXT://127.0.0.1:{client}",
                "controller.listener.names": "CONTROLLER",
                "log.dirs": str(self._directory / f"data-{broker_id}"),
                **timeout,
            },
        )

    def _command(self, broker_id: int) -> list[str]:
        return kafka_java("kafka.Kafka", str(self._config(broker_id)))


CLUSTERS: dict[str, Callable[..., Any]] = {
    "felice": FeliceProcesses,
    "felice-zookeeper": FeliceZooKeeper,
    "felice-brokers": FeliceBrokers,
    "kafka": Kafka,
}


def _felice() -> list[str]:
    return [sys.executable, "-m", "felice.cli.main"]


def _environment() -> dict[str, str]:
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(PYCACHE)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return environment
