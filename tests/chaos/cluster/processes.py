"""Brokers and ZooKeeper servers as processes: start, kill, pause, start again."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path

from chaos.cluster.network import Loopback, Namespaces
from felice.ensemble.files import Ports, find_jars, node_config
from felice.ensemble.node import node_status
from felice.env.java import find_java

Network = Loopback | Namespaces
# Long enough for a machine under heavy load.
STOP_TIMEOUT_S = START_TIMEOUT_S = 180.0
# The shortest session is two of these.
TICK_MS = 500
SERVER = "org.apache.zookeeper.server.quorum.QuorumPeerMain"


class Node(ABC):
    """One process with its address in the network; its output goes to a file."""

    def __init__(self, name: str, network: Network, directory: Path) -> None:
        self.name = name
        self.directory = directory
        self.network = network
        self.address = network.add(name)
        self.is_paused = False
        self._process: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True, exist_ok=True)

    @abstractmethod
    def command(self) -> Sequence[str]: ...

    @property
    def log(self) -> Path:
        return self.directory / "output.log"

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        assert not self.is_alive, f"{self.name} runs already"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.network.command(self.name, self.command()),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def pause(self) -> None:
        """Stop the process (SIGSTOP), as a long pause of its machine would."""
        self._signal(signal.SIGSTOP)
        self.is_paused = True

    def resume(self) -> None:
        self._signal(signal.SIGCONT)
        self.is_paused = False

    def kill(self) -> None:
        self._signal(signal.SIGKILL)
        self._wait()

    def terminate(self) -> int:
        """Ask the process to end; returns its exit code."""
        if self.is_paused:
            self.resume()
        self._signal(signal.SIGTERM)
        return self._wait()

    def _signal(self, number: signal.Signals) -> None:
        if self.is_alive:
            assert self._process is not None
            self._process.send_signal(number)

    def _wait(self) -> int:
        if self._process is None:
            return 0
        self.is_paused = False
        try:
            return self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise AssertionError(f"{self.name} did not end: {self.log.read_text()[-2000:]}") from None


class ZooKeeperNode(Node):
    """A server of a ZooKeeper ensemble, from PySpark's jars."""

    def __init__(self, number: int, network: Network, directory: Path) -> None:
        super().__init__(f"zk{number}", network, directory)
        self.number = number
        self.ports = network.ports(3)

    @classmethod
    def ensemble(cls, count: int, network: Network, directory: Path) -> list[ZooKeeperNode]:
        nodes = [cls(number, network, directory / f"zk{number}") for number in range(1, count + 1)]
        servers = {
            f"server.{node.number}": f"{node.address}:{node.ports[1]}:{node.ports[2]}" for node in nodes
        }
        for node in nodes:
            node._write_files(servers if count > 1 else {})
        return nodes

    def _write_files(self, servers: Mapping[str, str]) -> None:
        data = self.directory / "data"
        data.mkdir(exist_ok=True)
        (data / "myid").write_text(f"{self.number}\n")
        extra = {"maxSessionTimeout": "60000", **servers}
        text = node_config(data, self.address, [Ports(*self.ports)], 1, TICK_MS, extra)
        (self.directory / "zoo.cfg").write_text(text)

    @property
    def client_address(self) -> str:
        return f"{self.address}:{self.ports[0]}"

    @property
    def mode(self) -> str | None:
        """`leader`, `follower` or `standalone`; None while the server does not serve."""
        try:
            status = node_status(self.address, self.ports[0])
        except OSError:
            return None
        return status.mode if status is not None else None

    def command(self) -> Sequence[str]:
        jars = ":".join(str(jar) for jar in find_jars(with_logs=False, with_tls=False))
        java = str(find_java().home / "bin" / "java")
        config = str(self.directory / "zoo.cfg")
        return [java, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx128m", "-cp", jars, SERVER, config]

    def wait_until_serving(self, timeout_s: float = START_TIMEOUT_S) -> None:
        deadline = time.monotonic() + timeout_s
        while self.mode is None:
            assert self.is_alive and time.monotonic() < deadline, (
                f"{self.name}: {self.log.read_text()[-2000:]}"
            )
            time.sleep(0.1)


class BrokerNode(Node):
    """`felice broker`, with a configuration file in Kafka's format."""

    def __init__(
        self,
        number: int,
        network: Network,
        directory: Path,
        zookeeper: str,
        settings: Mapping[str, str],
    ) -> None:
        super().__init__(f"b{number}", network, directory)
        [port] = network.ports(1)
        self.broker_id = number
        self.data = directory / "data"
        self.bootstrap = f"{self.address}:{port}"
        properties = {
            "broker.id": str(number),
            "listeners": f"PLAINTEXT://{self.bootstrap}",
            "log.dirs": str(self.data),
            "zookeeper.connect": zookeeper,
            **settings,
        }
        self._file = directory / "server.properties"
        self._file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))

    def command(self) -> Sequence[str]:
        return [sys.executable, "-m", "felice.cli.main", "broker", str(self._file)]

    def wait_until_ready(self, since: int = 0, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait until the output after byte `since` says that the broker is ready."""
        deadline = time.monotonic() + timeout_s
        while b"Felice is ready" not in self.log.read_bytes()[since:]:
            assert self.is_alive, f"{self.name} ended: {self.log.read_text()[-2000:]}"
            assert time.monotonic() < deadline, f"{self.name} is not ready: {self.log.read_text()[-2000:]}"
            time.sleep(0.05)

    def start_and_wait(self) -> None:
        since = self.log.stat().st_size if self.log.exists() else 0
        self.start()
        self.wait_until_ready(since)
