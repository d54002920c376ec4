"""Runs one task in a process of its own, from what its worker sent, until the worker stops it or it fails.

Keeps true:  the worker hears of the end with the trace of the error, also if the task could not be made.
             Nothing of a task stays in the process, which may run another connector's task next.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from contextlib import ExitStack, closing, suppress
from typing import Any

from felice.dataclass import dataclass
from felice.pipelines.connect.configuration.worker import Client, client_config
from felice.pipelines.connect.connector.base import SinkTask
from felice.pipelines.connect.model.errors import ConnectError
from felice.pipelines.connect.model.tasks import TaskId
from felice.pipelines.connect.plugins import Plugins
from felice.pipelines.connect.runtime.messages import Ticket
from felice.pipelines.connect.runtime.progress import LogLines, kept_lines
from felice.pipelines.connect.runtime.task_link import TaskLink
from felice.pipelines.connect.storage.offset_topic import TopicOffsets
from felice.pipelines.connect.task.building import TaskBuilder
from felice.pipelines.connect.task.control import Control
from felice.pipelines.connect.task.loop import TaskLoop
from felice.pipelines.connect.task.source_offsets import OffsetStore


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """All that a process needs to run a task. The options have their references to secrets replaced.

    `worker`, `connector` and `options` are the options of the worker, of the connector, and the task's own. The offsets
    of a source are in the worker's topic of offsets, or with `offsets_at_worker` kept by the worker itself.
    """

    task: TaskId
    ticket: Ticket
    worker: Mapping[str, str]
    connector: Mapping[str, str]
    options: Mapping[str, str]
    offsets_at_worker: bool = False
    paused: bool = False

    def __repr__(self) -> str:
        return f"TaskSpec({self.task})"  # options may be secrets


def run_task(spec: TaskSpec, plugins: Plugins | None = None) -> None:
    """Runs the task. Returns when it was stopped; raises what made it fail, after the worker was told."""
    control = Control(paused=spec.paused)
    link = TaskLink(spec.ticket, control)
    trace: str | None = None
    try:
        with ExitStack() as stack:
            lines = stack.enter_context(kept_lines())
            # Also the last lines, after all else of the task has ended.
            stack.callback(_tell_rest, link, lines)

            def tell(progress: dict[str, Any]) -> None:
                link.tell_progress(progress)
                link.tell_lines(lines.take())

            loop = _loop(spec, plugins or Plugins(), control, link, stack)
            loop.on_state = link.tell_state
            loop.on_topic = link.tell_topic
            loop.on_progress = tell
            loop.run()
    except BaseException as error:
        trace = "".join(traceback.format_exception(error))
        raise
    finally:
        link.end(trace)


def _tell_rest(link: TaskLink, lines: LogLines) -> None:
    with suppress(ConnectError):  # the worker is gone; it cannot be told
        link.tell_lines(lines.take())


def _loop(spec: TaskSpec, plugins: Plugins, control: Control, link: TaskLink, stack: ExitStack) -> TaskLoop:
    builder = TaskBuilder(plugins, spec.worker, spec.connector)
    task = builder.connector.task_class()()
    if isinstance(task, SinkTask):
        return builder.sink(spec.task, task, spec.options, control)
    offsets: OffsetStore = link
    if not spec.offsets_at_worker:
        offsets = stack.enter_context(closing(_offsets(spec, builder.offsets_topic)))
    return builder.source(spec.task, task, spec.options, control, offsets)


def _offsets(spec: TaskSpec, topic: str) -> TopicOffsets:
    about = spec.worker, spec.connector
    return TopicOffsets(
        spec.task.connector,
        topic,
        client_config(*about, Client.CONSUMER, spec.task, name="offsets-consumer"),
        client_config(*about, Client.PRODUCER, spec.task, name="offsets-producer"),
    )
