"""Persistent queries of the SQL server, with servers, Java, workers and brokers killed at random under load.

`python tests/conformance/sql_kills.py KILLS SEED BROKERS` runs two servers with one service id until that many
processes were killed. Records arrive all the time, so that there is always a batch to interrupt. Then each result
topic, read with read_committed, must have what the offline runner makes of the same records, once each, and the tables
of both servers must have the newest row of each key.

BROKERS is 1, a process that is killed and started again, or 3, in this process, of which one at a time ends as if it
was killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import httpx2
from confluent_kafka import Producer

from conformance.copying import committed_messages, mortal_broker, nothing_is_open
from conformance.spark_kills import tree_of
from conformance.sql_process import SqlProcess
from felice.pipelines.sql.functions import built_in
from felice.pipelines.sql.offline.statements import Statements
from felice.pipelines.sql.offline.topics import Topics
from felice.pipelines.streams.on_spark.directory import Checkpoint
from felice.pipelines.streams.task import TopicRecord
from felice.testing import Cluster
from waiting import wait_until

PARTITIONS, PEOPLE = 2, 20
RECORDS_PER_S = 100
VICTIMS = {"server": 25, "all": 15, "java": 15, "worker": 25, "broker": 15, "standby": 5}
"""What is killed, and how often each is chosen. "server" is the one that leads, and Spark's driver; "all" are that
server, its Java and its workers.
"""
LIMIT_S = 400.0
"""For one step: Spark starts, on a machine that is busy."""
FAR_MS = 50 * 60 * 1000
"""After the last record time goes on by so much: windows close. Brokers take no records from further ahead."""

Pairs = Mapping[bytes | None, Sequence[bytes | None]]


class Kind(Enum):
    """What of a result does not depend on which records came in one batch."""

    EACH = "all records of a key, in any order"
    ORDER = "all records of a key, in order"
    COUNT = "the number of records of a key, and the last one"
    LAST = "the last record of a key"


SOURCES = ("users", "most", "pay", "refunds")
RESULTS = {
    "big": Kind.ORDER,
    "located": Kind.ORDER,
    "totals": Kind.ORDER,
    "windows": Kind.ORDER,
    "finals": Kind.ORDER,
    "of_big": Kind.ORDER,
    "booked": Kind.EACH,
    "returned": Kind.EACH,
    "amounts": Kind.COUNT,
    "balances": Kind.COUNT,
    "judged": Kind.LAST,
    "towns": Kind.LAST,
}
WITH = "WITH (kafka_topic = '{0}', value_format = 'JSON', partitions = 2)"
SET = "SET 'auto.offset.reset' = 'earliest';"
STATEMENTS = f"""
CREATE TABLE users (id STRING PRIMARY KEY, town STRING) {WITH.format("users")};
CREATE TABLE most (id STRING PRIMARY KEY, most INT) {WITH.format("most")};
CREATE STREAM pay (who STRING KEY, id INT, amt INT) {WITH.format("pay")};
CREATE STREAM refunds (who STRING KEY, id INT, amt INT) {WITH.format("refunds")};
CREATE STREAM booked (who STRING KEY, id INT, amt INT, kind STRING) {WITH.format("booked")};
CREATE STREAM big {WITH.format("big")} AS SELECT who, id, amt FROM pay WHERE amt >= 50;
CREATE STREAM located {WITH.format("located")} AS
  SELECT p.who AS who, p.id AS id, u.town AS town FROM pay p JOIN users u ON p.who = u.id;
CREATE TABLE totals {WITH.format("totals")} AS SELECT who, COUNT(*) AS n, SUM(amt) AS total FROM pay GROUP BY who;
CREATE TABLE windows {WITH.format("windows")} AS
  SELECT who, COUNT(*) AS n, SUM(amt) AS total FROM pay WINDOW TUMBLING (SIZE 5 SECONDS) GROUP BY who;
CREATE TABLE finals {WITH.format("finals")} AS SELECT who, COUNT(*) AS n, SUM(amt) AS total FROM pay
  WINDOW TUMBLING (SIZE 5 SECONDS, GRACE PERIOD 20 MINUTES) GROUP BY who EMIT FINAL;
CREATE TABLE of_big {WITH.format("of_big")} AS SELECT who, COUNT(*) AS n, SUM(amt) AS total FROM big GROUP BY who;
INSERT INTO booked SELECT who, id, amt, 'pay' AS kind FROM pay WHERE amt < 50;
INSERT INTO booked SELECT who, id, 0 - amt AS amt, 'refund' AS kind FROM refunds;
CREATE STREAM returned {WITH.format("returned")} AS SELECT p.id AS id, p.amt AS amt, r.amt AS back
  FROM pay p JOIN refunds r WITHIN 2 HOURS ON p.id = r.id;
CREATE TABLE amounts {WITH.format("amounts")} AS SELECT amt, COUNT(*) AS n FROM pay GROUP BY amt;
CREATE TABLE balances {WITH.format("balances")} AS
  SELECT who, COUNT(*) AS n, SUM(amt) AS total FROM booked GROUP BY who;
CREATE TABLE judged {WITH.format("judged")} AS
  SELECT t.who AS who, t.total AS total, m.most AS most FROM totals t JOIN most m ON t.who = m.id;
CREATE TABLE towns {WITH.format("towns")} AS SELECT most, COUNT(*) AS n FROM most GROUP BY most;
"""
FRAGILE = """
CREATE TABLE fragile WITH (kafka_topic = 'fragile') AS
  SELECT who, SUM(CAST(amt * 100 AS DECIMAL(4, 0))) AS total FROM refunds GROUP BY who;
"""
"""A query that fails at some record for ever. It must not stop the others, and leave no trace in what it retries."""
TABLES = ("totals", "of_big", "amounts", "balances", "judged")


def differences(kind: Kind, found: Pairs, wanted: Pairs) -> list[str]:
    """What is wrong with the records of a result."""
    told = [f"key {key!r} is not wanted" for key in found.keys() - wanted.keys()]
    for key, expected in wanted.items():
        own = found.get(key, ())
        match kind:
            case Kind.EACH:
                more, fewer = Counter(own) - Counter(expected), Counter(expected) - Counter(own)
                if more or fewer:
                    told.append(f"key {key!r}: too often {list(more)[:3]}, missing {list(fewer)[:3]}")
            case Kind.ORDER:
                if list(own) != list(expected):
                    at = next((i for i, (a, b) in enumerate(zip(own, expected, strict=False)) if a != b), -1)
                    told.append(
                        f"key {key!r}: {len(own)} records instead of {len(expected)}, the first other one at {at}"
                    )
            case Kind.COUNT if len(own) != len(expected):
                told.append(f"key {key!r}: {len(own)} records instead of {len(expected)}")
            case _ if list(own[-1:]) != list(expected[-1:]):
                told.append(f"key {key!r}: the last is {list(own[-1:])} instead of {list(expected[-1:])}")
    return told


def expected(given: Sequence[TopicRecord]) -> dict[str, Pairs]:
    """What the offline runner makes of the records."""
    statements = Statements(built_in(), {}, Topics())
    statements.execute(SET + STATEMENTS)
    statements.run_queries(given)
    return {
        name: by_key((one.key, one.value) for _, one in statements.topics.topic(name).records)
        for name in RESULTS
    }


def by_key(pairs: Iterable[tuple[bytes | None, bytes | None]]) -> Pairs:
    found: dict[bytes | None, list[bytes | None]] = defaultdict(list)
    for key, value in pairs:
        found[key].append(value)
    return dict(found)


def read_topics(bootstrap: str, names: Sequence[str]) -> list[TopicRecord]:
    return [
        TopicRecord(message.topic(), message.key(), message.value(), message.timestamp()[1])
        for message in committed_messages(bootstrap, names, PARTITIONS)
    ]


class Load:
    """A thread that writes records until it is stopped. What is in the topics counts, not what was sent."""

    def __init__(self, bootstrap: str, seed: int) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "partitioner": "murmur2_random",
                "message.timeout.ms": 600_000,
                "log_level": 0,
            }
        )
        self._dice = random.Random(seed)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.count = 0

    def begin(self) -> None:
        """The rows of the tables, which must be there before the first payment."""
        for number in range(PEOPLE):
            self._send("users", f"u{number}", {"town": f"t{number % 5}"})
            self._send("most", f"u{number}", {"most": number % 7})
        assert self._producer.flush(120) == 0

    def send(self, topic: str, key: str, value: Mapping[str, object]) -> None:
        self._send(topic, key, value)
        assert self._producer.flush(120) == 0

    def close_windows(self) -> None:
        """Move the time of all partitions on."""
        then = int(time.time() * 1000) + FAR_MS
        for number in range(PEOPLE):
            self._send("pay", f"u{number}", {"id": -1 - number, "amt": 1}, then)
        assert self._producer.flush(120) == 0

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()
        assert self._producer.flush(300) == 0

    def _send(self, topic: str, key: str, value: Mapping[str, object], at_ms: int = 0) -> None:
        self._producer.produce(topic, json.dumps(value), key, timestamp=at_ms or int(time.time() * 1000))

    def _run(self) -> None:
        dice, paid = self._dice, list[tuple[str, int]]()
        while not self._stopped.wait(0.1):
            for _ in range(RECORDS_PER_S // 10):
                who = f"u{dice.randrange(PEOPLE)}"
                self.count += 1
                chance = dice.random()
                if chance < 0.1 and paid:
                    who, id = paid.pop(dice.randrange(len(paid)))
                    self._send("refunds", who, {"id": id, "amt": dice.randrange(100)})
                elif chance < 0.15:
                    self._send("most", who, {"most": dice.randrange(7)})
                else:
                    self._send("pay", who, {"id": self.count, "amt": dice.randrange(100)})
                    paid = [*paid[-50:], (who, self.count)]
            self._producer.poll(0)


@dataclass(slots=True)
class Outcome:
    """What happened."""

    killed: Counter[str] = field(default_factory=Counter)
    records: int = 0
    results: int = 0
    error_after_s: float = 0.0
    longest_wait_s: float = 0.0
    """The longest time from a kill to the next finished batch."""

    def __str__(self) -> str:
        killed = ", ".join(f"{count} {name}" for name, count in sorted(self.killed.items()))
        return (
            f"killed: {killed}; {self.records} records, {self.results} results, each once; longest wait for a batch "
            f"{self.longest_wait_s:.0f} s; ERROR was shown after {self.error_after_s:.1f} s"
        )


class Servers:
    """Two servers with one service id, and one directory of state."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        self.bootstrap, self._directory = bootstrap, directory
        self.checkpoint = Checkpoint(directory / "checkpoint")
        self.running = [self._started(number) for number in range(2)]

    def _started(self, number: int) -> SqlProcess:
        options = ("--checkpoint", str(self.checkpoint.path), "--master", "local[2]")
        return SqlProcess(self.bootstrap, self._directory / f"server-{number}", "kills", *options)

    @property
    def leader(self) -> SqlProcess | None:
        """The server that says that it leads."""
        for server in self.running:
            with contextlib.suppress(httpx2.HTTPError):
                page = httpx2.get(server.url + "/metrics", timeout=10, trust_env=False).text
                if "\nfelice_sql_leads 1" in page:
                    return server
        return None

    def led(self) -> SqlProcess:
        """The server that leads, when there is one."""
        return wait_until(lambda: self.leader, LIMIT_S)

    def restart(self, server: SqlProcess) -> None:
        """Start a server that was killed again, as the other one's standby."""
        number = self.running.index(server)
        self.running[number] = self._started(number)

    def batch(self) -> int:
        """The last batch that is done."""
        return self.checkpoint.last_batches()[1]

    def java(self) -> int | None:
        """The Java of the server that runs the queries."""
        with contextlib.suppress(FileNotFoundError, ValueError, KeyError):
            holder = json.loads((self.checkpoint.directory / "lock").read_text())
            return int(holder["java"][0]) if holder["java"] else None
        return None

    def states(self) -> dict[str, tuple[str, str | None]]:
        """State and reason of each query."""
        (shown,) = self.led().ksql("SHOW QUERIES;")
        return {one["id"]: (one["state"], one.get("error")) for one in shown["queries"]}

    def close(self) -> None:
        for server in self.running:
            with contextlib.suppress(ProcessLookupError):
                for pid in reversed(tree_of(server.process.pid)):
                    os.kill(pid, signal.SIGKILL)
            server.process.wait()


class Kills:
    """Kills processes, each after a batch and a pause."""

    def __init__(
        self, servers: Servers, kill_broker: Callable[[], None], seed: int, outcome: Outcome
    ) -> None:
        self._servers, self._kill_broker = servers, kill_broker
        self._dice, self._outcome = random.Random(seed), outcome

    def kill(self, victim: str) -> None:
        began, before = time.monotonic(), self._servers.batch()
        wait_until(lambda: self._servers.batch() > before, LIMIT_S, describe=self._logs)
        self._outcome.longest_wait_s = max(self._outcome.longest_wait_s, time.monotonic() - began)
        time.sleep(self._dice.random() * 3)
        while not self._killed(victim):
            time.sleep(0.1)
        self._outcome.killed[victim] += 1
        print(f"{time.strftime('%H:%M:%S')} killed {victim} after batch {self._servers.batch()}", flush=True)

    def _killed(self, victim: str) -> bool:
        servers = self._servers
        if victim == "broker":
            self._kill_broker()
            return True
        leader = servers.led()
        if victim == "standby":
            (chosen,) = (one for one in servers.running if one is not leader)
            chosen.kill()
            servers.restart(chosen)
            return True
        java, tree = servers.java(), tree_of(leader.process.pid)
        workers = [pid for pid in tree if pid not in (leader.process.pid, java)]
        if java not in tree or not workers:
            return False
        victims = {
            "worker": [self._dice.choice(workers)],
            "java": [java],
            "server": [leader.process.pid],
            "all": [leader.process.pid, java, *workers],
        }[victim]
        for pid in victims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if victim in ("server", "all"):
            leader.kill()
            servers.restart(leader)
        return True

    def _logs(self) -> str:
        return "\n".join(one.log.read_text(errors="replace")[-3000:] for one in self._servers.running)


def queries_under_kills(
    bootstrap: str, directory: Path, victims: Sequence[str], kill_broker: Callable[[], None], seed: int
) -> Outcome:
    """Run everything; an AssertionError tells what is wrong."""
    outcome, servers = Outcome(), Servers(bootstrap, directory)
    try:
        servers.led().ksql(STATEMENTS)
        load = Load(bootstrap, seed)
        load.begin()
        # Each payment finds its user, in every batch, also in the first one.
        towns = "SELECT n FROM towns;"
        servers.led().until(towns, lambda rows: sum(row[0] for row in rows) == PEOPLE)
        outcome.error_after_s = error_is_shown(servers, load)
        kills = Kills(servers, kill_broker, seed, outcome)
        with load:
            for victim in victims:
                kills.kill(victim)
        load.close_windows()
        given = sorted(read_topics(bootstrap, SOURCES), key=lambda one: one.timestamp)
        wanted = expected(given)
        counted = [wanted[name] for name, kind in RESULTS.items() if kind is not Kind.LAST]
        outcome.records = len(given)
        outcome.results = sum(len(values) for pairs in counted for values in pairs.values())
        wait_until(lambda: not told(bootstrap, wanted), LIMIT_S, describe=lambda: report(bootstrap, wanted))
        # What comes twice may come late.
        before = servers.batch()
        load.send("users", "nobody", {"town": "none"})
        wait_until(lambda: servers.batch() > before, LIMIT_S)
        assert not told(bootstrap, wanted), report(bootstrap, wanted)
        check_tables(servers, wanted)
        state, reason = servers.states()[fragile_id(servers)]
        assert state == "ERROR" and "refunds-" in str(reason), (state, reason)
        wait_until(lambda: all(map(nothing_is_open, bootstrap.split(","))), LIMIT_S)
    finally:
        servers.close()
    return outcome


def fragile_id(servers: Servers) -> str:
    return next(id for id in servers.states() if "FRAGILE" in id)


def error_is_shown(servers: Servers, load: Load) -> float:
    """How long it takes from a record that a query cannot process until the query is in ERROR, with the record."""
    servers.led().ksql(FRAGILE)
    load.send("refunds", "u0", {"id": 0, "amt": 1})
    wait_until(lambda: any(one.key == b"u0" for one in read_topics(servers.bootstrap, ["fragile"])), LIMIT_S)
    load.send("refunds", "u0", {"id": 0, "amt": 99})
    began = time.monotonic()
    id = fragile_id(servers)
    wait_until(lambda: servers.states()[id][0] == "ERROR", LIMIT_S)
    took_s = time.monotonic() - began
    reason = servers.states()[id][1]
    assert reason is not None and "refunds-" in reason and "offset" in reason, reason
    return took_s


def told(bootstrap: str, wanted: Mapping[str, Pairs]) -> dict[str, list[str]]:
    """What is wrong with each result topic."""
    records = read_topics(bootstrap, list(RESULTS))
    found = {}
    for name, kind in RESULTS.items():
        own = by_key((one.key, one.value) for one in records if one.topic == name)
        if wrong := differences(kind, own, wanted[name]):
            found[name] = wrong
    return found


def report(bootstrap: str, wanted: Mapping[str, Pairs]) -> str:
    found = told(bootstrap, wanted)
    return "; ".join(f"{name}: {len(wrong)} keys, such as {wrong[:3]}" for name, wrong in found.items())


def check_tables(servers: Servers, wanted: Mapping[str, Pairs]) -> None:
    """Both servers have the newest row of each key."""
    for server in servers.running:
        for table in TABLES:
            rows = server.rows(f"SELECT * FROM {table};")
            last = [values[-1] for values in wanted[table].values()]
            expected_rows = sorted(tuple(json.loads(value).values()) for value in last if value is not None)
            assert sorted(tuple(row[1:]) for row in rows) == expected_rows, (table, rows)


@contextlib.contextmanager
def brokers(directory: Path, count: int, seed: int) -> Iterator[tuple[str, Callable[[], None]]]:
    """The addresses, and what kills a broker and starts it again."""
    if count == 1:
        with mortal_broker(directory / "broker") as (bootstrap, kill):
            yield bootstrap, kill
        return
    dice = random.Random(seed)
    properties = {"transaction.state.log.num.partitions": "3", "default.replication.factor": "3"}
    with Cluster(brokers=count, data_dir=directory / "brokers", properties=properties) as cluster:

        def kill_one() -> None:
            chosen = dice.randrange(count) + 1
            cluster.kill_broker(chosen)
            time.sleep(dice.random() * 5)
            cluster.start_broker(chosen)

        yield cluster.bootstrap, kill_one


def main() -> None:
    kills, chosen, count = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    seed = random.randrange(1 << 32) if chosen == "random" else int(chosen)
    victims = random.Random(seed).choices(list(VICTIMS), list(VICTIMS.values()), k=kills)
    print(f"seed {seed}: {kills} kills, {count} brokers", flush=True)
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory,
        brokers(Path(directory), count, seed) as (bootstrap, kill_broker),
    ):
        began = time.monotonic()
        (place := Path(directory) / "sql").mkdir()
        outcome = queries_under_kills(bootstrap, place, victims, kill_broker, seed)
        print(f"{outcome}; after {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
