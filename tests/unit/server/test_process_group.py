"""Broker processes that cannot be started, or that do not report that they serve."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from felice.config import Listener
from felice.env.processes import PYTHON
from felice.env.processes import spawn as real_spawn
from felice.server.process import process_group
from felice.server.process.process_group import ProcessGroup
from felice.server.startup import StartupError
from waiting import LIMIT_S, until


def group_of(tmp_path: Path, says: str) -> ProcessGroup:
    program = f"print({says!r}, flush=True); import time; time.sleep(600)"
    return ProcessGroup(tmp_path, [1], lambda number, descriptor: [PYTHON, "-c", program], "ready on ")


def refusing(monkeypatch: pytest.MonkeyPatch, *attempts: int) -> None:
    """The machine has no room for another process at these attempts, counted from 1."""
    count = 0

    async def spawn(*arguments: Any) -> Any:
        nonlocal count
        count += 1
        if count in attempts:
            raise OSError(errno.EAGAIN, "Resource temporarily unavailable")
        return await real_spawn(*arguments)

    monkeypatch.setattr(process_group, "spawn", spawn)


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 2 * LIMIT_S))  # type: ignore[arg-type]


def test_a_broker_is_started_again_even_if_the_machine_had_no_room_for_it_at_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing(monkeypatch, 2, 3)

    async def scenario() -> None:
        group = group_of(tmp_path, "ready on here:1")
        await group.start()
        first = group.processes[1].pid
        os.kill(first, signal.SIGKILL)
        await until(lambda: group.processes[1].pid != first)
        await group.stop()

    run(scenario)


def test_a_busy_port_of_one_broker_is_found_before_any_is_started(tmp_path: Path) -> None:
    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            busy = Listener("PLAINTEXT", "127.0.0.1", taken.getsockname()[1])
            free = Listener("PLAINTEXT", "127.0.0.1", 0)
            data = tmp_path / "data"
            group = ProcessGroup(data, [1, 2], lambda *_: ["false"], "ready", addresses=[free, busy])
            with pytest.raises(StartupError, match=f"{busy.port}.*in use"):
                await group.start()
            assert not data.exists()

    run(scenario)


def test_a_group_that_the_machine_cannot_start_reports_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing(monkeypatch, 1)

    async def scenario() -> None:
        with pytest.raises(
            StartupError, match=r"broker 1 cannot be started: resource temporarily unavailable"
        ):
            await group_of(tmp_path, "ready on here:1").start()

    run(scenario)


def test_a_broker_that_prints_another_first_line_fails_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_group, "_FAILED_START_WAIT_S", 0.1, raising=False)

    async def scenario() -> None:
        with pytest.raises(StartupError, match="broker 1 did not start"):
            await group_of(tmp_path, "something else").start()

    run(scenario)


def slow_command(may_serve: Path) -> list[str]:
    """A broker that serves as soon as the file exists."""
    program = (
        "import pathlib, sys, time\n"
        "while not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.01)\n"
        "print('ready on here:1', flush=True); time.sleep(600)"
    )
    return [PYTHON, "-c", program, str(may_serve)]


def start_slowly(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    proceed: Callable[[ProcessGroup, asyncio.Task[None]], Awaitable[None]],
) -> None:
    """Starts a group with one slow broker, and calls `proceed` once the group has said twice that it still waits."""
    monkeypatch.setattr(process_group, "_REPORT_INTERVAL_S", 0.1)

    def reports() -> list[int]:
        return [row.broker for row in caplog.records if "does not serve yet" in row.message]  # type: ignore[attr-defined]

    async def scenario() -> None:
        group = ProcessGroup(
            tmp_path / "data", [1], lambda *_: slow_command(tmp_path / "may serve"), "ready on "
        )
        starting = asyncio.create_task(group.start())
        await until(lambda: len(reports()) >= 2)
        assert set(reports()) == {1} and not starting.done()
        await proceed(group, starting)

    run(scenario)


def test_a_broker_that_recovers_its_logs_for_long_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def proceed(group: ProcessGroup, starting: asyncio.Task[None]) -> None:
        (tmp_path / "may serve").touch()
        await starting
        assert group.processes[1].addresses == "here:1"
        await group.stop()

    start_slowly(tmp_path, monkeypatch, caplog, proceed)


def test_a_group_can_be_stopped_before_its_brokers_serve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def proceed(group: ProcessGroup, starting: asyncio.Task[None]) -> None:
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert await group.processes[1].wait() == -signal.SIGTERM

    start_slowly(tmp_path, monkeypatch, caplog, proceed)


def test_a_broker_that_fails_ends_the_start_of_the_others(tmp_path: Path) -> None:
    async def scenario() -> None:
        commands = {1: slow_command(tmp_path / "never"), 2: [PYTHON, "-c", "raise SystemExit(7)"]}
        group = ProcessGroup(tmp_path / "data", [1, 2], lambda number, _: commands[number], "ready on ")
        with pytest.raises(StartupError, match=r"broker 2 did not start \(exit code 7\)"):
            await group.start()
        assert await group.processes[1].wait() == -signal.SIGTERM

    run(scenario)


@pytest.mark.parametrize(("number", "level"), [(signal.SIGTERM, "INFO"), (signal.SIGKILL, "ERROR")])
def test_only_an_unrequested_end_of_a_broker_is_an_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, number: signal.Signals, level: str
) -> None:
    caplog.set_level("INFO", "felice.server")

    async def scenario() -> None:
        group = group_of(tmp_path, "ready on here:1")
        await group.start()
        os.kill(group.processes[1].pid, number)
        await until(lambda: any("ended" in row.message for row in caplog.records))
        assert [row.levelname for row in caplog.records if "ended" in row.message] == [level]
        await group.stop()

    run(scenario)


def test_a_group_can_be_stopped_in_the_moment_that_a_broker_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`asyncio.wait_for` of Python 3.11 forgets a cancellation that comes together with what it waited for."""
    stopping: list[asyncio.Task[None]] = []

    async def scenario() -> None:
        group = group_of(tmp_path, "ready on here:1")
        await group.start()

        async def spawn(*arguments: Any) -> Any:
            process = await real_spawn(*arguments)
            feed = process.stdout.feed_data  # type: ignore[union-attr]

            def feed_and_stop(data: bytes) -> None:
                feed(data)
                if data.endswith(b"\n"):
                    stopping.append(asyncio.create_task(group.stop()))

            process.stdout.feed_data = feed_and_stop  # type: ignore[method-assign, union-attr]
            return process

        monkeypatch.setattr(process_group, "spawn", spawn)
        os.kill(group.processes[1].pid, signal.SIGKILL)
        await until(lambda: stopping)
        await stopping[0]

    run(scenario)
