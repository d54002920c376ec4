"""Several ZooKeeper servers on this machine that are one ensemble.

Keeps true: when `start` returns every node serves and one of them leads (or stands alone); a start that
            fails leaves nothing running. Data stays in the directory, so the next start goes on from it.
"""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from felice.ensemble.files import EnsembleError, Ports, find_jars, log_config, node_config
from felice.ensemble.node import Node
from felice.env.java import JavaNotFound, find_java

DEFAULT_PORT = 2181
# From a node's client port to the ports on which the nodes talk to each other: 2888 and 3888 by custom.
_QUORUM_OFFSET = 2888 - DEFAULT_PORT
_ELECTION_OFFSET = 3888 - DEFAULT_PORT
_START_TIMEOUT_S = 60.0
_POLL_S = 0.05


class Ensemble:
    """Made, then `start`ed; or `with Ensemble(...)`. Port 0 takes free ports.

    `tick_ms` bounds what sessions may ask for: two to twenty ticks, unless `settings` of zoo.cfg say otherwise.
    `with_tls` puts on the class path what a `secureClientPort` in `settings` needs.
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
    ) -> None:
        self.host = host
        self.directory = directory
        self._tick_ms = tick_ms
        self._settings = dict(settings or {})
        self._with_logs = with_logs
        self._ports = _free_ports(host, nodes) if port == 0 else _ports_from(port, nodes)
        self._class_path = ":".join(str(jar) for jar in find_jars(with_logs=with_logs, with_tls=with_tls))
        self._java = _java()
        self.nodes = [self._node(number) for number in range(1, nodes + 1)]

    @property
    def connect(self) -> str:
        """What `zookeeper.connect` takes."""
        return ",".join(node.address for node in self.nodes)

    def start(self) -> None:
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
        """Returns when every node serves."""
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
        """The node that leads, waited for while there is none."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            for node in self.nodes:
                status = node.status() if node.is_running else None
                if status is not None and status.mode in ("leader", "standalone"):
                    return node
            time.sleep(_POLL_S)
        raise EnsembleError(f"none of {self.connect} leads after {timeout_s:g} s")

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()

    def kill(self) -> None:
        for node in self.nodes:
            node.kill()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _node(self, number: int) -> Node:
        directory = self.directory / f"node-{number}"
        options = ["-cp", self._class_path]
        if self._with_logs:
            options = [f"-Dlog4j2.configurationFile={directory / 'log4j2.properties'}", *options]
        return Node(number, self.host, self._ports[number - 1].client, directory, self._java, options)

    def _write_files(self, node: Node) -> None:
        data = node.directory / "data"
        data.mkdir(parents=True, exist_ok=True)
        # ZooKeeper makes it too, and takes longer.
        (data / "myid").write_text(f"{node.number}\n")
        config = node_config(
            data.absolute(), self.host, self._ports, node.number, self._tick_ms, self._settings
        )
        (node.directory / "zoo.cfg").write_text(config)
        if self._with_logs:
            (node.directory / "log4j2.properties").write_text(
                log_config(node.directory.absolute() / "zookeeper.log")
            )

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


def _free_ports(host: str, nodes: int) -> list[Ports]:
    probes = []
    for _ in range(3 * nodes):
        probe = socket.socket()
        probe.bind((host, 0))
        probes.append(probe)
    numbers = [int(probe.getsockname()[1]) for probe in probes]
    for probe in probes:
        probe.close()
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
    """The most telling line of what a node printed or logged."""
    log = node.directory / "zookeeper.log"
    text = node.output() + (log.read_text(errors="replace")[-4000:] if log.exists() else "")
    telling = [
        line for line in text.splitlines() if "ERROR" in line or "Exception" in line or "Error" in line
    ]
    return telling[-1].strip() if telling else f"see {node.directory}"
