"""Consume, process, produce, commit offsets in one transaction: killed at random, it leaves one copy of everything."""

from __future__ import annotations

import random
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

from conformance.live_process import LiveProcess
from conformance.targets import Target
from conformance.topics import create_topic, create_topic_over, wait_until
from conformance.wire import Wire, unique_name
from felice.protocol.messages.list_transactions import ListTransactionsRequest
from peers.java import java_command, require_java_programs

RECORDS = 4000
PARTITIONS = 2
SIZE = 50
DEADLINE_S = 120
SETTINGS = {"group.initial.rebalance.delay.ms": "0", "transaction.state.log.num.partitions": "3"}


class Copier:
    """The Java program, started again whenever it ends before everything is copied."""

    def __init__(self, bootstrap: str, source: str, target: str) -> None:
        programs = require_java_programs()
        name = unique_name("copier")
        self._command = java_command(
            "TransactionalCopier",
            *(bootstrap, source, target, name, f"group-{name}", str(SIZE)),
            first=[programs],
            options=["-Xmx128m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"],
        )
        self.lives = 0
        self.transactions = 0
        self.errors: list[str] = []

    def live(self, on_transaction: Callable[[subprocess.Popen[str], int], None]) -> bool:
        """One life; whether everything is copied at its end."""
        self.lives += 1
        process = subprocess.Popen(
            self._command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
        )
        assert process.stdout and process.stderr
        killer = threading.Timer(DEADLINE_S, process.kill)
        killer.start()
        here = 0
        is_done = False
        with process:
            for line in process.stdout:
                is_done = is_done or line.strip() == "DONE"
                if line.startswith("COPIED"):
                    here, self.transactions = here + 1, self.transactions + 1
                    on_transaction(process, here)
            self.errors.append(process.stderr.read()[-300:])
        killer.cancel()
        return is_done


def fill(bootstrap: str, topic: str) -> set[bytes]:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 10})
    values = [b"%06d" % number for number in range(RECORDS)]
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % PARTITIONS)
    assert producer.flush(30) == 0
    return set(values)


def read_all(bootstrap: str, topic: str, isolation: str) -> Iterator[tuple[int, bytes]]:
    options = {
        "bootstrap.servers": bootstrap,
        "group.id": "judge",
        "isolation.level": isolation,
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }
    consumer = Consumer(options)
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(PARTITIONS)])
    ended: set[int] = set()
    while len(ended) < PARTITIONS:
        message = consumer.poll(20)
        assert message is not None, "nothing more comes, and no end"
        if message.error() is None:
            yield message.partition(), message.value()
        else:
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            ended.add(message.partition())
    consumer.close()


def judge(bootstrap: str, source: str, target: str, values: set[bytes]) -> None:
    copied = list(read_all(bootstrap, target, "read_committed"))
    times = Counter(value for _, value in copied)
    assert {value for value, count in times.items() if count > 1} == set()
    assert set(times) == values
    by_partition = {number: [v for p, v in copied if p == number] for number in range(PARTITIONS)}
    for number, found in by_partition.items():
        assert found == sorted(found), f"partition {number} is out of order"


@pytest.mark.timeout(300)
def test_a_copier_that_is_killed_leaves_one_copy(broker: Target) -> None:
    source = create_topic(broker, unique_name("source"), PARTITIONS)
    target = create_topic(broker, unique_name("target"), PARTITIONS)
    values = fill(broker.bootstrap, source)
    copier = Copier(broker.bootstrap, source, target)
    dice = random.Random(20)
    kills = [dice.randint(1, 12) for _ in range(5)]

    def kill_sometimes(process: subprocess.Popen[str], here: int) -> None:
        if kills and here >= kills[0]:
            kills.pop(0)
            time.sleep(dice.random() * 0.02)  # somewhere within the next transaction
            process.kill()

    while not copier.live(kill_sometimes):
        assert copier.lives < 20, copier.errors
    assert not kills
    judge(broker.bootstrap, source, target, values)


@pytest.mark.felice_only
@pytest.mark.timeout(300)
def test_a_broker_that_is_killed_leaves_one_copy(tmp_path: Path) -> None:
    running = LiveProcess(tmp_path / "data", options=SETTINGS)
    port = running.port
    try:
        source, target = unique_name("source"), unique_name("target")
        with running.wire() as wire:
            for topic in (source, target):
                create_topic_over(wire, topic, PARTITIONS)
        values = fill(running.bootstrap, source)
        copier = Copier(running.bootstrap, source, target)
        dice = random.Random(21)
        kills = [dice.randint(2, 15) for _ in range(3)]

        def kill_broker(process: subprocess.Popen[str], here: int) -> None:
            nonlocal running
            if kills and here >= kills[0]:
                kills.pop(0)
                time.sleep(dice.random() * 0.02)
                running.kill()
                running = LiveProcess(tmp_path / "data", port, SETTINGS)

        while not copier.live(kill_broker):
            assert copier.lives < 20, copier.errors
        assert not kills
        judge(running.bootstrap, source, target, values)
        with Wire(running.bootstrap) as wire:
            wait_until(lambda: nothing_is_open(wire))
    finally:
        running.kill()


def nothing_is_open(wire: Wire) -> bool:
    answer = wire.ask(ListTransactionsRequest(state_filters=["Ongoing", "PrepareCommit", "PrepareAbort"]))
    return answer.error_code == 0 and answer.transaction_states == []
