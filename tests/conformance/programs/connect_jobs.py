"""Runs two tasks of Connect as jobs of Spark: BOOTSTRAP DIRECTORY. Prints what happened as JSON."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path

from felice.pipelines.connect.model.errors import ConnectError
from felice.pipelines.connect.model.tasks import TaskId, TaskState
from felice.pipelines.connect.runtime.messages import STOP
from felice.pipelines.connect.runtime.spark_jobs import CONFIG, SparkJobs
from felice.pipelines.connect.runtime.task_process import TaskSpec
from felice.pipelines.connect.runtime.worker_links import WorkerLink, WorkerLinks
from felice.pipelines.connect.storage.offset_file import OffsetFile
from felice.pipelines.spark.session import session, stop

STRINGS = "org.apache.kafka.connect.storage.StringConverter"
BOOTSTRAP, DIRECTORY = sys.argv[1], Path(sys.argv[2])
WORKER = {
    "bootstrap.servers": BOOTSTRAP,
    "key.converter": STRINGS,
    "value.converter": STRINGS,
    "header.converter": "org.apache.kafka.connect.storage.SimpleHeaderConverter",
    "offset.flush.interval.ms": "100",
}


class Worker:
    def __init__(self, jobs: SparkJobs, links: WorkerLinks) -> None:
        self.jobs, self.links = jobs, links
        self.offsets = OffsetFile(DIRECTORY / "offsets")
        self.loop = asyncio.get_running_loop()

    def start(self, name: str) -> Task:
        return Task(self, name)


class Task:
    def __init__(self, worker: Worker, name: str) -> None:
        self.states: list[TaskState] = []
        self.ended = asyncio.Event()
        self.failure: BaseException | None = None
        config = {
            "name": name,
            "connector.class": "FileStreamSource",
            "file": str(DIRECTORY / name),
            "topic": name,
        }
        offsets = worker.offsets.of(name)
        self.link: WorkerLink = worker.links.open(TaskId(name, 0), self.states.append, offsets)
        spec = TaskSpec(TaskId(name, 0), self.link.ticket, WORKER, config, config, offsets_at_worker=True)
        loop = worker.loop
        self.job = worker.jobs.start(spec, lambda failure: loop.call_soon_threadsafe(self._end, failure))

    def _end(self, failure: BaseException | None) -> None:
        self.failure = failure
        self.ended.set()


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.05)


async def run(jobs: SparkJobs) -> dict[str, object]:
    links = WorkerLinks()
    await links.start("127.0.0.1")
    worker = Worker(jobs, links)
    found: dict[str, object] = {}
    for name in ("a", "b"):
        (DIRECTORY / name).write_text(f"first of {name}\n")
    a, b = worker.start("a"), worker.start("b")
    await until(lambda: a.states == b.states == [TaskState.RUNNING])
    try:
        worker.start("c")
    except ConnectError as error:
        found["refused"] = str(error)
    # Its offsets are committed.
    await until(lambda: worker.offsets.of("a").read([{"filename": str(DIRECTORY / "a")}]) != [None])
    jobs.cancel(a.job)
    await a.ended.wait()
    found["cancelled"] = a.failure is not None
    await a.link.ended.wait()
    with (DIRECTORY / "a").open("a") as file:
        file.write("second of a\n")
    successor = worker.start("a")
    await until(lambda: successor.states == [TaskState.RUNNING])
    place = {"filename": str(DIRECTORY / "a")}
    await until(
        lambda: worker.offsets.of("a").read([place])[0]["position"] == len("first of a\nsecond of a\n")
    )  # type: ignore[index]
    for task in (successor, b):
        task.link.wish(STOP)
        await task.ended.wait()
        found[task.job.split("-")[1]] = [task.link.said_goodbye, task.link.trace, repr(task.failure)]
    (DIRECTORY / "bad").mkdir()
    bad = worker.start("bad")
    await bad.ended.wait()
    await bad.link.ended.wait()
    found["bad"] = [bad.link.said_goodbye, bad.link.trace, bad.failure is not None]
    await links.close()
    return found


def main() -> None:
    spark = session("connect jobs", "local[8]", config=CONFIG)
    try:
        print(json.dumps(asyncio.run(run(SparkJobs(spark.sparkContext, slots=2)))))
    finally:
        stop(spark)


if __name__ == "__main__":
    main()
