"""Exactly-once copies in the style of Kafka's TransactionalMessageCopier: one workload and one check for every client.

A copier consumes a topic, produces its records to the same partitions of another topic, and commits the offsets in the
same transaction. It aborts and repeats one transaction in eight. It prints READY, COPIED after each commit, DONE when
everything is copied, and STOPPED if SIGTERM ended it between two transactions. If it cannot continue, it exits with an
error code and is started again under the same names. Copiers and brokers are killed at random between and within
transactions. Afterwards the copy must hold each record exactly once, in the order of each partition, no transaction may
be open, and the group's offsets must be at the end.

Run as a script for the long version: `python tests/conformance/copying.py [CLIENT ...]`.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition

from conformance.live_process import LiveProcess
from conformance.topics import create_topic_over
from conformance.wire import Wire, unique_name
from felice.env.ports import free_ports
from felice.protocol.messages.list_transactions import ListTransactionsRequest
from peers.cache import PROGRAMS
from peers.golang import require_go_peer
from peers.java import java_command, require_java_programs
from waiting import wait_until

SETTINGS = {"group.initial.rebalance.delay.ms": "0", "transaction.state.log.num.partitions": "3"}
_JAVA_OPTIONS = ["-Xmx128m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"]


def _java() -> list[str]:
    programs = require_java_programs()
    return java_command("TransactionalCopier", first=[programs], options=_JAVA_OPTIONS)


def _python(program: str, *arguments: str) -> list[str]:
    return [sys.executable, str(PROGRAMS / "python" / program), *arguments]


CLIENTS: dict[str, Callable[[], list[str]]] = {
    "java": _java,
    "confluent-kafka": lambda: _python("copier.py", "confluent_kafka"),
    "aiokafka": lambda: _python("aiokafka_copier.py"),
    "franz-go": lambda: [str(require_go_peer()), "copy"],
    "felice": lambda: _python("copier.py", "felice.client"),
}


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is copied, and which processes are killed how often meanwhile."""

    records: int
    partitions: int
    transaction_size: int
    kills: int
    stops: int
    broker_kills: int = 0
    deadline_s: int = 450

    def events(self, dice: random.Random) -> list[tuple[str, int]]:
        """The order of kills and stops, each with the number of transactions since the previous one."""
        names = ["kill"] * self.kills + ["stop"] * self.stops + ["broker"] * self.broker_kills
        dice.shuffle(names)
        # Some are aborted and some done twice, so that there are never fewer than this.
        most = max(1, self.records // self.transaction_size // 2 // len(names))
        return [(name, dice.randint(1, most)) for name in names]


QUICK = Plan(records=3000, partitions=2, transaction_size=50, kills=1, stops=1)
QUICK_WITH_BROKER = Plan(records=3000, partitions=2, transaction_size=50, kills=1, stops=1, broker_kills=1)
FULL = Plan(
    records=100_000, partitions=4, transaction_size=750, kills=6, stops=3, broker_kills=4, deadline_s=900
)


@dataclass(slots=True)
class CopyRun:
    """What happened during a copy: runs of the program, transactions, kills and stops."""

    starts: int = 0
    transactions: int = 0
    done: Counter[str] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)

    @property
    def given_up(self) -> int:
        """Runs of the program that ended by themselves before everything was copied."""
        return self.starts - 1 - self.done["kill"] - self.done["stop"]

    def __str__(self) -> str:
        return (
            f"{self.transactions} transactions in {self.starts} starts: {self.done['kill']} kills, "
            f"{self.done['stop']} clean stops, {self.given_up} gave up; {self.done['broker']} broker kills"
        )


class Copier:
    """The program of one client: it is started again until everything is copied, and killed as planned."""

    def __init__(
        self, client: str, bootstrap: str, plan: Plan, seed: int, kill_broker: Callable[[], None]
    ) -> None:
        self.source, self.target = unique_name("source"), unique_name("target")
        self.name, self.group = unique_name("copier"), unique_name("group")
        names = (bootstrap, self.source, self.target, self.name, self.group, str(plan.transaction_size))
        self._command = [*CLIENTS[client](), *names]
        self._plan = plan
        self._dice = random.Random(seed)
        self._events = plan.events(self._dice)
        self._kill_broker = kill_broker
        self.outcome = CopyRun()

    def copy(self) -> CopyRun:
        until = time.monotonic() + self._plan.deadline_s
        while not self._run_once(until):
            gone = time.monotonic() > until or self.outcome.starts > 3 * len(self._events) + 10
            assert not gone, f"{self.outcome}; {self.outcome.errors}"
        assert not self._events, f"finished before {self._events}: {self.outcome}"
        return self.outcome

    def _run_once(self, until: float) -> bool:
        """Runs the program until it ends; returns whether everything is copied."""
        self.outcome.starts += 1
        process = subprocess.Popen(
            self._command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
        )
        assert process.stdout and process.stderr
        watchdog = threading.Timer(max(0.0, until - time.monotonic()), process.kill)
        watchdog.start()
        since, is_done, ending = 0, False, False
        with process:
            for line in process.stdout:
                is_done = is_done or line.strip() == "DONE"
                if line.startswith("COPIED"):
                    since += 1
                    self.outcome.transactions += 1
                    if not ending and self._events and since >= self._events[0][1]:
                        since = 0
                        ending = self._do(self._events.pop(0)[0], process)
            self.outcome.errors.append(process.stderr.read()[-500:])
        watchdog.cancel()
        return is_done

    def _do(self, event: str, process: subprocess.Popen[str]) -> bool:
        """Kills or stops a process as planned; returns whether this run of the program has ended."""
        self.outcome.done[event] += 1
        time.sleep(self._dice.random() * 0.02)  # somewhere within the next transaction
        if event == "kill":
            process.kill()
        elif event == "stop":
            process.terminate()
        else:
            self._kill_broker()
        return event != "broker"


def fill(bootstrap: str, topic: str, plan: Plan) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 10})
    for number in range(plan.records):
        producer.produce(topic, b"%06d" % number, partition=number % plan.partitions)
        producer.poll(0)
    assert producer.flush(120) == 0


def committed_messages(bootstrap: str, topics: Sequence[str], partitions: int) -> Iterator[Message]:
    """All committed records of topics with so many partitions, those of each partition in order."""
    options = {
        "bootstrap.servers": bootstrap,
        "group.id": "checker",
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }
    consumer = Consumer(options)
    places = [
        TopicPartition(topic, number, OFFSET_BEGINNING) for topic in topics for number in range(partitions)
    ]
    consumer.assign(places)
    ended = 0
    while ended < len(places):
        message = consumer.poll(60)
        assert message is not None, f"no record and no end of {', '.join(topics)} arrived in time"
        if message.error() is None:
            yield message
        else:
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            ended += 1
    consumer.close()


def read_all(bootstrap: str, topic: str, partitions: int) -> Iterator[tuple[int, bytes]]:
    for message in committed_messages(bootstrap, [topic], partitions):
        yield message.partition(), message.value()


def check_copy(bootstrap: str, copier: Copier, plan: Plan) -> None:
    found: dict[int, list[bytes]] = {number: [] for number in range(plan.partitions)}
    for partition, value in read_all(bootstrap, copier.target, plan.partitions):
        found[partition].append(value)
    for partition, values in found.items():
        expected = [b"%06d" % number for number in range(partition, plan.records, plan.partitions)]
        check_partition(partition, values, expected)
    wait_until(lambda: all(map(nothing_is_open, bootstrap.split(","))))
    assert committed(bootstrap, copier, plan.partitions) == [len(found[number]) for number in found]


def check_partition(partition: int, values: list[bytes], expected: list[bytes]) -> None:
    times = Counter(values)
    assert {value for value, count in times.items() if count > 1} == set(), f"partition {partition}: twice"
    assert set(expected) - set(times) == set(), f"partition {partition}: missing"
    assert set(times) - set(expected) == set(), f"partition {partition}: from elsewhere"
    assert values == expected, f"partition {partition} is out of order"


def committed(bootstrap: str, copier: Copier, partitions: int) -> list[int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": copier.group})
    rows = consumer.committed([TopicPartition(copier.source, number) for number in range(partitions)], 60)
    consumer.close()
    return [row.offset for row in rows]


def nothing_is_open(address: str) -> bool:
    """Whether this broker coordinates no open transaction."""
    wanted = ListTransactionsRequest(state_filters=["Ongoing", "PrepareCommit", "PrepareAbort"])
    try:
        with Wire(address) as wire:
            answer = wire.ask(wanted)
    except OSError:
        return False  # it was killed and starts again
    return answer.error_code == 0 and answer.transaction_states == []


def copy_exactly_once(
    client: str,
    bootstrap: str,
    plan: Plan,
    seed: int,
    kill_broker: Callable[[], None] = lambda: None,
    create_topic: Callable[[str, int], object] | None = None,
) -> CopyRun:
    """Runs the workload and checks the copy."""
    copier = Copier(client, bootstrap, plan, seed, kill_broker)
    for topic in (copier.source, copier.target):
        if create_topic is not None:
            create_topic(topic, plan.partitions)
            continue
        with Wire(bootstrap) as wire:
            create_topic_over(wire, topic, plan.partitions)
    fill(bootstrap, copier.source, plan)
    outcome = copier.copy()
    check_copy(bootstrap, copier, plan)
    return outcome


@contextmanager
def mortal_broker(data_dir: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    """A broker in its own process, and a function that kills it and starts it again at the same address."""
    running = LiveProcess(data_dir, *free_ports(1), options=SETTINGS)

    def kill() -> None:
        nonlocal running
        running.kill()
        running = LiveProcess(data_dir, running.port, SETTINGS)

    try:
        yield running.bootstrap, kill
    finally:
        running.kill()


def main() -> None:
    for client in sys.argv[1:] or CLIENTS:
        seed = random.randrange(1 << 32)
        with (
            tempfile.TemporaryDirectory() as directory,
            mortal_broker(Path(directory) / "data") as (bootstrap, kill),
        ):
            began = time.monotonic()
            outcome = copy_exactly_once(client, bootstrap, FULL, seed, kill)
            print(
                f"{client}: {FULL.records} records copied once in {time.monotonic() - began:.1f} s "
                f"(seed {seed}); {outcome}",
                flush=True,
            )


if __name__ == "__main__":
    main()
