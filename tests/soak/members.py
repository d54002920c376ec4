"""Groups whose members join, leave and are killed while a producer writes: every record reaches a member."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import confluent_kafka

from checkers.history import History, Read, Written, anomalies
from conformance.wire import unique_name
from soak.actor import Actor, passing, wait_until
from soak.clients import WAIT_S, Ledger, Topics, library_of, read_of

SESSION_TIMEOUT_MS = 6000
# Errors of a commit during a rebalance, and after another member got the partitions.
OVERTAKEN = ("REBALANCE", "GENERATION", "UNKNOWN_MEMBER", "NO_OFFSET")


def options_of(bootstrap: str, group: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": SESSION_TIMEOUT_MS,
        "heartbeat.interval.ms": 1000,
    }


class Member(threading.Thread):
    """Polls and commits until it leaves."""

    def __init__(self, package: Any, bootstrap: str, group: str, topic: str) -> None:
        super().__init__(daemon=True)
        self._package, self._topic = package, topic
        self._options = options_of(bootstrap, group)
        self._leaving = threading.Event()
        self.read: list[Read] = []
        self.failure: str | None = None

    def run(self) -> None:
        consumer = self._package.Consumer(self._options)
        consumer.subscribe([self._topic])
        try:
            while not self._leaving.is_set():
                came = [message for message in consumer.consume(200, 0.2) if message.error() is None]
                self.read += [read_of(message) for message in came]
                if came:
                    self._commit(consumer)
        except Exception as error:
            self.failure = f"a member of {self._package.__name__} failed: {error!r}"
        finally:
            consumer.close()

    def _commit(self, consumer: Any) -> None:
        try:
            consumer.commit(asynchronous=False)
        except Exception as error:
            if not any(name in str(error) for name in OVERTAKEN):
                raise

    def leave(self) -> None:
        self._leaving.set()
        self.join(WAIT_S)


class Victim:
    """A member in a process of its own, which is killed. It prints what it read before it commits."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("victim.py")), bootstrap, group, topic],
            stdout=subprocess.PIPE,
            text=True,
        )

    def kill(self) -> list[Read]:
        self._process.kill()
        said = self._process.communicate()[0]
        rows = [line.split() for line in said.splitlines(keepends=True) if line.endswith("\n")]
        return [Read(writer, int(n), int(p), int(offset)) for writer, n, p, offset in rows]


class Groups(Actor):
    name = "groups"
    PARTITIONS = 6

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._topics = Topics(bootstrap)
        self._dice = random.Random(14)

    def round(self, number: int, seconds: float) -> list[str]:
        topic = self._topics.create(unique_name("grouped"), self.PARTITIONS)
        group = f"group-{number % 4}"
        members = [self._join(number + n, group, topic) for n in range(2)]
        gone: list[Member] = []
        victim = Victim(self._bootstrap, group, topic)
        producer = confluent_kafka.Producer({"bootstrap.servers": self._bootstrap, "linger.ms": 5})
        ledger = Ledger(f"w-{number}")
        moments = passing(seconds * 0.6, 80)
        for count, moment in enumerate(moments):
            ledger.send(producer, topic, count, count % self.PARTITIONS)
            producer.poll(0)
            if count % (len(moments) // 3 or 1) == 0:
                gone.append(members.pop(0))
                gone[-1].leave()
                members.append(self._join(number + count, group, topic))
            wait_until(moment)
        killed = victim.kill()
        producer.flush(WAIT_S)
        everybody = [*gone, *members]
        faults = self._check(ledger.written(), everybody, killed)
        for member in members:
            member.leave()
        faults += [member.failure for member in everybody if member.failure]
        if number % 3 == 0:
            faults += self._delete(group)
        self._topics.delete(topic)
        return faults + ledger.failures

    def _delete(self, group: str) -> list[str]:
        """Delete a group. A killed member stays in it until its session ends."""
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            # A new client each time: an idle librdkafka client may wait for ever for a connection that it does not
            # open (2.16, state TRY_CONNECT, with Apache Kafka too).
            admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": self._bootstrap})
            try:
                admin.delete_consumer_groups([group])[group].result(WAIT_S)
                return []
            except confluent_kafka.KafkaException as error:
                if error.args[0].code() != confluent_kafka.KafkaError.NON_EMPTY_GROUP:
                    raise
                time.sleep(1)
        return [f"{group} still has a member {WAIT_S} s after the last one left"]

    def _join(self, number: int, group: str, topic: str) -> Member:
        member = Member(library_of(number).package, self._bootstrap, group, topic)
        member.start()
        return member

    def _check(self, written: list[Written], members: list[Member], killed: list[Read]) -> list[str]:
        """A record may reach several members (one left before it committed): each position counts once."""
        wanted = {(record.number, record.partition) for record in written if record.offset is not None}
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            read = {row for member in members for row in member.read} | set(killed)
            if wanted <= {(row.number, row.partition) for row in read}:
                break
            time.sleep(0.2)
        return anomalies(History(written, sorted(read, key=lambda row: (row.partition, row.offset))))
