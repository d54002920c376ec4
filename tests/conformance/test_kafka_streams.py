"""Kafka Streams from Maven counts words over repartition and changelog topics, restores its state, and counts exactly
once.
"""

from __future__ import annotations

import random
import time
from collections import defaultdict
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from conformance.copying import committed_messages
from conformance.kafka_application import KafkaApplication
from conformance.targets import Target
from conformance.topics import create_topic
from conformance.wire import unique_name
from waiting import wait_until

pytestmark = pytest.mark.timeout(1800)

PARTITIONS = 2
WORDS = [f"word{number:02}" for number in range(20)]
TIMEOUT_S = 300.0


class Count:
    """The topics of the program, the words that were sent, and the counts that were written."""

    def __init__(self, broker: Target, directory: Path, guarantee: str) -> None:
        self._broker, self._guarantee = broker, guarantee
        self.name = unique_name("count")
        self.input = create_topic(broker, f"{self.name}-in", PARTITIONS)
        self.output = create_topic(broker, f"{self.name}-out", PARTITIONS)
        self.directory = directory
        self.sent: dict[str, int] = defaultdict(int)

    def application(self, state: str = "state") -> KafkaApplication:
        arguments = (self._broker.bootstrap, self.name, self.input, self.output)
        where = str(self.directory / state)
        return KafkaApplication(self.directory, "WordCount", *arguments, where, self._guarantee)

    def send(self, lines: int, dice: random.Random) -> None:
        producer = Producer({"bootstrap.servers": self._broker.bootstrap, "linger.ms": 5})
        for number in range(lines):
            words = dice.choices(WORDS, k=3)
            for word in words:
                self.sent[word] += 1
            producer.produce(self.input, " ".join(words), partition=number % PARTITIONS)
        assert producer.flush(TIMEOUT_S) == 0

    def counts(self) -> dict[str, list[int]]:
        """Every count that was committed, by word, in order."""
        found: dict[str, list[int]] = defaultdict(list)
        for message in committed_messages(self._broker.bootstrap, [self.output], PARTITIONS):
            found[message.key().decode()].append(int(message.value()))
        return found

    def wait_changes(self, more_than: int) -> None:
        wait_until(lambda: sum(map(len, self.counts().values())) > more_than, TIMEOUT_S)

    def wait_counted(self) -> None:
        try:
            wait_until(lambda: {w: max(c) for w, c in self.counts().items()} == self.sent, TIMEOUT_S)
        except AssertionError:
            seen = {word: max(counts) for word, counts in self.counts().items()}
            raise AssertionError(f"counted {seen}, where {dict(self.sent)} was sent") from None


def test_word_count_is_right_and_comes_back_from_its_changelog(broker: Target, tmp_path: Path) -> None:
    count = Count(broker, tmp_path, "at_least_once")
    dice = random.Random(1)
    count.send(200, dice)
    with count.application() as application:
        application.wait_said("RUNNING", TIMEOUT_S)
        count.wait_counted()
        application.finish()
        assert application.said("ENDED"), application.account()
    topics = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=60).topics
    assert f"{count.name}-words-repartition" in topics
    assert f"{count.name}-counts-changelog" in topics
    count.send(100, dice)
    with count.application("a directory without state") as application:
        application.wait_said("RUNNING", TIMEOUT_S)
        count.wait_counted()
        application.finish()
        restored = sum(int(line.split()[1]) for line in application.said(r"RESTORED \d+"))
    assert restored >= len(WORDS)
    assert {word: sorted(set(found)) for word, found in count.counts().items()} == {
        word: list(range(1, total + 1)) for word, total in count.sent.items()
    }


def test_an_exactly_once_application_that_is_killed_counts_every_word_once(
    broker: Target, tmp_path: Path
) -> None:
    """Every change of a count is written, so each word must have the counts 1, 2, 3 ... n, each once, in order."""
    count = Count(broker, tmp_path, "exactly_once_v2")
    dice = random.Random(2)
    for life in range(3):
        with count.application() as application:
            application.wait_said("RUNNING", TIMEOUT_S)
            count.send(400, dice)
            count.wait_changes(600 * life)
            time.sleep(dice.random() * 0.3)
            application.kill()
    with count.application() as application:
        application.wait_said("RUNNING", TIMEOUT_S)
        count.wait_counted()
        application.finish()
    assert count.counts() == {word: list(range(1, total + 1)) for word, total in count.sent.items()}
