"""A program beside brokers ends with them, and is started again when it ends alone."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from felice.server.process import companion as module
from felice.server.process.companion import Companion
from waiting import until

ENDS_WITH_ITS_PARENT = """
import asyncio, signal, sys
from felice.env.processes import end_with
async def main():
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    end_with(int(sys.argv[1]))
    print("ready", flush=True)
    await stopped.wait()
asyncio.run(main())
"""


@asynccontextmanager
async def running(program: str, lines: list[str], *words: str) -> AsyncIterator[Companion]:
    made = Companion(
        "the program", lambda number: [sys.executable, "-c", program, str(number), *words], lines.append
    )
    made.start()
    try:
        yield made
    finally:
        await made.stop()


async def test_its_lines_are_passed_on_and_a_stop_ends_it() -> None:
    lines: list[str] = []
    async with running(ENDS_WITH_ITS_PARENT, lines) as program:
        await until(lambda: lines == ["ready"])
        assert program.process is not None
    assert program.process.returncode == 0


async def test_it_ends_when_the_process_of_the_brokers_dies() -> None:
    parent = f"""
import asyncio, os, sys
from felice.server.process.companion import Companion
async def main():
    lines = []
    program = Companion("p", lambda n: [sys.executable, "-c", {ENDS_WITH_ITS_PARENT!r}, str(n)], lines.append)
    program.start()
    while not lines:
        await asyncio.sleep(0.01)
    print(program.process.pid, flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", parent, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    child = int(await process.stdout.readline())
    os.kill(child, 0)
    process.kill()
    await process.wait()
    await until(lambda: not is_running(child))


def is_running(pid: int) -> bool:
    """Whether a process runs; one that has ended and that nobody waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def test_it_is_started_again_after_a_growing_pause(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "FIRST_PAUSE_S", 0.01)
    async with running("import sys; sys.exit(3)", []):
        await until(lambda: len(caplog.records) >= 4)
    pauses = [(line.exit_code, line.pause_s) for line in caplog.records[:4]]  # type: ignore[attr-defined]
    assert pauses == [(3, 0.01), (3, 0.02), (3, 0.04), (3, 0.08)]


async def test_a_program_that_is_not_there_is_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "FIRST_PAUSE_S", 0.01)
    program = Companion("the program", lambda number: ["/no/such/program"], print)
    program.start()
    await until(lambda: len(caplog.records) >= 2)
    await program.stop()
    assert caplog.records[0].getMessage() == "the program cannot be started"
