"""Five members of a KIP-848 group, ours and librdkafka's, come and go while the broker is killed and started again.

    PYTHONPATH=tests python tests/conformance/group_kills.py KILLS SEED

Keeps true:  No partition has two owners at a time, by the callbacks of the members. After each round the members share
             all partitions evenly. Every record that was acknowledged is read. No member loses partitions: the broker
             is back before a session ends.
A record may be read again if its offset could not be committed before a partition moved; the last line counts them.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import confluent_kafka

from conformance.live_process import LiveProcess
from felice.client import AdminClient, Consumer, KafkaError, NewTopic, Producer
from waiting import LIMIT_S

TOPIC = "t"
PARTITIONS = 12
MEMBERS = 5
RECORDS = 600
OPTIONS = {
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.assignment.interval.ms": "0",
}
KINDS: tuple[Callable[..., Any], ...] = (Consumer, Consumer, confluent_kafka.Consumer)
# What a client may say while its broker is gone.
OUTAGE = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT, KafkaError._RESOLVE)


@dataclass
class Seen:
    """What happened to the members of the group."""

    owners: dict[int, object] = field(default_factory=dict)
    reads: Counter[bytes] = field(default_factory=Counter)
    moved: int = 0
    anomalies: list[str] = field(default_factory=list)

    def callbacks(self, name: str) -> dict[str, Callable[[Any, list[Any]], None]]:
        def on_assign(consumer: Any, partitions: list[Any]) -> None:
            for tp in partitions:
                self.moved += 1
                if tp.partition in self.owners:
                    self.anomalies.append(f"{tp.partition} of {self.owners[tp.partition]} is given to {name}")
                self.owners[tp.partition] = name

        def on_revoke(consumer: Any, partitions: list[Any]) -> None:
            for tp in partitions:
                if self.owners.pop(tp.partition, None) != name:
                    self.anomalies.append(f"{tp.partition} was not of {name}, which gives it up")

        def on_lost(consumer: Any, partitions: list[Any]) -> None:
            self.anomalies.append(f"{name} lost {sorted(tp.partition for tp in partitions)}")
            on_revoke(consumer, partitions)

        return {"on_assign": on_assign, "on_revoke": on_revoke, "on_lost": on_lost}


class Run:
    def __init__(self, directory: Path, seed: int) -> None:
        self._random = random.Random(seed)
        self._directory = directory
        self.broker = LiveProcess(directory / "data", options=OPTIONS)
        self.seen = Seen()
        self.members: list[Any] = []
        self._joined = 0
        self._written = 0
        config = {"bootstrap.servers": self.broker.bootstrap, "reconnect.backoff.max.ms": 500}
        with AdminClient(config) as admin:
            admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result(LIMIT_S)
        self._config = config
        self._producer = Producer(config)

    def end(self) -> None:
        for member in self.members:
            member.close()
        self._producer.close()
        self.broker.kill()

    def join(self) -> None:
        kind = self._random.choice(KINDS)
        name = f"{kind.__module__.partition('.')[0]}-{self._joined}"
        self._joined += 1
        member = kind(
            {
                **self._config,
                "group.id": "g",
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 200,
            }
        )
        member.subscribe([TOPIC], **self.seen.callbacks(name))
        self.members.append(member)

    def leave(self) -> None:
        self.members.pop(self._random.randrange(len(self.members))).close()

    def write(self) -> None:
        for _ in range(RECORDS):
            self._producer.produce(TOPIC, b"%d" % self._written, partition=self._written % PARTITIONS)
            self._written += 1

    def poll(self, until: Callable[[], bool], limit_s: float = LIMIT_S) -> bool:
        deadline = time.monotonic() + limit_s
        while not until():
            if time.monotonic() > deadline:
                return False
            for member in self.members:
                message = member.poll(0.005)
                error = None if message is None else message.error()
                if error is not None and error.code() not in OUTAGE:
                    self.seen.anomalies.append(str(error))
                elif message is not None and error is None:
                    self.seen.reads[message.value()] += 1
        return True

    def kill_broker(self) -> None:
        port = self.broker.port
        self.broker.kill()
        self.poll(lambda: False, self._random.uniform(0, 1))
        self.broker = LiveProcess(self._directory / "data", port, OPTIONS)

    def is_settled(self) -> bool:
        shares = [[tp.partition for tp in member.assignment()] for member in self.members]
        sizes = {len(share) for share in shares}
        return max(sizes) - min(sizes) <= 1 and sorted(chain(*shares)) == list(range(PARTITIONS))

    def settle(self) -> None:
        assert self._producer.flush(LIMIT_S) == 0
        done = self.poll(lambda: self.is_settled() and len(self.seen.reads) == self._written)
        if not done:
            state = [len(member.assignment()) for member in self.members]
            self.seen.anomalies.append(
                f"not settled: {state}, {len(self.seen.reads)} of {self._written} read"
            )

    def round(self) -> None:
        """Members come or go, and the broker is killed before, while or after the group rebalances."""
        self.write()
        while len(self.members) < 2 or (len(self.members) < MEMBERS and self._random.random() < 0.6):
            self.join()
        if len(self.members) > 2 and self._random.random() < 0.5:
            self.leave()
        self.poll(lambda: False, self._random.uniform(0, 1.5))
        self.kill_broker()
        self.settle()


def run(kills: int, seed: int, directory: Path) -> Seen:
    """Kill the broker so many times; return what happened."""
    group = Run(directory, seed)
    try:
        for _ in range(kills):
            group.round()
            if group.seen.anomalies:
                break
    finally:
        group.end()
    return group.seen


def main() -> None:
    kills = int(sys.argv[1])
    seed = random.randrange(1 << 30) if sys.argv[2] == "random" else int(sys.argv[2])
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        seen = run(kills, seed, Path(directory))
    again = sum(seen.reads.values()) - len(seen.reads)
    print(
        f"seed {seed}: {kills} kills in {time.monotonic() - began:.0f} s: {len(seen.reads)} records, "
        f"{again} read again, {seen.moved} partitions given"
    )
    sys.exit("\n".join(seen.anomalies) if seen.anomalies else 0)


if __name__ == "__main__":
    main()
