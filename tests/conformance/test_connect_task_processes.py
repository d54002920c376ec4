"""Tasks in processes of their own, with a link to their worker."""

from __future__ import annotations

import asyncio
import os
import pickle
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from connect_tasks import MemoryOffsets
from felice.pipelines.connect.model.tasks import TaskId, TaskState
from felice.pipelines.connect.runtime.messages import PAUSE, RESUME, STOP
from felice.pipelines.connect.runtime.task_process import TaskSpec
from felice.pipelines.connect.runtime.worker_links import WorkerLink, WorkerLinks
from felice.testing import Broker, felice_broker

TIMEOUT_S = 120
TASK = TaskId("in", 0)
PACKAGE = "org.apache.kafka.connect.storage."
PROGRAM = """
import pickle, sys
from felice.pipelines.connect.runtime.task_process import run_task
run_task(pickle.load(sys.stdin.buffer))
"""


@pytest.fixture
def broker() -> Iterator[Broker]:
    with felice_broker() as started:
        started.create_topic("lines", partitions=1)
        started.create_topic("offsets", partitions=5)
        yield started


class Started:
    """A task in its process."""

    def __init__(self, link: WorkerLink, spec: TaskSpec, states: list[TaskState]) -> None:
        self.link, self.states = link, states
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert self.process.stdin is not None
        with self.process.stdin as pipe:
            pipe.write(pickle.dumps(spec))

    async def stopped(self) -> None:
        self.link.wish(STOP)
        await self.link.ended.wait()
        assert self.link.said_goodbye and self.link.trace is None, self.link.trace
        assert await asyncio.to_thread(self.process.wait) == 0


Use = Callable[[Callable[..., Started]], Awaitable[None]]


def run(broker: Broker, path: Path, use: Use, offsets: MemoryOffsets | None = None) -> None:
    """Calls `use` with a function that starts a task; its arguments replace members of the task's `TaskSpec`."""
    worker = {
        "bootstrap.servers": broker.bootstrap,
        "key.converter": PACKAGE + "StringConverter",
        "value.converter": PACKAGE + "StringConverter",
        "header.converter": PACKAGE + "SimpleHeaderConverter",
        "offset.flush.interval.ms": "100",
        "offset.storage.topic": "offsets",
    }
    config = {"name": "in", "connector.class": "FileStreamSource", "file": str(path), "topic": "lines"}

    async def main() -> None:
        links = WorkerLinks()
        await links.start("127.0.0.1")
        started: list[Started] = []

        def start(**members: object) -> Started:
            states: list[TaskState] = []
            link = links.open(TASK, states.append, offsets)
            spec = TaskSpec(TASK, link.ticket, worker, config, config, offsets is not None)
            started.append(Started(link, replace(spec, **members), states))  # type: ignore[arg-type]
            return started[-1]

        try:
            async with asyncio.timeout(TIMEOUT_S):
                await use(start)
        finally:
            for one in started:
                one.process.kill()
                one.process.wait()
            await links.close()

    asyncio.run(main())


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.02)


def lines(broker: Broker) -> list[str]:
    return [(one.value or b"").decode() for one in broker.records("lines")]


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


@pytest.mark.parametrize("at_worker", [True, False])
def test_a_successor_reads_on_where_a_task_was_stopped(
    broker: Broker, tmp_path: Path, at_worker: bool
) -> None:
    path = tmp_path / "in.txt"
    path.write_text("one\ntwo\n")

    async def use(start: Callable[..., Started]) -> None:
        first = start()
        await until(lambda: len(lines(broker)) == 2)
        await first.stopped()
        assert first.states == [TaskState.RUNNING]
        append(path, "three\n")
        second = start()
        await until(lambda: len(lines(broker)) == 3)
        await second.stopped()
        assert lines(broker) == ["one", "two", "three"]

    run(broker, path, use, MemoryOffsets() if at_worker else None)


def test_a_task_pauses_and_goes_on(broker: Broker, tmp_path: Path) -> None:
    path = tmp_path / "in.txt"
    path.write_text("one\n")

    async def use(start: Callable[..., Started]) -> None:
        task = start(paused=True)
        await until(lambda: task.states == [TaskState.PAUSED])
        assert lines(broker) == []
        task.link.wish(RESUME)
        await until(lambda: lines(broker) == ["one"])
        task.link.wish(PAUSE)
        await until(lambda: len(task.states) == 3)
        await task.stopped()
        assert task.states == [TaskState.PAUSED, TaskState.RUNNING, TaskState.PAUSED]

    run(broker, path, use)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"connector": {"connector.class": "Nope"}}, "Class Nope could not be found"),
        ({"options": {"file": "/", "topic": "lines"}}, "Error"),
    ],
)
def test_a_task_that_fails_tells_why(
    broker: Broker, tmp_path: Path, wrong: dict[str, object], text: str
) -> None:
    async def use(start: Callable[..., Started]) -> None:
        task = start(**wrong)
        await task.link.ended.wait()
        assert task.link.said_goodbye
        assert text in (task.link.trace or "")
        assert await asyncio.to_thread(task.process.wait) == 1

    run(broker, tmp_path / "in.txt", use)


def test_a_killed_task_is_seen_and_loses_nothing(broker: Broker, tmp_path: Path) -> None:
    path = tmp_path / "in.txt"
    path.write_text("first\n")

    async def use(start: Callable[..., Started]) -> None:
        for _ in range(3):
            task = start()
            await until(lambda task=task: bool(task.states))  # type: ignore[misc]
            append(path, "".join(f"{n}\n" for n in range(500)))
            await asyncio.sleep(random.uniform(0, 0.3))
            os.kill(task.process.pid, signal.SIGKILL)
            await task.link.ended.wait()
            assert not task.link.said_goodbye
        last = start()
        append(path, "last\n")
        await until(lambda: "last" in lines(broker))
        await last.stopped()
        # Those after the last commit are there twice.
        found = Counter(lines(broker))
        assert found["first"] >= 1
        assert all(found[str(n)] >= 3 for n in range(500)), found

    run(broker, path, use)


def test_the_options_of_a_task_stand_in_no_text() -> None:
    spec = TaskSpec(TASK, None, {"a": "secret"}, {}, {})  # type: ignore[arg-type]
    assert "secret" not in repr(spec)
