"""Runs a worker of Connect in the test's process, with tasks as processes: like jobs of Spark, and started faster."""

from __future__ import annotations

import asyncio
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from connect_plugins import PLUGINS
from connect_rest import TIMEOUT_S, RestClient
from felice.pipelines.connect.configuration.worker_options import worker_config
from felice.pipelines.connect.herder.distributed import DistributedWorker
from felice.pipelines.connect.herder.server import login_of, worker_server
from felice.pipelines.connect.herder.worker import Address, Worker
from felice.pipelines.connect.plugins import Plugins
from felice.pipelines.connect.runtime.task_process import TaskSpec
from felice.web.forwarding import Forwarder
from felice.web.serving import WebServer

STRINGS = "org.apache.kafka.connect.storage.StringConverter"
PROGRAM = f"""
import pickle, sys
sys.path.append({str(Path(__file__).parent)!r})
from connect_plugins import PLUGINS
from felice.pipelines.connect.plugins import Plugins
from felice.pipelines.connect.runtime.task_process import run_task
run_task(pickle.load(sys.stdin.buffer), Plugins(PLUGINS))
"""


class ProcessJobs:
    """Tasks in processes of their own (`Jobs`)."""

    def __init__(self) -> None:
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    async def start(self, spec: TaskSpec, on_end: Callable[[BaseException | None], None]) -> str:
        name = f"{spec.task}-{len(self.processes)}"
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert process.stdin is not None
        with process.stdin as pipe:
            pipe.write(pickle.dumps(spec))
        self.processes[name] = process

        def wait() -> None:
            code = process.wait()
            on_end(None if code == 0 else RuntimeError(f"the process ended with {code}"))

        threading.Thread(target=wait, daemon=True).start()
        return name

    def cancel(self, name: str) -> None:
        self.processes[name].kill()

    async def close(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()

    def kill(self, task: str) -> None:
        """Kills the running process of a task, such as `source-0`."""
        for name, process in self.processes.items():
            if name.rpartition("-")[0] == task and process.poll() is None:
                process.kill()


class ServedWorker(RestClient):
    """A worker that runs on a thread."""

    def __init__(
        self, options: Mapping[str, str], *, distributed: bool = False, plugins: Plugins | None = None
    ) -> None:
        self.jobs = ProcessJobs()
        self._options = options
        self._distributed = distributed
        self._plugins = plugins or Plugins(PLUGINS)
        self._started = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._started.wait(TIMEOUT_S), "the worker did not start"
        if self._error is not None:
            raise self._error
        super().__init__(self._server.url)

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        try:
            self._server = self._made()
            await self._server.start()
        except BaseException as error:
            self._error = error
            self._started.set()
            return
        self._started.set()
        await self._stop.wait()
        await self._server.stop()

    def _made(self) -> WebServer:
        config = worker_config(self._options, distributed=self._distributed)
        address = Address(config)
        if self._distributed:
            self.worker: Worker = DistributedWorker(config, self.jobs, address, Forwarder(), self._plugins)
        else:
            self.worker = Worker(config, self.jobs, address, self._plugins)
        return worker_server(self.worker, address, login=login_of(config))

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive(), "the worker did not stop"


def distributed_options(bootstrap: str, **more: str) -> dict[str, str]:
    """The options of a distributed worker. `more` are options, with underscores for dots."""
    options = {
        "bootstrap.servers": bootstrap,
        "group.id": "workers",
        "key.converter": STRINGS,
        "value.converter": STRINGS,
        "config.storage.topic": "workers-config",
        "offset.storage.topic": "workers-offsets",
        "status.storage.topic": "workers-status",
        "offset.storage.partitions": "3",
        "config.storage.replication.factor": "1",
        "offset.storage.replication.factor": "1",
        "status.storage.replication.factor": "1",
        "offset.flush.interval.ms": "500",
        "session.timeout.ms": "6000",
        "heartbeat.interval.ms": "500",
        "scheduled.rebalance.max.delay.ms": "0",
        "listeners": "http://127.0.0.1:0",
    }
    options.update((name.replace("_", "."), value) for name, value in more.items())
    return options


@contextmanager
def running_group(bootstrap: str, count: int, **more: str) -> Iterator[list[ServedWorker]]:
    """Distributed workers of one group."""
    with ExitStack() as stack:
        workers = []
        for _ in range(count):
            worker = ServedWorker(distributed_options(bootstrap, **more), distributed=True)
            stack.callback(worker.close)
            workers.append(worker)
        yield workers


def standalone_options(bootstrap: str, directory: Path) -> dict[str, str]:
    return {
        "bootstrap.servers": bootstrap,
        "key.converter": STRINGS,
        "value.converter": STRINGS,
        "offset.storage.file.filename": str(directory / "offsets"),
        "offset.flush.interval.ms": "500",
        "listeners": "http://127.0.0.1:0",
    }


@contextmanager
def running_worker(
    bootstrap: str, directory: Path, *, plugins: Plugins | None = None, **more: str
) -> Iterator[ServedWorker]:
    """A standalone worker. `more` are options, with underscores for dots."""
    options = standalone_options(bootstrap, directory)
    options.update((name.replace("_", "."), value) for name, value in more.items())
    worker = ServedWorker(options, plugins=plugins)
    try:
        yield worker
    finally:
        worker.close()
