"""Runs tasks of Connect on threads of the test's process, against a broker."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from felice.client import Producer
from felice.pipelines.connect.connector.base import SinkTask, SourceTask
from felice.pipelines.connect.connector.contexts import Place
from felice.pipelines.connect.converters.headers import HeaderConverter
from felice.pipelines.connect.converters.json import JsonConverter
from felice.pipelines.connect.converters.plain import ByteArrayConverter, StringConverter
from felice.pipelines.connect.model.schema import Schema
from felice.pipelines.connect.storage.offset_records import key_text
from felice.pipelines.connect.task.control import Control
from felice.pipelines.connect.task.conversion import Conversion, Step
from felice.pipelines.connect.task.dead_letters import DeadLetters
from felice.pipelines.connect.task.sink import SinkLoop, SinkSettings
from felice.pipelines.connect.task.source import SourceLoop, SourceSettings
from felice.pipelines.connect.task.source_offsets import OffsetStore
from felice.pipelines.connect.task.source_transactions import Boundary, ExactlyOnceSourceLoop
from felice.pipelines.connect.task.tolerance import ErrorPolicy, Reporter, Tolerance
from felice.testing import Broker

TIMEOUT_S = 60.0


class MemoryOffsets:
    """Offsets of a source in memory."""

    def __init__(self) -> None:
        self._offsets: dict[str, Place] = {}

    def read(self, partitions: Sequence[Place]) -> list[Place | None]:
        return [self._offsets.get(key_text(one)) for one in partitions]

    def write(self, offsets: Sequence[tuple[Place, Place | None]]) -> None:
        for partition, offset in offsets:
            if offset is None:
                self._offsets.pop(key_text(partition), None)
            else:
                self._offsets[key_text(partition)] = dict(offset)


class RawHeaders(HeaderConverter):
    """A header converter that keeps bytes."""

    def to_header(self, name: str, schema: Schema | None, value: Any) -> bytes | None:
        return value if value is None or isinstance(value, bytes) else str(value).encode()

    def from_header(self, topic: str, name: str, data: bytes | None) -> tuple[Schema | None, Any]:
        return None, data


def text() -> StringConverter:
    return StringConverter(StringConverter.definitions.parse({}), is_key=False)


def raw() -> ByteArrayConverter:
    return ByteArrayConverter(ByteArrayConverter.definitions.parse({}), is_key=True)


def plain_json() -> JsonConverter:
    return JsonConverter(JsonConverter.definitions.parse({"schemas.enable": "false"}), is_key=False)


class Running:
    """A loop on a thread of its own."""

    def __init__(self, loop: SinkLoop | SourceLoop, control: Control, tolerance: Tolerance) -> None:
        self.loop, self.control, self.tolerance = loop, control, tolerance
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="task", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.loop.run()
        except BaseException as error:
            self.error = error

    def wait(self) -> BaseException | None:
        """What made the task fail, when it has ended."""
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive(), "the task did not end"
        return self.error

    def stop(self) -> None:
        """Stops the task, which must end without an error."""
        self.control.stop()
        error = self.wait()
        if error is not None:
            raise error


@contextmanager
def stopped_at_end(running: Running) -> Iterator[Running]:
    try:
        yield running
    except BaseException as error:
        if running.error is not None:
            error.add_note(f"the task had failed: {running.error!r}")
        raise
    finally:
        running.control.stop()
        running.wait()


def dead_letters(broker: Broker, topic: str, name: str) -> DeadLetters:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    return DeadLetters(producer, topic, name, 0, adds_headers=True)


def run_sink(
    broker: Broker,
    task: SinkTask,
    *topics: str,
    config: Mapping[str, str] | None = None,
    policy: ErrorPolicy | None = None,
    dead_letter_topic: str | None = None,
    steps: Sequence[Step] = (),
    value: Any = None,
    commit_interval_s: float = 0.2,
    name: str = "sink",
) -> Running:
    control = Control()
    letters = None
    reporters: list[Reporter] = []
    if dead_letter_topic is not None:
        letters = dead_letters(broker, dead_letter_topic, name)
        reporters.append(letters)
    tolerance = Tolerance(policy or ErrorPolicy(), reporters, control)
    settings = SinkSettings(
        topics,
        dict(config or {}),
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": f"connect-{name}",
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": "range",
            "topic.metadata.refresh.interval.ms": 500,
        },
        commit_interval_s,
    )
    conversion = Conversion(raw(), value or text(), RawHeaders(), steps, tolerance)
    return Running(SinkLoop(task, settings, conversion, tolerance, control, letters), control, tolerance)


def run_source(
    broker: Broker,
    task: SourceTask,
    *,
    config: Mapping[str, str] | None = None,
    policy: ErrorPolicy | None = None,
    steps: Sequence[Step] = (),
    offsets: OffsetStore | None = None,
    producer: Mapping[str, object] | None = None,
    reporters: Sequence[Reporter] = (),
    boundary: Boundary | None = None,
    interval_s: float = 0.2,
    commit_timeout_s: float = 5.0,
    topics: Any = None,
    dead_letter_topic: str | None = None,
) -> Running:
    control = Control()
    tolerance = Tolerance(policy or ErrorPolicy(), list(reporters), control)
    letters = None
    if dead_letter_topic is not None:
        letters = dead_letters(broker, dead_letter_topic, "source")
        tolerance.report_to(letters)
    given: dict[str, object] = {"bootstrap.servers": broker.bootstrap, **(producer or {})}
    if boundary is not None:
        given["transactional.id"] = "connect-cluster-source-0"
    settings = SourceSettings(dict(config or {}), given, interval_s, commit_timeout_s)
    conversion = Conversion(raw(), text(), RawHeaders(), steps, tolerance)
    arguments = (task, settings, conversion, tolerance, control, offsets or MemoryOffsets(), topics, letters)
    if boundary is None:
        return Running(SourceLoop(*arguments), control, tolerance)
    loop = ExactlyOnceSourceLoop(
        *arguments, connector="source", offsets_topic="offsets", boundary=boundary, interval_s=interval_s
    )
    return Running(loop, control, tolerance)
