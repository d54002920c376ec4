"""Many Apps in one query of Spark: each as if it were alone, while Apps come, go, stop, fail and are killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs Spark: pip install 'felice[spark]'")

from conformance.hosted import counting, filtering, fragile, twice
from conformance.targets import Target
from conformance.topics import create_topic
from conformance.wire import unique_name
from felice.client import Consumer, Producer, TopicPartition
from felice.pipelines.spark.mistakes import QueryError
from felice.pipelines.streams.on_spark.directory import CheckpointError
from felice.pipelines.streams.on_spark.host.host import Host, State
from felice.streams import App, TestDriver
from waiting import wait_until

pytestmark = pytest.mark.timeout(600)

PARTITIONS = 2
ROOT = Path(__file__).resolve().parents[2]
Order = tuple[str, int]
Pairs = dict[bytes | None, list[bytes | None]]


def orders(first: int, count: int) -> list[Order]:
    return [(f"c{number % 5}", number * 2 + number % 3) for number in range(first, first + count)]


def send(broker: Target, topic: str, given: list[Order]) -> None:
    with Producer({"bootstrap.servers": broker.bootstrap}) as producer:
        for key, amount in given:
            producer.produce(topic, json.dumps({"amount": amount}).encode(), key.encode())


def expected(app: App, topic: str, to: str, given: list[Order]) -> Pairs:
    driver = TestDriver(app)
    for key, amount in given:
        driver.send(topic, key, {"amount": amount})
    found: Pairs = defaultdict(list)
    for record in driver.read_bytes(to):
        found[record.key].append(record.value)
    return dict(found)


def written(broker: Target, topic: str) -> Pairs:
    found: Pairs = defaultdict(list)
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": "checker",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
    }
    with Consumer(settings) as consumer:
        for partition in range(PARTITIONS):
            consumer.assign([TopicPartition(topic, partition, 0)])
            while (message := consumer.poll(60)) is not None and message.error() is None:
                found[message.key()].append(message.value())
    return dict(found)


def wait_for(found: Callable[[], Any], wanted: Any) -> None:
    try:
        wait_until(lambda: found() == wanted, 60)
    except AssertionError:
        assert found() == wanted
        raise


@contextmanager
def driver(broker: Target, checkpoint: Path, name: str) -> Iterator[subprocess.Popen[str]]:
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tests'}"}
    program = [sys.executable, "-m", "conformance.hosted", broker.bootstrap, str(checkpoint), name]
    with subprocess.Popen(
        program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGKILL)


def put(process: subprocess.Popen[str], app: str) -> None:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(f"{app}\n")
    process.stdin.flush()
    assert process.stdout.readline().strip() == app


def test_each_app_is_as_if_it_were_alone(broker: Target, spark: Any, tmp_path: Path) -> None:
    name, checkpoint = unique_name("host"), tmp_path / "host"
    source, even, counts, sums, customers = (
        f"{name}-{topic}" for topic in ("orders", "even", "counts", "sums", "customers")
    )
    for topic in (source, even, counts, sums, customers):
        create_topic(broker, topic, partitions=PARTITIONS)

    def wanted(app: App, to: str, given: list[Order]) -> Pairs:
        return expected(app, source, to, given)

    given = orders(0, 30)
    send(broker, source, given)
    with driver(broker, checkpoint, name) as process:
        for app in ("filter", "count", "sum"):
            put(process, app)
        wait_for(lambda: written(broker, sums), wanted(fragile(name), sums, given))
        poison = [("c1", 13), ("c2", 4)]
        send(broker, source, poison)
        given += poison
        # The failure of one App stops no other.
        wait_for(lambda: written(broker, even), wanted(filtering(name), even, given))
        wait_for(lambda: written(broker, counts), wanted(counting(name), counts, given))
        more = orders(100, 10)
        send(broker, source, more)
        given += more
        put(process, "twice")
        # Right after a new plan, with a batch that runs.
        process.send_signal(signal.SIGKILL)

    host = Host(broker.bootstrap, checkpoint, spark=spark)
    host.start()
    try:
        _after_the_kill(host, broker, name, given, wanted)
    finally:
        host.stop()


def _after_the_kill(
    host: Host, broker: Target, name: str, given: list[Order], wanted: Callable[..., Pairs]
) -> None:
    source, even, counts, sums, customers = (
        f"{name}-{topic}" for topic in ("orders", "even", "counts", "sums", "customers")
    )
    wait_for(lambda: written(broker, even), wanted(filtering(name), even, given))
    wait_for(lambda: written(broker, counts), wanted(counting(name), counts, given))
    wait_for(
        lambda: {key: values[-1:] for key, values in written(broker, customers).items()},
        {key: values[-1:] for key, values in wanted(twice(name), customers, given).items()},
    )
    states = host.states()
    assert states[f"{name}-sum"].state is State.ERROR
    assert "thirteen" in str(states[f"{name}-sum"].error)
    assert f"{source}-" in str(states[f"{name}-sum"].error)
    assert states[f"{name}-count"].state is State.RUNNING

    # A paused App keeps its place, and goes on there.
    host.pause(f"{name}-count")
    so_far = written(broker, counts)
    more = orders(200, 10)
    send(broker, source, more)
    given = given + more
    wait_for(lambda: written(broker, even), wanted(filtering(name), even, given))
    assert written(broker, counts) == so_far
    assert host.states()[f"{name}-count"].state is State.PAUSED
    host.resume(f"{name}-count")
    wait_for(lambda: written(broker, counts), wanted(counting(name), counts, given))

    # Resumed, the App fails again; a version that can process the record goes on with the state from before it.
    host.resume(f"{name}-sum")
    wait_until(lambda: host.states()[f"{name}-sum"].state is State.ERROR, 60)
    host.put(fragile(name, repaired=True))
    wait_for(lambda: written(broker, sums), wanted(fragile(name, repaired=True), sums, given))

    # A version with other stores is refused.
    other = App(f"{name}-count")
    other.stream(source).group_by_key().count(name="others").to_stream().to(counts)
    with pytest.raises(
        CheckpointError, match="belongs to another version of this application, with other stores"
    ):
        host.put(other)

    # An App that was dropped and put again begins anew.
    host.drop(f"{name}-count")
    assert f"{name}-count" not in host.states()
    before = written(broker, counts)
    host.put(counting(name))
    again = wanted(counting(name), counts, given)
    wait_for(lambda: written(broker, counts), {key: before[key] + again[key] for key in before})
    assert {one.state for one in host.states().values()} == {State.RUNNING}


def test_an_app_whose_topic_is_missing_is_refused(strict_broker: Target, spark: Any, tmp_path: Path) -> None:
    name = unique_name("host")
    source, even = f"{name}-orders", f"{name}-even"
    host = Host(strict_broker.bootstrap, tmp_path / "host", spark=spark, partitions=2)
    with pytest.raises(QueryError, match=f"topic {even} cannot be written"):
        host.put(filtering(name))
    create_topic(strict_broker, even, partitions=PARTITIONS)
    with pytest.raises(QueryError, match=f"cannot read {source}: no such topic"):
        host.put(filtering(name))
    create_topic(strict_broker, source, partitions=PARTITIONS)
    with pytest.raises(CheckpointError, match="the host is not started"):
        host.put(filtering(name))
