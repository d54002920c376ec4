"""Load that records its acknowledgements: writers, members of a group, copies, and one final pass over everything."""

from __future__ import annotations

import random
import subprocess
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from checkers.history import Read, Written
from conformance.copying import CLIENTS

# Long enough for a machine under heavy load.
_PATIENCE_S = 120.0
_STOP_S = 300.0


class Writer(threading.Thread):
    """Sends numbered records until it is stopped, and records the acknowledgements."""

    def __init__(
        self,
        name: str,
        bootstrap: str,
        topic: str,
        partitions: int,
        codec: str,
        *,
        records_a_turn: int = 20,
        pause_s: float = 0.002,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(name=name)
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "compression.type": codec,
                "linger.ms": 1,
                "batch.num.messages": 200,
                # A broker that is killed again and again serves a small part of the time, the smaller the busier the
                # machine: records wait in a short queue, and are not given up.
                "message.timeout.ms": 1_500_000,
                "queue.buffering.max.messages": 10_000,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.ms": 50,
                "log_level": 0,
                **(options or {}),
            }
        )
        self._topic, self._partitions = topic, partitions
        self._records_a_turn, self._pause_s = records_a_turn, pause_s
        self._stopping = threading.Event()
        self.offsets: dict[tuple[int, int], int | None] = {}
        self.failures: list[KafkaError] = []

    def run(self) -> None:
        number = 0
        while not self._stopping.is_set():
            for _ in range(self._records_a_turn):
                self._send(number, number % self._partitions)
                number += 1
            self._producer.poll(0)
            self._stopping.wait(self._pause_s)
        self._producer.flush(_STOP_S)

    def _send(self, number: int, partition: int) -> None:
        self.offsets[number, partition] = None
        value = f"{self.name}:{number}:".encode().ljust(200, b".")
        while True:
            try:
                self._producer.produce(
                    self._topic, value, partition=partition, on_delivery=self._delivered(number)
                )
                return
            except BufferError:
                # While a broker is down the queue may fill up; queued records must not be lost.
                self._producer.poll(0.05)

    def _delivered(self, number: int):  # type: ignore[no-untyped-def]
        def keep(error: KafkaError | None, message: Message) -> None:
            if error is None:
                self.offsets[number, message.partition()] = message.offset()
            else:
                self.failures.append(error)

        return keep

    def stop(self) -> None:
        self._stopping.set()
        self.join(_STOP_S + 60)
        assert not self.is_alive()

    def written(self) -> list[Written]:
        return [Written(self.name, number, p, offset) for (number, p), offset in sorted(self.offsets.items())]


class GroupReader(threading.Thread):
    """A member of a group that reads, records and commits. It leaves and joins again on request."""

    def __init__(
        self, name: str, bootstrap: str, topic: str, group: str, options: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(name=name)
        self._options = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6_000,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
            **(options or {}),
        }
        self._topic = topic
        self._stopping = threading.Event()
        self._rejoining = threading.Event()
        self.seen: dict[tuple[int, int], tuple[str, int]] = {}
        self.gaps: list[str] = []

    def run(self) -> None:
        while not self._stopping.is_set():
            self._rejoining.clear()
            self._live()

    def _live(self) -> None:
        consumer = Consumer(self._options)
        positions: dict[int, int] = {}
        consumer.subscribe([self._topic], on_assign=lambda *_: positions.clear())
        try:
            while not self._stopping.is_set() and not self._rejoining.is_set():
                messages = [found for found in consumer.consume(500, 0.5) if found.error() is None]
                for message in messages:
                    self._note(message, positions)
                if messages:
                    self._commit(consumer)
        finally:
            consumer.close()

    def _note(self, message: Message, positions: dict[int, int]) -> None:
        """Within one assignment offsets follow each other, because no record of the topic is transactional."""
        partition, offset = message.partition(), message.offset()
        if offset != positions.get(partition, offset - 1) + 1:
            self.gaps.append(
                f"{self.name}: offset {offset} of partition {partition} after {positions[partition]}"
            )
        writer, number, _ = message.value().decode().split(":")
        self.seen[partition, offset] = (writer, int(number))
        positions[partition] = offset

    def _commit(self, consumer: Consumer) -> None:
        try:
            consumer.commit(asynchronous=False)
        except KafkaException:
            # A rebalance, or a coordinator that moves: records without a commit are read again.
            return

    def rejoin(self) -> None:
        self._rejoining.set()

    def stop(self) -> None:
        self._stopping.set()
        self.join(_STOP_S)
        assert not self.is_alive()


class Copying(threading.Thread):
    """Copies a topic in transactions with one client's program, which is killed now and then and started again."""

    def __init__(self, client: str, bootstrap: str, source: str, target: str, seed: int) -> None:
        super().__init__(name=f"copying-{client}")
        names = (f"copier-{client}", f"copiers-{client}", "50")
        self._command = [*CLIENTS[client](), bootstrap, source, target, *names]
        self._dice = random.Random(seed)
        self._stopping = threading.Event()
        self.lives = self.kills = self.transactions = 0
        self.last_words = ""

    def run(self) -> None:
        while not self._stopping.is_set():
            self._live(self._dice.uniform(5, 40))
            self._stopping.wait(0.5)

    def stop(self) -> None:
        """Call after the last write to the source: returns when everything is copied."""
        self._stopping.set()
        self.join(_STOP_S)
        deadline = time.monotonic() + 2 * _STOP_S
        while not self._live(_STOP_S):
            assert time.monotonic() < deadline, f"{self.name} did not finish: {self.last_words}"

    def _live(self, most_s: float) -> bool:
        """Run the program once; returns whether everything was copied. Kills it after `most_s` seconds."""
        self.lives += 1
        process = subprocess.Popen(
            self._command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        killer = threading.Timer(most_s, process.kill)
        killer.start()
        said, complaints = process.communicate()
        killer.cancel()
        self.kills += process.returncode == -9
        self.transactions += said.count("COPIED")
        self.last_words = complaints[-500:]
        return "DONE" in said.splitlines()


def copy_anomalies(name: str, source: Iterable[Read], target: Iterable[Read]) -> list[str]:
    """Differences between a copy and its source: every record once, in order."""
    faults = []
    sides = [list(source), list(target)]
    for partition in sorted({read.partition for read in sides[0]}):
        wanted, found = ([(r.writer, r.number) for r in side if r.partition == partition] for side in sides)
        if wanted != found:
            missing, extra = len(set(wanted) - set(found)), len(found) - len(set(found))
            faults.append(
                f"{name}: partition {partition} has {len(found)} records for {len(wanted)}: "
                f"{missing} are missing, {extra} stand twice"
                + ("" if missing or extra else ", and the order differs")
            )
    return faults


def reader_anomalies(readers: Iterable[GroupReader], read: Iterable[Read]) -> list[str]:
    """What a group read, compared with the log at the end: every record, no other, without gaps."""
    readers = list(readers)
    held = {(found.partition, found.offset): (found.writer, found.number) for found in read}
    faults = [gap for reader in readers for gap in reader.gaps]
    for reader in readers:
        faults += [
            f"phantom: {reader.name} saw {what} at {where}, where the log has {held.get(where)}"
            for where, what in reader.seen.items()
            if held.get(where) != what
        ]
    seen = set().union(*(reader.seen for reader in readers))
    return faults + [f"missed: no reader saw the record at {where}" for where in held if where not in seen]


def read_all(bootstrap: str, topic: str, partitions: int, isolation: str = "read_uncommitted") -> list[Read]:
    """One pass over every partition, from the beginning to the end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "checker",
            "enable.partition.eof": True,
            "isolation.level": isolation,
        }
    )
    consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(partitions)])
    found: list[Read] = []
    ended: set[int] = set()
    deadline = time.monotonic() + _PATIENCE_S
    while len(ended) < partitions:
        assert time.monotonic() < deadline, "nothing more comes, and no end"
        for message in consumer.consume(2000, 0.2):
            deadline = time.monotonic() + _PATIENCE_S
            if message.error() is None:
                writer, number, _ = message.value().decode().split(":")
                found.append(Read(writer, int(number), message.partition(), message.offset()))
            elif message.error().code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
    consumer.close()
    return found
