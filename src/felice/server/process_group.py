"""Brokers of one machine as processes, and the parent that keeps their metadata store: a cluster without ZooKeeper.

Keeps true: the store is kept by the parent alone; each broker has a session over a connection that it inherited. A
            broker that dies loses its session at once and is started again at the same address, after a pause that
            grows while it keeps dying. A parent that dies takes its brokers with it: they find the store gone.
            When `start` returns every broker is ready; one that cannot start ends them all.
How:        a child is `felice start` itself, told by a hidden option which descriptor leads to the store.
            `DIR/metadata` is the store's, `DIR/broker-N` is broker N's, as for brokers in one process.
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
from felice.server.listener import check_free
from felice.server.startup import StartupError
from felice.server.store_sources import STORE_DIRECTORY, StoreFiles

_log = logging.getLogger("felice.server")

SESSION_TIMEOUT_S = 6.0
_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 60.0
_FAILED_START_WAIT_S = 5.0
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 10.0
# In good order, or before it had learnt what SIGTERM means: somebody wanted that.
_STOP_EXIT_CODES = (0, -signal.SIGTERM)
# One that ran so long did not die of its start.
_STABLE_AFTER_S = 60.0

CommandOf = Callable[[int, int], Sequence[str]]
"""The command of a broker by its number, and the descriptor that leads to the store."""


class ProcessGroup:
    """`start`, serve, `stop`. `ready_word` begins the line that a broker prints when it serves."""

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
        """Raises `StartupError`, and leaves nothing running."""
        await check_free(self._env.network, self._addresses)
        self._store = self._files.open()
        self._server = StoreServer(self._store, SESSION_TIMEOUT_S)
        try:
            first = [self._start_one(broker) for broker in self.processes.values()]
            for failure in await asyncio.gather(*first, return_exceptions=True):
                if isinstance(failure, BaseException):
                    raise failure
        except BaseException:
            await self.stop()
            raise
        self._tasks = [
            asyncio.create_task(self._restart_when_ended(broker)) for broker in self.processes.values()
        ]

    async def stop(self) -> None:
        """Ends every broker in good order, then the store."""
        self._is_stopping = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(broker.end() for broker in self.processes.values()))
        await asyncio.gather(*self._serving)
        if self._store is not None:
            await self._store.close()
        self._files.release()

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
        """Starts a broker again whenever it ends."""
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
    """One broker's process, and after it the next."""

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.addresses = ""
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def start(self, command: Sequence[str], inherited: object, ready_word: str) -> None:
        """Returns when the broker serves."""
        self._process = await spawn(command, inherited)  # type: ignore[arg-type]
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(_START_TIMEOUT_S):
                line = (await self._process.stdout.readline()).decode()
        except TimeoutError:
            await self.end()
            raise StartupError(
                f"broker {self.broker_id} did not start within {_START_TIMEOUT_S:g} s"
            ) from None
        if not line.startswith(ready_word):
            code = await self._wait_after_failed_start()
            raise StartupError(f"broker {self.broker_id} did not start (exit code {code}); it said why above")
        self.addresses = line.removeprefix(ready_word).strip()
        self._reading = asyncio.create_task(_drain(self._process.stdout))

    async def _wait_after_failed_start(self) -> int:
        """How a process that does not serve ends: by itself, or because it is asked to."""
        try:
            async with asyncio.timeout(_FAILED_START_WAIT_S):
                return await self.wait()
        except TimeoutError:
            await self.end()
            return await self.wait()

    async def wait(self) -> int:
        assert self._process is not None
        return await self._process.wait()

    async def end(self) -> None:
        """Asks it to stop, and kills it if it does not."""
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
    """What a broker says later is of no use here, but must not fill the pipe."""
    while await stdout.read(65_536):
        continue
