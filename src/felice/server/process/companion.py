"""A program that runs beside brokers, as a child process: a schema registry on the broker's listener.

Keeps true:  the program ends with the brokers: before they stop, and by itself if their process dies: it watches
             the connection that it inherited. If it ends by itself it is started again, after a pause that grows while
             it keeps ending.
             Nothing of it runs in the broker's process, so it cannot hold the broker's event loop.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio.subprocess import Process
from collections.abc import Callable, Sequence

from felice.env.processes import ask_to_end, kill, spawn_linked

_log = logging.getLogger("felice.server")

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
_STOP_TIMEOUT_S = 15.0

CommandOf = Callable[[int], Sequence[str]]
"""The command of the program, from the file descriptor of the connection that it inherits."""


class Companion:
    """Call `start` when the brokers serve, and `stop` before they stop. `on_line` gets the lines that it prints."""

    def __init__(self, name: str, command_of: CommandOf, on_line: Callable[[str], None]) -> None:
        self._name = name
        self._command_of = command_of
        self._on_line = on_line
        self._task: asyncio.Task[None] | None = None
        self.process: Process | None = None

    def start(self) -> None:
        """Starts the program, and returns at once."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Ends the program, and waits for it."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    async def _run(self) -> None:
        pause_s = FIRST_PAUSE_S
        while True:
            code, served = await self._run_once()
            pause_s = FIRST_PAUSE_S if served else pause_s
            _log.error(
                "%s ended and is started again",
                self._name,
                extra={"exit_code": code, "pause_s": pause_s},
            )
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    async def _run_once(self) -> tuple[int, bool]:
        """Runs the program once. Returns its exit code, and whether it printed anything: it does when it serves."""
        try:
            self.process, ours = await spawn_linked(self._command_of)
        except OSError as error:
            _log.error("%s cannot be started", self._name, extra={"reason": str(error)})
            return -1, False
        with ours:
            assert self.process.stdout is not None
            served = False
            try:
                async for line in self.process.stdout:
                    served = True
                    self._on_line(line.decode("utf-8", "replace").rstrip())
                return await self.process.wait(), served
            finally:
                # End the program before `ours` is closed. The program takes the closing for a second SIGTERM. That
                # signal could come after the program has removed its handler, and change its exit code.
                await _end(self.process)


async def _end(process: Process) -> None:
    ask_to_end(process)
    try:
        async with asyncio.timeout(_STOP_TIMEOUT_S):
            await process.wait()
    except TimeoutError:
        kill(process)
        await process.wait()
