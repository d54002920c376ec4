"""The program that `ConnectorKit` starts: one task, until a phase of its work, where its process kills itself.

Reads a line of JSON: `worker` and `connector` (options), `plugin` (`module:class`, or null), `phase` (or null), `call`
(the number of the call in that phase), `before` (or after it). Without a phase the task runs until standard input ends.
Exits with 3 if the task fails, with its trace on standard error.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any

from felice.client.confluent.consumer import Consumer
from felice.client.confluent.producer import Producer
from felice.pipelines.connect.configuration.worker import Client, client_config
from felice.pipelines.connect.connector.base import Connector, SinkTask
from felice.pipelines.connect.connector.contexts import Place
from felice.pipelines.connect.model.errors import ConnectError
from felice.pipelines.connect.model.tasks import TaskId
from felice.pipelines.connect.plugins import Kind, Plugin, Plugins
from felice.pipelines.connect.storage.offset_topic import TopicOffsets
from felice.pipelines.connect.task.building import TaskBuilder
from felice.pipelines.connect.task.control import Control
from felice.pipelines.connect.task.conversion import Conversion

_FAILED = 3
"""The exit code of a task that failed."""
_WITHIN_S = 60.0
_Calls = dict[str, list[tuple[Any, str]]]
"""The methods that are called in each phase."""
_SOURCE: _Calls = {
    "transform": [(Conversion, "of_source"), (Conversion, "of_sources")],
    "write": [(Producer, "produce"), (Producer, "produce_arrow")],
    "flush": [(Producer, "flush")],
    "commit": [(TopicOffsets, "write"), (Producer, "commit_transaction")],
}
_SINK: _Calls = {
    "read": [(Consumer, "consume")],
    "transform": [(Conversion, "of_message"), (Conversion, "of_messages")],
    "commit": [(Consumer, "commit")],
}


def main() -> int:
    """Runs the program."""
    given = json.loads(sys.stdin.readline())
    # The next process takes a killed one's place in the group of a sink at once.
    worker = {"consumer.group.instance.id": "task", **given["worker"]}
    config = given["connector"]
    builder = TaskBuilder(Plugins(_plugins(given["plugin"])), worker, config)
    kind: Any = builder.connector.task_class()
    is_sink = issubclass(kind, SinkTask)
    own: _Calls = (
        {"write": [(kind, "put")], "flush": [(kind, "pre_commit")]} if is_sink else {"read": [(kind, "poll")]}
    )
    _kill_in((_SINK if is_sink else _SOURCE) | own, given["phase"], given["call"], before=given["before"])
    control, task_id = Control(), TaskId(config["name"], 0)

    def opened() -> TopicOffsets:
        return _offsets(builder, worker, config, task_id)

    threading.Thread(target=_stop_at_end, args=(control,), daemon=True).start()
    try:
        options = _task_config(builder.connector(), config, _Context(opened))
        if is_sink:
            builder.sink(task_id, kind(), options, control).run()
        else:
            with closing(opened()) as offsets:
                builder.source(task_id, kind(), options, control, offsets).run()
    except Exception:
        traceback.print_exc()
        return _FAILED
    return 0


def _task_config(connector: Any, config: Mapping[str, str], context: _Context) -> Mapping[str, str]:
    """The configuration of the only task. Some connectors find the work for it only after a while."""
    connector.context = context
    connector.start(config)
    try:
        give_up_at = time.monotonic() + _WITHIN_S
        while not (found := connector.task_configs(1)):
            if time.monotonic() > give_up_at:
                raise ConnectError(f"the connector has made no configuration of a task in {_WITHIN_S:g} s")
            time.sleep(0.1)
        made: Mapping[str, str] = found[0]
        return made
    finally:
        connector.stop()


class _Context:
    """What the connector may ask (`SourceConnectorContext`). Its tasks do not change while one of them runs."""

    def __init__(self, opened: Callable[[], TopicOffsets]) -> None:
        self._opened = opened

    def request_task_reconfiguration(self) -> None:
        """Does nothing."""

    def fail(self, error: BaseException) -> None:
        """Ends the program."""
        traceback.print_exception(error)
        os._exit(_FAILED)

    def offset(self, partition: Place) -> Place | None:
        """The last committed offset."""
        with closing(self._opened()) as offsets:
            return offsets.read([partition])[0]


def _plugins(reference: str | None) -> list[Plugin] | None:
    """The connector that is named by its class, or None: the connectors of installed packages."""
    if reference is None:
        return None
    found: type[Connector] = Plugin(Kind.SOURCE, "", reference).load()
    kind = Kind.SINK if found.kind == Kind.SINK.text else Kind.SOURCE
    return [Plugin(kind, f"{found.__module__}.{found.__qualname__}", reference)]


def _kill_in(calls: _Calls, phase: str | None, call: int, *, before: bool) -> None:
    """Makes a call of a phase end this process."""
    left = call

    def killed(method: Callable[..., Any]) -> Callable[..., Any]:
        def instead(*words: Any, **named: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0 and before:
                os.kill(os.getpid(), signal.SIGKILL)
            found = method(*words, **named)
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return found

        return instead

    for owner, name in calls.get(phase or "", ()):
        setattr(owner, name, killed(getattr(owner, name)))


def _stop_at_end(control: Control) -> None:
    sys.stdin.read()
    control.stop()


def _offsets(
    builder: TaskBuilder, worker: Mapping[str, str], config: Mapping[str, str], task_id: TaskId
) -> TopicOffsets:
    return TopicOffsets(
        task_id.connector,
        builder.offsets_topic,
        client_config(worker, config, Client.CONSUMER, task_id, name="offsets-consumer"),
        client_config(worker, config, Client.PRODUCER, task_id, name="offsets-producer"),
    )


if __name__ == "__main__":
    sys.exit(main())
