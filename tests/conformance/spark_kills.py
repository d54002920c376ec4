"""The exactly-once copy of a topic by Spark, with drivers, commits, workers and brokers killed at random.

`python tests/conformance/spark_kills.py KILLS [SEED|random [MINUTES]]` runs until that many processes were killed and
everything is copied. After MINUTES it kills no more, and copies the rest. Then a read_committed consumer must find each
record once. A commit is killed at one of its requests, before the request is sent or after it was answered; every other
process is killed at a random moment.
"""

from __future__ import annotations

import contextlib
import math
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from confluent_kafka import Producer

from conformance.copying import mortal_broker, nothing_is_open, read_all
from conformance.topics import create_topic_over
from conformance.wire import Wire
from peers import java
from peers.cache import PROGRAMS
from waiting import wait_until

SOURCE, TARGET = "source", "copy"
PARTITIONS = 2
LAST_REQUEST = 26
"""A commit's requests, each counted before and after; with a higher number the commit survives."""
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"


@dataclass(frozen=True, slots=True)
class Plan:
    """`victims`: the kinds of process to kill, in this order, one after about `batches_between` batches."""

    victims: tuple[str, ...]
    batch_rows: int = 300
    batches_between: int = 2
    deadline_s: int = 800
    kills_for_s: float = math.inf

    @property
    def records(self) -> int:
        """Number of batches that is enough for the kills: a kill between two batches costs at most one of them."""
        return self.batch_rows * (len(self.victims) * self.batches_between + 4)


QUICK = Plan(("worker", "broker", "commit", "worker", "commit"))


def full(kills: int, seed: int, kills_for_s: float) -> Plan:
    dice = random.Random(seed)
    victims = dice.choices(("worker", "broker", "commit", "driver"), (40, 20, 30, 10), k=kills)
    return Plan(tuple(victims), deadline_s=60 + 45 * kills, kills_for_s=kills_for_s)


@dataclass(slots=True)
class KillRun:
    """What happened during a copy: kills, starts of the driver, batches, failures of the query."""

    killed: Counter[str] = field(default_factory=Counter)
    starts: int = 0
    batches: int = 0
    failures: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        killed = ", ".join(f"{count} {name}" for name, count in sorted(self.killed.items()))
        failed = f"{len(self.failures)} failures of the query"
        return f"killed: {killed}; {self.starts} starts of the driver, {self.batches} batches, {failed}"


class SparkCopy:
    """The copying program, which is started again until everything is copied."""

    def __init__(
        self, bootstrap: str, place: Path, plan: Plan, seed: int, kill_broker: Callable[[], None]
    ) -> None:
        self._bootstrap, self._place, self._plan = bootstrap, place, plan
        self._dice = random.Random(seed)
        self._left = list(plan.victims)
        self._kill_broker = kill_broker
        self._armed = False
        self._kills_end = math.inf
        self.outcome = KillRun()

    def run(self) -> KillRun:
        began = time.monotonic()
        until, self._kills_end = began + self._plan.deadline_s, began + self._plan.kills_for_s
        while not self._run_once(until):
            assert time.monotonic() < until, f"{self.outcome}; {self.outcome.failures[-3:]}"
            print(self.outcome, flush=True)
        is_cut_short = time.monotonic() >= self._kills_end
        assert not self._left or is_cut_short, f"finished before {self._left} were killed: {self.outcome}"
        return self.outcome

    def _run_once(self, until: float) -> bool:
        """Runs the driver until it ends; returns whether everything was copied."""
        self.outcome.starts += 1
        tasks = self._dice.choice(("0", "3"))
        program = [
            sys.executable,
            str(PROGRAMS / "python" / "spark_copier.py"),
            self._bootstrap,
            SOURCE,
            TARGET,
        ]
        errors = (self._place / "stderr").open("ab")
        process = subprocess.Popen(
            [*program, str(self._place), str(self._plan.batch_rows), tasks],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )
        assert process.stdout
        watchdog = threading.Timer(
            max(0.0, until - time.monotonic()), os.killpg, (process.pid, signal.SIGKILL)
        )
        watchdog.start()
        is_done, since, spark = False, 0, 0
        try:
            for line in process.stdout:
                word, _, rest = line.strip().partition(" ")
                is_done = is_done or word == "DONE"
                if word == "SPARK":
                    spark = int(rest)
                if word == "FAILED":
                    self.outcome.failures.append(rest)
                if word == "BATCH":
                    self.outcome.batches += 1
                    since += 1
                    # A commit with fewer requests than the chosen number has survived: the next one is tried.
                    self._armed = self._armed and (self._place / "die").exists()
                    if (
                        self._left
                        and time.monotonic() < self._kills_end
                        and not self._armed
                        and since >= self._dice.randint(1, self._plan.batches_between)
                    ):
                        since = 0
                        self._kill(self._left[0], spark, process.pid)
        finally:
            watchdog.cancel()
            # Workers of a killed driver continue for a moment. They may, but not after the test.
            if is_done or time.monotonic() >= until:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            process.stdout.close()
            errors.close()
        self._note_commit(is_done)
        return is_done

    def _kill(self, victim: str, spark: int, driver: int) -> None:
        time.sleep(self._dice.random() * 0.3)
        if victim == "commit":
            self._armed = True
            (self._place / "new").write_text(str(self._dice.randint(1, LAST_REQUEST)))
            (self._place / "new").rename(self._place / "die")
            return
        if victim == "worker" and not self._kill_worker(driver):
            return
        if victim == "broker":
            self._kill_broker()
        if victim == "driver":
            for pid in (spark, driver):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self._left.pop(0)
        self.outcome.killed[victim] += 1

    def _kill_worker(self, driver: int) -> bool:
        workers = python_workers(driver)
        for pid in self._dice.sample(workers, min(1, len(workers))):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                return True
        return False

    def _note_commit(self, is_done: bool) -> None:
        if not is_done and self._armed and not (self._place / "die").exists():
            self._left.pop(0)
            self.outcome.killed["commit"] += 1
        self._armed = False
        (self._place / "die").unlink(missing_ok=True)


def children_of(parent: int) -> list[int]:
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # The name in parentheses may hold spaces.
            if int(status.read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(status.parent.name))
    return found


def tree_of(root: int) -> list[int]:
    """A process and all that descend from it."""
    found = [root]
    for process in found:
        found += children_of(process)
    return found


def python_workers(root: int) -> list[int]:
    """The processes that run Python tasks of Spark below a process: children of PySpark's daemon."""
    found = []
    for pid in tree_of(root):
        with contextlib.suppress(OSError):
            parent = re.search(r"PPid:\s*(\d+)", Path(f"/proc/{pid}/status").read_text())
            if parent and _runs_daemon(pid) and _runs_daemon(int(parent[1])):
                found.append(pid)
    return found


def _runs_daemon(pid: int) -> bool:
    """Whether a process was forked, or started, for PySpark's daemon. The daemon's forks look like it."""
    process = Path(f"/proc/{pid}")
    name, command = (process / "comm").read_text().strip(), (process / "cmdline").read_bytes()
    return name == "pyspark.daemon" or b"-m\0pyspark.daemon" in command


def send_to_all(processes: list[int], number: signal.Signals) -> None:
    """Send a signal to each process that still runs."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)


def fill(bootstrap: str, records: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 10})
    for number in range(records):
        producer.produce(SOURCE, b"%08d" % number, b"k%d" % (number % 97), number % PARTITIONS)
        producer.poll(0)
    assert producer.flush(120) == 0


def check_copy(bootstrap: str, records: int) -> None:
    """Each record is in the copy once, and no transaction is open."""
    found = Counter(value for _, value in read_all(bootstrap, TARGET, PARTITIONS))
    twice = sorted(value for value, count in found.items() if count > 1)
    missing = sorted({b"%08d" % number for number in range(records)} - found.keys())
    assert not twice and not missing, f"{len(twice)} twice {twice[:5]}, {len(missing)} missing {missing[:5]}"
    assert len(found) == records
    wait_until(lambda: nothing_is_open(bootstrap))


def check_copy_by_java(bootstrap: str, records: int) -> None:
    """The same with Java's read_committed consumer."""
    arguments = ("--topic", TARGET, "--from-beginning", "--isolation-level", "read_committed")
    expected = Counter(f"{number:08d}" for number in range(records))
    # It ends when no record comes for this time. On a loaded machine the first may be late: then it reads again.
    for timeout_ms in ("15000", "120000"):
        limits = ("--timeout-ms", timeout_ms)
        done = java.run_tool(
            CONSOLE_CONSUMER, "--bootstrap-server", bootstrap, *arguments, *limits, timeout_s=300, check=False
        )
        found = Counter(done.stdout.split())
        if found == expected:
            return
    raise AssertionError((len(found), found - expected, done.stderr[-500:]))


def copy_under_kills(
    bootstrap: str, place: Path, plan: Plan, seed: int, kill_broker: Callable[[], None]
) -> KillRun:
    with Wire(bootstrap) as wire:
        for topic in (SOURCE, TARGET):
            create_topic_over(wire, topic, PARTITIONS)
    fill(bootstrap, plan.records)
    outcome = SparkCopy(bootstrap, place, plan, seed, kill_broker).run()
    check_copy(bootstrap, plan.records)
    return outcome


@contextlib.contextmanager
def workplace(directory: Path) -> Iterator[tuple[Path, str, Callable[[], None]]]:
    (place := directory / "spark").mkdir()
    with mortal_broker(directory / "data") as (bootstrap, kill):
        yield place, bootstrap, kill


def main() -> None:
    kills, chosen = int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "random"
    seed = random.randrange(1 << 32) if chosen == "random" else int(chosen)
    plan = full(kills, seed, 60 * float(sys.argv[3]) if len(sys.argv) > 3 else math.inf)
    with tempfile.TemporaryDirectory() as directory, workplace(Path(directory)) as (place, bootstrap, kill):
        print(f"seed {seed}: {plan.records} records, {kills} kills", flush=True)
        began = time.monotonic()
        outcome = copy_under_kills(bootstrap, place, plan, seed, kill)
        check_copy_by_java(bootstrap, plan.records)
        print(f"one copy of each record after {time.monotonic() - began:.0f} s; {outcome}", flush=True)


if __name__ == "__main__":
    main()
