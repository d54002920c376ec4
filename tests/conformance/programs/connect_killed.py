"""Runs one task of Connect until a phase of its work, and kills its own process there.

Reads JSON: `worker`, `connector`, `phase`, `at` (the number of the call), `before` (or after it).
Without a phase the task runs until standard input ends. Exits with 3 if the task fails.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

from felice.client.confluent.consumer import Consumer
from felice.client.confluent.producer import Producer
from felice.pipelines.connect.configuration.worker import Client, client_config
from felice.pipelines.connect.connector.base import SinkTask
from felice.pipelines.connect.model.tasks import TaskId
from felice.pipelines.connect.plugins import Plugins
from felice.pipelines.connect.storage.offset_topic import TopicOffsets
from felice.pipelines.connect.task.building import TaskBuilder
from felice.pipelines.connect.task.control import Control
from felice.pipelines.connect.task.conversion import Conversion

# The calls that make up each phase, of a source and of a sink.
SOURCE: dict[str, list[tuple[Any, str]]] = {
    "transform": [(Conversion, "of_source"), (Conversion, "of_sources")],
    "write": [(Producer, "produce"), (Producer, "produce_arrow")],
    "flush": [(Producer, "flush")],
    "commit": [(TopicOffsets, "write"), (Producer, "commit_transaction")],
}
SINK: dict[str, list[tuple[Any, str]]] = {
    "read": [(Consumer, "consume")],
    "transform": [(Conversion, "of_message")],
    "commit": [(Consumer, "commit")],
}


def main() -> int:
    given = json.loads(sys.stdin.readline())
    builder = TaskBuilder(Plugins(()), given["worker"], given["connector"])
    kind = builder.connector.task_class()
    is_sink = issubclass(kind, SinkTask)
    connector = builder.connector()
    connector.start(given["connector"])
    [options] = connector.task_configs(1)
    connector.stop()
    calls = SOURCE | {"read": [(kind, "poll")]}
    if is_sink:
        calls = SINK | {"write": [(kind, "put")], "flush": [(kind, "pre_commit")]}
    left = given["at"]

    def killed(call: Callable[..., Any]) -> Callable[..., Any]:
        def instead(*words: Any, **named: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0 and given["before"]:
                os.kill(os.getpid(), signal.SIGKILL)
            found = call(*words, **named)
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return found

        return instead

    for owner, name in calls.get(given["phase"], ()):
        setattr(owner, name, killed(getattr(owner, name)))
    control, task_id = Control(), TaskId(given["connector"]["name"], 0)
    threading.Thread(target=lambda: (sys.stdin.read(), control.stop()), daemon=True).start()
    try:
        if is_sink:
            builder.sink(task_id, kind(), options, control).run()
        else:
            about = given["worker"], given["connector"]
            offsets = TopicOffsets(
                task_id.connector,
                builder.offsets_topic,
                client_config(*about, Client.CONSUMER, task_id, name="offsets-consumer"),
                client_config(*about, Client.PRODUCER, task_id, name="offsets-producer"),
            )
            builder.source(task_id, kind(), options, control, offsets).run()
    except Exception:
        traceback.print_exc()
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
