"""Kills tasks of each connector in each phase of their work, and the servers at their other side.

`make connect-kills KILLS=20` kills so many times for each connector and phase; the tests do it once, for a few.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from conformance.connect_kill_cases import CASES, Case, Place
from felice.client import Consumer, Producer, TopicPartition
from felice.pipelines.connect.connectors.file import FileStreamSource, FileStreamSourceTask
from felice.pipelines.connect.model.errors import ConnectError
from felice.testing import Broker, felice_broker
from felice.testing.connectors import PHASES, ConnectorKit, TaskFailed

KILLS = int(os.environ.get("CONNECT_KILLS", "0"))
RECORDS = 300
WAIT_S = 120.0 + 20 * KILLS
AWAY_S = 1.0
"""How long a killed server is away at most."""
pytestmark = pytest.mark.timeout(max(180, KILLS * 300))


class Killed:
    """A connector whose task is started and killed again and again."""

    def __init__(self, case: Case, place: Place) -> None:
        self.case, self._place = case, place
        self._sent = 0
        self._config = {"name": case.name, "connector.class": case.name, **case.config(place)}
        if case.add is None:
            self._config |= {"topics": "numbers", "consumer.override.max.poll.records": "20"}
        self._kit = ConnectorKit(place.broker.bootstrap, self._config, directory=place.directory)

    def send(self, count: int) -> None:
        if self.case.add is not None:
            for number in range(self._sent, self._sent + count):
                self.case.add(self._place, number)
        else:
            with Producer({"bootstrap.servers": self._place.broker.bootstrap}) as producer:
                for number in range(self._sent, self._sent + count):
                    producer.produce("numbers", self._value(number))
                producer.flush()
        self._sent += count

    def _value(self, number: int) -> str:
        converter = self._config.get("value.converter", "")
        if not converter.endswith("JsonConverter"):
            return str(number)
        payload = {"id": number}
        if self._config["value.converter.schemas.enable"] == "false":
            return json.dumps(payload)
        schema = {"type": "struct", "fields": [{"field": "id", "type": "int32"}], "name": "v"}
        return json.dumps({"schema": schema, "payload": payload})

    def kill_in(self, phase: str) -> None:
        """A new process, killed in the phase: at one of its first calls, before or after the call."""
        self.send(60)  # three batches, so that there are so many calls
        self._kit.kill(phase, call=random.choice((1, 1, 2)), before=random.random() < 0.5, within_s=6)

    def kill_servers(self, times: int) -> None:
        """One process, whose server is killed and started again."""
        server = self.case.server(self._place.other)
        with self._kit.running() as process:
            for _ in range(times):
                self.send(60)
                time.sleep(random.uniform(0, 0.5))
                server.kill()
                time.sleep(random.uniform(0, AWAY_S))
                server.start()
                assert process.poll() is None, self._kit.log[-3000:]

    def check(self) -> None:
        with self._kit.running() as process:
            give_up_at = time.monotonic() + WAIT_S
            while set(found := self.case.arrived(self._place)) != set(range(self._sent)):
                assert process.poll() is None, self._kit.log[-3000:]
                missing = sorted(set(range(self._sent)) - set(found))
                assert time.monotonic() < give_up_at, f"missing: {missing[:20]}\n{self._kit.log[-2000:]}"
                time.sleep(0.3)
        twice = [number for number, count in Counter(found).items() if count > 1]
        assert not (self.case.once and twice), f"{len(twice)} records are there twice: {sorted(twice)[:20]}"
        print(f"{self.case.id}: {self._sent} records, {len(twice)} of them more than once")


@contextmanager
def started(case: Case, directory: Path) -> Iterator[Killed]:
    other = nullcontext() if case.other is None else case.other(directory)
    with felice_broker(topics=["numbers"]) as broker, other as server:
        killed = Killed(case, Place(directory, broker, server))
        killed.send(RECORDS)
        yield killed


@pytest.mark.parametrize("case", [one for one in CASES if KILLS or one.is_quick], ids=lambda case: case.id)
def test_nothing_is_lost_when_tasks_are_killed(case: Case, tmp_path: Path) -> None:
    with started(case, tmp_path) as killed:
        for phase in PHASES:
            for _ in range(KILLS or 1):
                killed.kill_in(phase)
        killed.check()


@pytest.mark.parametrize(
    "case",
    [one for one in CASES if one.other is not None and (KILLS or one.name in ("s3-sink", "http-sink"))],
    ids=lambda case: case.id,
)
def test_nothing_is_lost_when_servers_are_killed(case: Case, tmp_path: Path) -> None:
    with started(case, tmp_path) as killed:
        killed.kill_servers(KILLS or 2)
        killed.check()


class Broken(FileStreamSource):
    """Loses what it has read when it starts again."""

    @classmethod
    def task_class(cls) -> type[FileStreamSourceTask]:
        return BrokenTask


class BrokenTask(FileStreamSourceTask):
    def start(self, config: Mapping[str, str]) -> None:
        if "fails" in config:
            raise ConnectError("it never works")
        super().start(config)
        self._position = Path(config["file"]).stat().st_size


def test_the_kit_finds_a_connector_that_loses_records(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("".join(f"{number}\n" for number in range(100)))
    plugin = "conformance.test_connect_kills:Broken"
    config = {"name": "broken", "connector.class": "Broken", "file": f"{tmp_path}/in", "topic": "out"}
    with felice_broker(topics=["out"]) as broker:
        kit = ConnectorKit(broker.bootstrap, config, directory=tmp_path, plugin=plugin)
        kit.kill("write", before=True, within_s=3)
        with kit.running():
            time.sleep(2)
        assert _count(broker, "out") < 100
        with pytest.raises(ValueError, match="one of the phases"):
            kit.kill("sleep")
        failing = ConnectorKit(
            broker.bootstrap, {**config, "fails": "yes"}, directory=tmp_path, plugin=plugin
        )
        with pytest.raises(TaskFailed, match="it never works"):
            failing.kill("read")
        with pytest.raises(TaskFailed, match="it never works"), failing.running() as process:
            process.wait(30)


def _count(broker: Broker, topic: str) -> int:
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "g", "isolation.level": "read_committed"}
    with Consumer(settings) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        return sum(len(messages) for messages in iter(lambda: consumer.consume(1000, 0.5), []))
