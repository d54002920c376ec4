"""Payments between accounts by `felice run`, with drivers, Java, workers, brokers and stores killed at random.

`python tests/conformance/streams_kills.py KILLS SEED AT` runs until that many processes were killed and every payment
is booked. Payments arrive all the time, so that there is always a batch to interrupt. Then a read_committed consumer
must find each payment's two entries once, the balances must be those of the entries, and their sum must be 0.

AT is where the checkpoint is: `local` for a directory, `s3` or `hdfs` for a server of this machine. Then a driver that
was killed is replaced as if by another machine, in an empty directory. `cluster` is `s3` with a cluster of Spark whose
workers see nothing of the drivers' directories.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from confluent_kafka import Producer

from conformance.copying import committed_messages, mortal_broker, nothing_is_open
from conformance.spark_cluster import cluster
from conformance.spark_kills import tree_of
from conformance.topics import create_topic_over
from conformance.wire import Wire
from felice.env.variables import changed
from felice.pipelines.streams.on_spark.directory import Checkpoint
from peers.cache import PROGRAMS
from peers.hdfs import running_hdfs
from peers.objects import BUCKET, running_store
from waiting import wait_until

PARTITIONS, ACCOUNTS = 2, 50
PAYMENTS_PER_S = 200
PROGRAM = PROGRAMS / "python" / "transfer.py"
VICTIMS = {"worker": 40, "broker": 20, "java": 15, "driver": 15, "all": 10}
"""Kinds of process, and how often each is chosen. "all" are driver, Java and workers at once. A "store" is HDFS."""
PLACES = "local", "s3", "hdfs", "cluster"
RUN_STARTS_WITHIN_S = 300.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What to kill, one after another, each at most `pause_s` after the batch that it waits for."""

    victims: tuple[str, ...]
    pause_s: float = 3.0


def full(kills: int, seed: int, at: str) -> Plan:
    dice = random.Random(seed)
    chosen = VICTIMS | ({"store": 15} if at == "hdfs" else {})
    return Plan(tuple(dice.choices(list(chosen), list(chosen.values()), k=kills)))


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Where the application runs, and what can be killed there."""

    bootstrap: str
    place: Path
    kill_broker: Callable[[], None]
    location: str | None = None
    """The address of the checkpoint; None for a directory."""
    kill_store: Callable[[], None] | None = None
    # A task whose worker is killed runs again, up to four times.
    master: str = "local[2,4]"
    spark_workers: tuple[int, ...] = ()
    """The processes of a cluster of Spark."""


@dataclass(slots=True)
class KillRun:
    """What happened: kills, starts, and the reasons of runs that failed."""

    killed: Counter[str] = field(default_factory=Counter)
    starts: int = 0
    failures: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        killed = ", ".join(f"{count} {name}" for name, count in sorted(self.killed.items()))
        failed = "; ".join(f"{count} x {reason}" for reason, count in self.failures.most_common(5))
        return f"killed: {killed}; {self.starts} starts; failures: {failed or 'none'}"


class Payments:
    """A thread that makes payments until it is stopped."""

    def __init__(self, bootstrap: str, seed: int) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
        self._dice = random.Random(seed)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._pay)
        self.count = 0

    def __enter__(self) -> Payments:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()
        assert self._producer.flush(120) == 0

    def _pay(self) -> None:
        while not self._stopped.wait(0.1):
            for _ in range(PAYMENTS_PER_S // 10):
                source, target = self._dice.sample(range(ACCOUNTS), 2)
                payment = {
                    "id": self.count,
                    "from": f"a{source}",
                    "to": f"a{target}",
                    "amount": self._dice.randint(1, 100),
                }
                self._producer.produce("payments", json.dumps(payment), partition=self.count % PARTITIONS)
                self.count += 1
            self._producer.poll(0)


class Transfer:
    """`felice run`, which is started again until nothing is left to kill."""

    def __init__(self, around: Surroundings, plan: Plan, seed: int) -> None:
        self._around, self._plan = around, plan
        self._left = list(plan.victims)
        self._dice = random.Random(seed)
        self._machine = 0
        self._directory = around.place / "machine-0"
        self._directory.mkdir()
        self.outcome = KillRun()

    @property
    def _checkpoint(self) -> Checkpoint:
        return Checkpoint(self._directory / "transfer-checkpoint")

    def _move(self) -> None:
        """Go on with another machine's disk, unless the checkpoint is only on this one."""
        if self._around.location is not None:
            self._machine += 1
            self._directory = self._around.place / f"machine-{self._machine}"
            self._directory.mkdir()

    def kill_all(self) -> None:
        while self._left:
            with self._started() as process:
                self._interrupt(process)

    def finish(self) -> None:
        """Run until everything is booked."""
        self._move()
        for _ in range(10):
            with self._started("--until-caught-up") as process:
                if process.wait(600) == 0:
                    return
        raise AssertionError(f"it did not finish: {self.outcome}")

    @contextlib.contextmanager
    def _started(self, *options: str) -> Iterator[subprocess.Popen[bytes]]:
        self.outcome.starts += 1
        given = {
            "--master": self._around.master,
            "--bootstrap-server": self._around.bootstrap,
            "--checkpoint": self._around.location or str(self._checkpoint.path),
        }
        command = [str(Path(sys.executable).with_name("felice")), "run", str(PROGRAM), *options]
        command += [word for pair in given.items() for word in pair]
        with (self._around.place / "stderr").open("ab") as errors:
            begin = errors.tell()
            process = subprocess.Popen(command, stderr=errors, start_new_session=True, cwd=self._directory)
            try:
                yield process
            finally:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                process.wait()
        self._note_failure(process.returncode, begin)

    def _note_failure(self, code: int, begin: int) -> None:
        if code in (0, -signal.SIGKILL):
            return
        told = (
            (self._around.place / "stderr").read_bytes()[begin:].decode(errors="replace").strip().splitlines()
        )
        self.outcome.failures[told[-1][:200] if told else "nothing told"] += 1
        assert code == 1, f"exit code {code}: {told[-5:]}"

    def _interrupt(self, process: subprocess.Popen[bytes]) -> None:
        """Kill processes until the run ends by itself or by a kill."""
        while self._left and process.poll() is None:
            before = self._batch()
            until = time.monotonic() + RUN_STARTS_WITHIN_S
            while process.poll() is None and self._batch() == before:
                assert time.monotonic() < until, f"no batch in {RUN_STARTS_WITHIN_S} s: {self.outcome}"
                time.sleep(0.05)
            time.sleep(self._dice.random() * self._plan.pause_s)
            if process.poll() is None and self._kill(self._left[0], process):
                self.outcome.killed[self._left.pop(0)] += 1

    def _kill(self, victim: str, driver: subprocess.Popen[bytes]) -> bool:
        around = self._around
        if victim == "broker":
            around.kill_broker()
            return True
        if victim == "store" and around.kill_store is not None:
            around.kill_store()
            return True
        java = self._java()
        # Those that were forked, those that Java started for them, and the one that is forked.
        workers = [pid for pid in tree_of(driver.pid) if pid not in (driver.pid, java)]
        workers += [pid for worker in around.spark_workers for pid in tree_of(worker)[1:]]
        if java is None or not workers:
            return False
        victims = {
            "worker": [self._dice.choice(workers)],
            "java": [java],
            "driver": [driver.pid],
            "all": [driver.pid, java, *workers],
        }[victim]
        for pid in victims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if victim != "worker":
            driver.wait(120)
            self._move()
        return True

    def _batch(self) -> int:
        return int(self._checkpoint.progress().get("batch", -1))

    def _java(self) -> int | None:
        holder = json.loads((self._checkpoint.directory / "lock").read_text())
        return int(holder["java"][0]) if holder["java"] else None


def read_topic(bootstrap: str, topic: str) -> Iterator[tuple[str, Any]]:
    for message in committed_messages(bootstrap, [topic], PARTITIONS):
        yield message.key().decode(), json.loads(message.value())


def check(ledger: list[tuple[str, Any]], balances: list[tuple[str, Any]], payments: int) -> None:
    """Each payment is booked once on both sides, and balances are the sums of the entries."""
    booked = Counter((entry["id"], entry["amount"] > 0) for _, entry in ledger)
    twice = [payment for payment, count in booked.items() if count > 1]
    missing = {(number, side) for number in range(payments) for side in (False, True)} - booked.keys()
    assert not twice and not missing, (
        f"{len(twice)} twice {twice[:5]}, {len(missing)} missing {sorted(missing)[:5]}"
    )
    totals: Counter[str] = Counter()
    for account, entry in ledger:
        totals[account] += entry["amount"]
    last = dict(balances)
    wrong = {name: (last.get(name), totals[name]) for name in totals if last.get(name) != totals[name]}
    assert not wrong, wrong
    assert last.keys() == totals.keys(), last.keys() ^ totals.keys()
    assert sum(last.values()) == 0, sum(last.values())
    changes, entries = (Counter(account for account, _ in rows) for rows in (balances, ledger))
    assert changes == entries, "an account has not one change of its balance for each entry"


def transfer_under_kills(around: Surroundings, plan: Plan, seed: int) -> tuple[KillRun, int]:
    bootstrap = around.bootstrap
    with Wire(bootstrap) as wire:
        for topic in ("payments", "ledger", "balances"):
            create_topic_over(wire, topic, PARTITIONS)
    transfer = Transfer(around, plan, seed)
    with Payments(bootstrap, seed) as payments:
        transfer.kill_all()
    transfer.finish()
    check(list(read_topic(bootstrap, "ledger")), list(read_topic(bootstrap, "balances")), payments.count)
    wait_until(lambda: nothing_is_open(bootstrap))
    return transfer.outcome, payments.count


@contextlib.contextmanager
def surroundings(directory: Path, at: str) -> Iterator[Surroundings]:
    (place := directory / "run").mkdir()
    with mortal_broker(directory / "data") as (bootstrap, kill), contextlib.ExitStack() as stack:
        around = Surroundings(bootstrap, place, kill)
        if at in ("s3", "cluster"):
            # The server of this machine takes any login.
            login = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
            stack.enter_context(changed(login))
            host = stack.enter_context(running_store()).url.removeprefix("http://")
            location = f"s3://{BUCKET}/transfer?endpoint_override={host}&scheme=http&region=us-east-1"
            around = replace(around, location=location)
        if at == "hdfs":
            (directory / "hdfs").mkdir()
            hdfs = stack.enter_context(running_hdfs(directory / "hdfs"))

            def kill_hdfs() -> None:
                hdfs.kill()
                hdfs.start()

            around = replace(around, location=f"{hdfs.url}/transfer", kill_store=kill_hdfs)
        if at == "cluster":
            (directory / "spark").mkdir()
            master, workers = stack.enter_context(cluster(directory / "spark", memory="1100m", hidden=place))
            around = replace(around, master=master, spark_workers=tuple(worker.pid for worker in workers))
        yield around


def main() -> None:
    kills, chosen, at = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    seed = random.randrange(1 << 32) if chosen == "random" else int(chosen)
    print(f"seed {seed}: {kills} kills, checkpoint: {at}", flush=True)
    with tempfile.TemporaryDirectory() as directory, surroundings(Path(directory), at) as around:
        began = time.monotonic()
        outcome, payments = transfer_under_kills(around, full(kills, seed, at), seed)
        took_s = time.monotonic() - began
        print(
            f"{payments} payments booked once, sum of balances 0, after {took_s:.0f} s; {outcome}", flush=True
        )


if __name__ == "__main__":
    main()
