"""Runs several ZooKeeper servers on this machine as one ensemble.

Keeps true: when `start` returns, every node serves and one of them leads (or is standalone). A start that fails leaves
            nothing running. The data stays in the directory, so the next start continues with it.
"""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from felice.ensemble.files import EnsembleError, Ports, find_jars, log_config, node_config
from felice.ensemble.node import Node
from felice.env.java import JavaNotFound, find_java
from felice.env.ports import free_ports

DEFAULT_PORT = 2181
# Offsets from a node's client port to its quorum and election ports, which are 2888 and 3888 by convention.
_QUORUM_OFFSET = 2888 - DEFAULT_PORT
_ELECTION_OFFSET = 3888 - DEFAULT_PORT
_START_TIMEOUT_S = 60.0
_POLL_S = 0.05


class Ensemble:
    """An ensemble. Call `start` and `stop`, or use `with Ensemble(...)`. Port 0 selects free ports.

    Session timeouts are limited to two to twenty times `tick_ms`, unless `settings` (of zoo.cfg) set other limits.
    `with_tls` adds the jars that a `secureClientPort` in `settings` needs to the class path. `java_options` are options
    of each node's JVM, for example the JAAS file of its users.
    """

    def __init__(
        self,
        directory: Path,
        nodes: int = 3,
        port: int = DEFAULT_PORT,
        *,
        host: str = "127.0.0.1",
        tick_ms: int = 2_000,
        settings: Mapping[str, str] | None = None,
        with_logs: bool = True,
        with_tls: bool = False,
        java_options: Sequence[str] = (),
    ) -> None:
        self.host = host
        self.directory = directory.absolute()
        self._tick_ms = tick_ms
        self._settings = dict(settings or {})
        self._with_logs = with_logs
        self._java_options = tuple(java_options)
        self._ports = _free_ports(nodes) if port == 0 else _ports_from(port, nodes)
        self._class_path = ":".join(str(jar) for jar in find_jars(with_logs=with_logs, with_tls=with_tls))
        self._java = _java()
        self.nodes = [self._node(number) for number in range(1, nodes + 1)]

    @property
    def connect(self) -> str:
        """The addresses of all nodes, as a value of `zookeeper.connect`."""
        return ",".join(node.address for node in self.nodes)

    def start(self) -> None:
        """Starts all nodes and waits until they serve. Raises `EnsembleError`."""
        self._refuse_ports_in_use()
        try:
            for node in self.nodes:
                self._write_files(node)
                node.start()
            self.wait_until_ready()
        except OSError as error:
            self.stop()
            raise EnsembleError(f"{error.filename or self.directory}: {error.strerror or error}") from error
        except BaseException:
            self.stop()
            raise

    def wait_until_ready(self, timeout_s: float = _START_TIMEOUT_S) -> None:
        """Waits until every node serves. Raises `EnsembleError`."""
        deadline = time.monotonic() + timeout_s
        for node in self.nodes:
            while node.status() is None:
                if node.exit_code is not None:
                    raise EnsembleError(f"node {node.number} ended at once ({node.exit_code}): {_why(node)}")
                if time.monotonic() > deadline:
                    raise EnsembleError(
                        f"node {node.number} at {node.address} does not serve after {timeout_s:g} s"
                    )
                time.sleep(_POLL_S)

    def leader(self, timeout_s: float = _START_TIMEOUT_S) -> Node:
        """Returns the leader; waits while there is none. Raises `EnsembleError` after the timeout."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            for node in self.nodes:
                status = node.status() if node.is_running else None
                if status is not None and status.mode in ("leader", "standalone"):
                    return node
            time.sleep(_POLL_S)
        raise EnsembleError(f"none of {self.connect} leads after {timeout_s:g} s")

    def stop(self) -> None:
        """Stops all nodes cleanly."""
        for node in self.nodes:
            node.stop()

    def kill(self) -> None:
        """Kills all nodes."""
        for node in self.nodes:
            node.kill()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self.stop()

    def _node(self, number: int) -> Node:
        directory = self.directory / f"node-{number}"
        options = [*self._java_options, "-cp", self._class_path]
        if self._with_logs:
            options = [f"-Dlog4j2.configurationFile={directory / 'log4j2.properties'}", *options]
        return Node(number, self.host, self._ports[number - 1].client, directory, self._java, options)

    def _write_files(self, node: Node) -> None:
        data = node.directory / "data"
        data.mkdir(parents=True, exist_ok=True)
        # ZooKeeper would also create it, but more slowly.
        (data / "myid").write_text(f"{node.number}\n")
        config = node_config(data, self.host, self._ports, node.number, self._tick_ms, self._settings)
        (node.directory / "zoo.cfg").write_text(config)
        if self._with_logs:
            (node.directory / "log4j2.properties").write_text(log_config(node.directory / "zookeeper.log"))

    def _refuse_ports_in_use(self) -> None:
        for ports in self._ports:
            numbers = (
                (ports.client, ports.quorum, ports.election) if len(self._ports) > 1 else (ports.client,)
            )
            for port in numbers:
                if (reason := _why_not(self.host, port)) is not None:
                    raise EnsembleError(
                        f"port {port} of {self.host} cannot be used: {reason}; choose others with --port"
                    )


def _java() -> Path:
    try:
        return find_java().home / "bin" / "java"
    except JavaNotFound as missing:
        raise EnsembleError(str(missing).replace("Spark needs", "ZooKeeper needs")) from missing


def _ports_from(port: int, nodes: int) -> list[Ports]:
    last = port + nodes - 1 + (_ELECTION_OFFSET if nodes > 1 else 0)
    if last > 65_535:
        raise EnsembleError(f"{nodes} nodes from port {port} need ports up to {last}; there are 65535")
    return [Ports(port + at, port + at + _QUORUM_OFFSET, port + at + _ELECTION_OFFSET) for at in range(nodes)]


def _free_ports(nodes: int) -> list[Ports]:
    numbers = free_ports(3 * nodes)
    return [Ports(*numbers[at : at + 3]) for at in range(0, len(numbers), 3)]


def _why_not(host: str, port: int) -> str | None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return (
                "it is in use" if error.errno == errno.EADDRINUSE else (error.strerror or str(error)).lower()
            )
    return None


def _why(node: Node) -> str:
    """Returns the most informative line that a node printed or logged."""
    log = node.directory / "zookeeper.log"
    text = node.output() + (log.read_text(errors="replace")[-4000:] if log.exists() else "")
    telling = [
        line for line in text.splitlines() if "ERROR" in line or "Exception" in line or "Error" in line
    ]
    return telling[-1].strip() if telling else f"see {node.directory}"
