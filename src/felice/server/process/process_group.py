"""A cluster without ZooKeeper on one machine: broker processes, and a parent process with their metadata store.

Keeps true: only the parent opens the store; each broker has a session over a connection that it inherited. A broker
            that dies loses its session at once. The parent starts it again at the same address, after a pause that
            grows while the broker keeps dying. If the parent dies, its brokers lose the store and end.
            When `start` returns, every broker is ready. If one cannot start, all are ended.
How:        a child runs `felice start` with a hidden option, the file descriptor of the connection to the store.
            The store is in `DIR/metadata`, the logs of broker N in `DIR/broker-N`, as for brokers in one process.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

from felice.config import Listener
from felice.env import Environment
from felice.env.network import local_pair, open_local
from felice.env.processes import ask_to_end, kill, spawn
from felice.metadata.embedded import EmbeddedStore
from felice.metadata.served import StoreServer
from felice.server.membership.store_sources import STORE_DIRECTORY, StoreFiles
from felice.server.net.listener import check_free
from felice.server.startup import StartupError

_log = logging.getLogger("felice.server")

SESSION_TIMEOUT_S = 6.0
_REPORT_INTERVAL_S = 60.0
_STOP_TIMEOUT_S = 60.0
_FAILED_START_WAIT_S = 5.0
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 10.0
# A clean stop, or SIGTERM before the process installed its handler: an operator ended the broker.
_STOP_EXIT_CODES = (0, -signal.SIGTERM)
# A broker that ran for this long did not fail because of its start, so the pauses begin again from the first.
_STABLE_AFTER_S = 60.0

CommandOf = Callable[[int, int], Sequence[str]]
"""Returns the command of a broker, from its id and the file descriptor of its connection to the store."""


class ProcessGroup:
    """Call `start`, let the brokers serve, and call `stop`.

    `ready_word` begins the line that a broker prints when it serves.
    """

    def __init__(
        self,
        data_dir: Path,
        broker_ids: Sequence[int],
        command_of: CommandOf,
        ready_word: str,
        env: Environment | None = None,
        addresses: Sequence[Listener] = (),
    ) -> None:
        self._env = env or Environment.system()
        self._addresses = addresses
        self._files = StoreFiles(self._env.disk, data_dir / STORE_DIRECTORY)
        self._command_of = command_of
        self._ready_word = ready_word
        self._store: EmbeddedStore | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._serving: set[asyncio.Task[None]] = set()
        self._is_stopping = False
        self.processes = {broker_id: BrokerProcess(broker_id) for broker_id in broker_ids}

    async def start(self) -> None:
        """Starts all brokers. Raises `StartupError` and leaves nothing running if one cannot start."""
        await check_free(self._env.network, self._addresses)
        self._store = self._files.open()
        self._server = StoreServer(self._store, SESSION_TIMEOUT_S)
        try:
            await self._start_all()
        except BaseException:
            await self.stop()
            raise
        self._tasks = [
            asyncio.create_task(self._restart_when_ended(broker)) for broker in self.processes.values()
        ]

    async def stop(self) -> None:
        """Stops every broker cleanly, then closes the store."""
        self._is_stopping = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(broker.end() for broker in self.processes.values()))
        await asyncio.gather(*self._serving)
        if self._store is not None:
            await self._store.close()
        self._files.release()

    async def _start_all(self) -> None:
        """Starts the brokers side by side. The first failure ends the wait for the others."""
        try:
            async with asyncio.TaskGroup() as starting:
                for broker in self.processes.values():
                    starting.create_task(self._start_one(broker))
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None

    async def _start_one(self, broker: BrokerProcess) -> None:
        try:
            ours, theirs = local_pair()
            with theirs:
                self._serve(*await open_local(ours))
                command = self._command_of(broker.broker_id, theirs.fileno())
                await broker.start(command, theirs, self._ready_word)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise StartupError(f"broker {broker.broker_id} cannot be started: {reason}") from error

    def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving = asyncio.create_task(self._server.serve(reader, writer))
        self._serving.add(serving)
        serving.add_done_callback(self._serving.discard)

    async def _restart_when_ended(self, broker: BrokerProcess) -> None:
        """Restarts a broker whenever it ends."""
        clock, pause_s = self._env.clock, _FIRST_PAUSE_S
        while True:
            began_s = clock.monotonic()
            code = await broker.wait()
            if clock.monotonic() - began_s >= _STABLE_AFTER_S:
                pause_s = _FIRST_PAUSE_S
            _log.log(
                logging.INFO if code in _STOP_EXIT_CODES else logging.ERROR,
                "a broker process ended and is started again",
                extra={"broker": broker.broker_id, "exit_code": code, "pause_s": pause_s},
            )
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            try:
                await self._start_one(broker)
            except StartupError as error:
                _log.error("a broker process did not start", extra={"reason": str(error)})


class BrokerProcess:
    """The process of one broker; after a restart, its new process."""

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.addresses = ""
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int:
        """The id of the current process."""
        assert self._process is not None
        return self._process.pid

    async def start(self, command: Sequence[str], inherited: object, ready_word: str) -> None:
        """Starts the process, and returns when the broker serves. Raises `StartupError`."""
        self._process = await spawn(command, inherited)  # type: ignore[arg-type]
        assert self._process.stdout is not None
        line = (await self._first_line(self._process.stdout)).decode()
        if not line.startswith(ready_word):
            code = await self._wait_after_failed_start()
            raise StartupError(
                f"broker {self.broker_id} did not start (exit code {code}); see its output above"
            )
        self.addresses = line.removeprefix(ready_word).strip()
        self._reading = asyncio.create_task(_drain(self._process.stdout))

    async def _first_line(self, stdout: asyncio.StreamReader) -> bytes:
        """Returns the line that the broker prints when it serves, or an empty one if the process has ended.

        There is no limit: a broker that recovers large logs may take many minutes.
        """
        reading, waited_s = asyncio.create_task(stdout.readline()), 0.0
        try:
            while True:
                await asyncio.wait((reading,), timeout=_REPORT_INTERVAL_S)
                if reading.done():
                    return reading.result()
                waited_s += _REPORT_INTERVAL_S
                _log.warning(
                    "a broker process does not serve yet; it may be recovering its logs",
                    extra={"broker": self.broker_id, "waited_s": waited_s},
                )
        finally:
            reading.cancel()

    async def _wait_after_failed_start(self) -> int:
        """Returns the exit code of a process that does not serve. Stops the process if it does not end by itself."""
        try:
            async with asyncio.timeout(_FAILED_START_WAIT_S):
                return await self.wait()
        except TimeoutError:
            await self.end()
            return await self.wait()

    async def wait(self) -> int:
        """Returns the exit code when the process has ended."""
        assert self._process is not None
        return await self._process.wait()

    async def end(self) -> None:
        """Asks the process to stop, and kills it after `_STOP_TIMEOUT_S` seconds."""
        process = self._process
        if process is None:
            return
        ask_to_end(process)
        try:
            async with asyncio.timeout(_STOP_TIMEOUT_S):
                await process.wait()
        except TimeoutError:
            kill(process)
            await process.wait()
        if self._reading is not None:
            await self._reading


async def _drain(stdout: asyncio.StreamReader) -> None:
    """Discards further output of a broker, so that it does not fill the pipe."""
    while await stdout.read(65_536):
        continue
