"""One ZooKeeper server as a process: starts, queries, stops, kills and pauses it.

The server does not outlive the process that started it: a second, small process (`guard`) ends it.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from felice.dataclass import dataclass
from felice.ensemble import guard
from felice.env.forks import Owner

_MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
# Options for little memory and a quick start.
_JVM_OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Xmx256m")
_STOP_TIMEOUT_S = 10.0
_OUTPUT_TAIL = 2000


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """The status that a server reports. `mode` is leader, follower, observer or standalone."""

    mode: str
    version: str
    zxid: str
    connections: int
    nodes: int


def ask(host: str, port: int, command: str, timeout_s: float = 1.0) -> str:
    """Sends one of ZooKeeper's four-letter commands and returns the response. Raises `OSError`."""
    with socket.create_connection((host, port), timeout_s) as connection:
        connection.sendall(command.encode())
        answer = b""
        while chunk := connection.recv(65536):
            answer += chunk
    return answer.decode("utf-8", "replace")


def node_status(host: str, port: int, timeout_s: float = 1.0) -> NodeStatus | None:
    """Returns the status of a server, or None while it does not serve. Raises `OSError` if no server responds."""
    said = ask(host, port, "srvr", timeout_s)
    fields = dict(line.split(": ", 1) for line in said.splitlines() if ": " in line)
    if "Mode" not in fields:
        return None
    return NodeStatus(
        fields["Mode"],
        fields.get("Zookeeper version", "").partition("-")[0],
        fields.get("Zxid", ""),
        int(fields.get("Connections", 0)),
        int(fields.get("Node count", 0)),
    )


class Node:
    """One server of an ensemble. Numbers count from 1."""

    def __init__(
        self, number: int, host: str, port: int, directory: Path, java: Path, options: Sequence[str]
    ) -> None:
        self.number = number
        self.host = host
        self.port = port
        self.directory = directory
        self._command = [str(java), *_JVM_OPTIONS, *options, _MAIN, str(directory / "zoo.cfg")]
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._owner = Owner()

    @property
    def address(self) -> str:
        """`host:port` of the client port."""
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int | None:
        """The process id, also of a process that has ended; None before the first start."""
        return self._process.pid if self._process is not None else None

    @property
    def exit_code(self) -> int | None:
        """The exit code of the process, or None if it runs or was not started."""
        code = self._process.poll() if self._process is not None else None
        if code is not None:
            self._dismiss_guard()
        return code

    @property
    def is_running(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self.exit_code is None

    def start(self) -> None:
        """Starts the process and its guard."""
        if self.is_running:
            return
        self._dismiss_guard()
        self._owner = Owner()
        with (self.directory / "output.log").open("wb") as output:
            # Its own process group: Ctrl-C reaches only the starting process, which then stops the node cleanly.
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        self._guard = subprocess.Popen(
            [sys.executable, "-I", "-S", guard.__file__, str(self._process.pid), str(_STOP_TIMEOUT_S)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _dismiss_guard(self) -> None:
        """Ends the guard, before the operating system can reuse the process id that it watches."""
        if self._guard is not None and self._owner.is_here:
            self._guard.kill()
            self._guard.communicate()
            self._guard = None

    def status(self) -> NodeStatus | None:
        """Returns the status, or None while the node does not serve for any reason."""
        try:
            return node_status(self.host, self.port)
        except OSError:
            return None

    def stop(self) -> None:
        """Stops the process cleanly; kills it if it still runs after `_STOP_TIMEOUT_S`."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kills the process."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Pauses the process until `resume`; returns when it has stopped. Its connections stay open."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        # The threads that run on other cores stop a moment later.
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """Continues a paused process."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def output(self) -> str:
        """Returns the end of the process's output, which has the reason of a failed start."""
        path = self.directory / "output.log"
        return path.read_text(errors="replace")[-_OUTPUT_TAIL:] if path.exists() else ""

    def _end(self, number: signal.Signals) -> None:
        # The processes are children of the process that started them; one that was forked from it must leave them.
        if self._process is None or not self._owner.is_here:
            return
        self._dismiss_guard()
        self._process.send_signal(number)
        # A paused process would not receive the signal.
        self._process.send_signal(signal.SIGCONT)
        try:
            self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
