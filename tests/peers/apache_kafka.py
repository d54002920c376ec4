"""A real Apache Kafka (KRaft, one node) on a free port: the reference that proves the conformance tests.

`with ApacheKafka({"message.max.bytes": "1000"}) as kafka: kafka.bootstrap`. The data directory goes when the
block ends unless one was given.
"""

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from felice.env.ports import free_ports
from peers.java import java_command, require_java

START_TIMEOUT_S = 300
STOP_TIMEOUT_S = 100
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"


def free_port() -> int:
    return free_ports(1)[0]


class ApacheKafka:
    def __init__(self, overrides: Mapping[str, str] | None = None, data_dir: Path | None = None) -> None:
        require_java()
        self.port = free_port()
        self.bootstrap = f"127.0.0.1:{self.port}"
        self._owned = None if data_dir else Path(tempfile.mkdtemp(prefix="apache-kafka-"))
        self.directory = data_dir or self._owned or Path()
        self.log_dir = self.directory / "data"
        self.properties = {**self._defaults(), **(overrides or {})}
        self._process: subprocess.Popen[bytes] | None = None

    def _defaults(self) -> dict[str, str]:
        controller = free_port()
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.log_dir),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "4",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
        }

    def start(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        config = self.directory / "server.properties"
        config.write_text("".join(f"{key}={value}\n" for key, value in self.properties.items()))
        if not (self.log_dir / "meta.properties").exists():
            self._format(config)
        with (self.directory / "kafka.log").open("ab") as log:
            self._process = subprocess.Popen(
                self.java("kafka.Kafka", str(config)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._wait_until_it_listens()

    def java(self, *arguments: str) -> list[str]:
        """How the broker's Java is started: for tests, to be up soon."""
        return java_command(*arguments, options=["-Xmx512m"])

    def _format(self, config: Path) -> None:
        command = java_command("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(config))
        subprocess.run(command, check=True, capture_output=True, timeout=START_TIMEOUT_S)

    def _wait_until_it_listens(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                time.sleep(0.05)
        self.stop()
        raise RuntimeError(f"Apache Kafka did not start: {self.output()[-2000:]}")

    def output(self) -> str:
        return (self.directory / "kafka.log").read_text(errors="replace")

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def stop(self) -> None:
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def close(self) -> None:
        self.stop()
        if self._owned:
            shutil.rmtree(self._owned, ignore_errors=True)

    def __enter__(self) -> "ApacheKafka":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
