"""Redis Streams, NATS JetStream and RabbitMQ: one server each, on loopback, with its messages on disk.

Durability is each project's usual setting, and the same as a broker's of Kafka's kind: an acknowledged message is in
the page cache, and the disk has it later. Redis syncs its log every second (`appendonly`), JetStream every two minutes,
RabbitMQ writes persistent messages of a durable queue in the background.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from bench import programs
from bench.systems import free_port

_START_TIMEOUT_S = 120


class Server:
    """A context manager that runs one server."""

    name = ""

    def __init__(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="felice-bench-"))
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()
        self.bootstrap = f"127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        return {}

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> Self:
        try:
            with (self._directory / "output").open("wb") as log:
                self._process = subprocess.Popen(
                    self.command(),
                    cwd=self._directory,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env={**os.environ, **self.environment()},
                    # RabbitMQ starts helpers: they end with the group.
                    start_new_session=True,
                )
            self._wait_until_it_listens()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def _wait_until_it_listens(self) -> None:
        deadline = time.monotonic() + _START_TIMEOUT_S
        while time.monotonic() < deadline:
            assert self._process is not None
            if self._process.poll() is not None:
                break
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                time.sleep(0.1)
        output = (self._directory / "output").read_text(errors="replace").strip()
        raise programs.Unavailable(f"{self.name} did not start: {output[-300:]}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(30)
            self._signal(signal.SIGKILL)
            self._process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


class Redis(Server):
    """Redis with its append-only file."""

    name = "redis"

    def command(self) -> list[str]:
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self._directory)]
        options += ["--appendonly", "yes", "--appendfsync", "everysec", "--save", ""]
        return [programs.redis_server(), *options]

    def environment(self) -> dict[str, str]:
        server = Path(programs.redis_server())
        is_unpacked = programs.directory() in server.parents
        return {"LD_LIBRARY_PATH": programs.library_path(server.parents[2])} if is_unpacked else {}


class Nats(Server):
    """NATS with JetStream, streams in files."""

    name = "nats"

    def command(self) -> list[str]:
        store = str(self._directory / "jetstream")
        return [programs.nats_server(), "-a", "127.0.0.1", "-p", str(self.port), "-js", "-sd", store]


class RabbitMq(Server):
    """RabbitMQ; the race uses a durable classic queue."""

    name = "rabbitmq"

    def __init__(self) -> None:
        super().__init__()
        self._epmd_port = free_port()
        self._epmd: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        # Erlang would start this daemon of its own and leave it behind.
        [epmd] = programs.rabbitmq().glob("usr/lib/erlang/erts-*/bin/epmd")
        command = [str(epmd), "-port", str(self._epmd_port), "-address", "127.0.0.1"]
        self._epmd = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return super().__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        if self._epmd is not None:
            self._epmd.kill()
            self._epmd.wait()

    def command(self) -> list[str]:
        [server] = programs.rabbitmq().glob("usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server")
        return [str(server)]

    def environment(self) -> dict[str, str]:
        root = programs.rabbitmq()
        own = str(self._directory)
        (self._directory / "enabled_plugins").write_text("[].\n")
        return {
            "PATH": f"{root / 'bin'}:{root / 'usr/bin'}:{os.environ['PATH']}",
            "HOME": own,
            "RABBITMQ_NODENAME": f"bench{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_MNESIA_BASE": own,
            "RABBITMQ_LOG_BASE": own,
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{own}/enabled_plugins",
            "RABBITMQ_CONF_ENV_FILE": f"{own}/none",
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self._epmd_port),
        }


OTHERS: dict[str, type[Server]] = {"redis": Redis, "nats": Nats, "rabbitmq": RabbitMq}
