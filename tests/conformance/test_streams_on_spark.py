"""Apps on Spark, over real topics: the same results as in the TestDriver, once each, and state that comes back."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections import defaultdict
from pathlib import Path
from random import Random
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs Spark: pip install 'felice[spark]'")

from confluent_kafka import Producer

from conformance.spark_kills import send_to_all, tree_of
from conformance.targets import Target
from conformance.topics import create_topic
from conformance.wire import unique_name
from felice.pipelines.streams.on_spark.directory import Checkpoint, CheckpointError, Description
from felice.pipelines.streams.on_spark.places import place_at
from felice.pipelines.streams.on_spark.state import StateFiles
from felice.records.kernels import murmur2
from felice.streams import (
    App,
    ApplicationFailed,
    Context,
    KeyValues,
    Processor,
    Record,
    RunningApp,
    StoredState,
    TestDriver,
)
from peers.objects import BUCKET, running_store
from waiting import wait_until

Row = tuple[str, str, str, int]
# Long enough for Java and its workers to start on a machine under heavy load.
WAIT_S = 300.0

pytestmark = pytest.mark.timeout(1800)


def shop(name: str) -> App:
    """A stateless step, a repartition, an aggregation, a join with a table, and an aggregation with undo."""
    app = App(name, value="string")
    users = app.table(f"{name}-users")
    words = app.stream(f"{name}-lines").flat_map_values(lambda key, line: line.split())
    words.group_by(lambda key, word: word).count(name="counts").to(f"{name}-counts")
    words.left_join(users, lambda word, user: f"{word}:{user}").to(f"{name}-joined")
    regions = users.group_by(lambda key, user: (user[0], user))
    regions.count(name="regions").to(f"{name}-regions")
    return app


def rows_of(dice: Random, name: str, count: int, now: int) -> list[Row]:
    rows = []
    for number in range(count):
        key = f"k{dice.randrange(5)}"
        if dice.random() < 0.3:
            rows.append((f"{name}-users", key, dice.choice(("x1", "x2", "y1")), now + number))
        else:
            rows.append((f"{name}-lines", key, " ".join(dice.choices("abcdef", k=3)), now + number))
    return rows


class Place:
    def __init__(self, broker: Target, spark: Any, directory: Path, build: Any = shop) -> None:
        self.broker, self.spark, self.directory = broker, spark, directory
        self.name = unique_name("shop")
        for topic in ("users", "lines", "counts", "joined", "regions"):
            create_topic(broker, f"{self.name}-{topic}", partitions=2)
        self.app = build(self.name)
        self.sent: list[Row] = []

    def send(self, rows: list[Row]) -> None:
        producer = Producer({"bootstrap.servers": self.broker.bootstrap})
        for topic, key, value, timestamp in rows:
            producer.produce(topic, value, key, timestamp=timestamp, partition=ord(key[-1]) % 2)
        assert producer.flush(60) == 0
        self.sent += rows

    def run(self, **options: Any) -> None:
        from felice.pipelines.streams.on_spark.runner import start

        query = start(
            self.app.scope,
            self.spark,
            self.broker.bootstrap,
            self.directory,
            partitions=2,
            until_caught_up=True,
            **options,
        )
        query.awaitTermination()

    def forget_last_commit(self) -> None:
        """As if Spark had died before it noted the end of the last batch."""
        last = max((self.directory / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
        last.unlink()
        (self.directory / "commits" / f".{last.name}.crc").unlink(missing_ok=True)

    def written(self, topic: str) -> dict[str, list[str]]:
        found = defaultdict(list)
        for key, value in read_pairs(self.broker.bootstrap, f"{self.name}-{topic}"):
            found[key].append(value)
        return dict(found)

    def expected(self, topic: str) -> dict[str, list[str]]:
        driver = TestDriver(shop(self.name))
        for row in self.sent:
            driver.send(*row)
        found = defaultdict(list)
        for record in driver.read(f"{self.name}-{topic}"):
            found[str(record.key)].append(str(record.value))
        return dict(found)


def read_pairs(bootstrap: str, topic: str) -> list[tuple[str, Any]]:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "checker",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(2)])
    found, ended = [], 0
    while ended < 2:
        message = consumer.poll(30)
        assert message is not None
        if message.error():
            ended += 1
        else:
            value = message.value()
            found.append((message.key().decode(), value and value.decode()))
    consumer.close()
    return found


def test_changes_equal_those_of_the_test_driver_also_when_a_batch_runs_again(
    broker: Target, spark: Any, tmp_path: Path
) -> None:
    place, dice = Place(broker, spark, tmp_path / "checkpoint"), Random(4)
    # Not in 1970: the broker's retention would delete them while a slow machine is still at it.
    now = int(time.time() * 1000)
    place.send(rows_of(dice, place.name, 60, now))
    place.run()
    place.forget_last_commit()
    place.send(rows_of(dice, place.name, 60, now + 1_000))
    place.run()
    for topic in ("counts", "joined", "regions"):
        assert place.written(topic) == place.expected(topic), topic


SPARKS_LOG = {
    "metadata": '{"id":"QUERY"}',
    "offsets/0": 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1795423348260,"conf":{}}\n{"TOPIC": {"0": 1, "1": 0}}',
    "commits/0": 'v1\n{"nextBatchWatermarkMs":0}',
    "offsets/1": 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1795423349260,"conf":{}}\n{"TOPIC": {"0": 2, "1": 0}}',
}
"""What Spark wrote for a query with `format("felice")`: one batch that is finished, and one that is not."""


def test_a_checkpoint_from_before_records_were_packed_continues(
    broker: Target, spark: Any, tmp_path: Path
) -> None:
    place = Place(broker, spark, tmp_path / "checkpoint", counting)
    checkpoint = Checkpoint(place.directory)
    description = Description(place.name, place.app.describe(), 2, starting={})
    checkpoint.describe(description)
    # Brokers remember the batches of a query by its id.
    query = str(uuid.uuid4())
    for name, text in SPARKS_LOG.items():
        (place.directory / name).parent.mkdir(exist_ok=True)
        (place.directory / name).write_text(
            text.replace("QUERY", query).replace("TOPIC", f"{place.name}-lines")
        )
    for number in range(2):
        stores = place.app.topology.made_stores(place.app.topology.parts()[0])
        if number == murmur2(b"k0") % 2:
            stores["counts"].put("k0", 10, 1)
        changes = {name: rows for name, store in stores.items() if (rows := store.take_changes())}
        StateFiles(Path(checkpoint.state_location(description)) / "0" / str(number)).write(0, changes, stores)
    place.send([(f"{place.name}-lines", "k0", value, int(time.time() * 1000)) for value in "abc"])
    place.run()
    assert place.written("counts") == {"k0": ["11", "12"]}
    assert checkpoint.last_batches() == (2, 2)


def counting(name: str) -> App:
    app = App(name, value="string")
    app.stream(f"{name}-lines").group_by_key().count(name="counts").to(f"{name}-counts")
    return app


PROGRAM = """
import letters
from felice.streams import App

app = App("{name}", value="string")
words = app.stream("{name}-lines").flat_map_values(lambda key, line: line.split())
words.group_by(lambda key, word: letters.first(word)).count().to("{name}-counts")
"""
# Not in the directory in which `felice run` starts, and Spark its workers: they cannot import `letters`.
FILE = "programs/program.py"


class Program:
    """`felice run` of the program, in processes of its own."""

    def __init__(self, broker: Target, directory: Path) -> None:
        self.bootstrap, self.directory, self.name = broker.bootstrap, directory, unique_name("program")
        for topic in ("lines", "counts"):
            create_topic(broker, f"{self.name}-{topic}", partitions=2)
        (directory / FILE).parent.mkdir()
        (directory / FILE).write_text(PROGRAM.format(name=self.name))
        (directory / FILE).with_name("letters.py").write_text("def first(word): return word[0]\n")
        self.checkpoint = Checkpoint(directory / f"{self.name}-checkpoint")

    def send(self, value: bytes, partition: int = 0) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap})
        producer.produce(f"{self.name}-lines", value, "k", partition=partition)
        assert producer.flush(60) == 0

    def start(self, *options: str) -> subprocess.Popen[str]:
        run = ["run", FILE, "--master", "local[2]", "--bootstrap-server", self.bootstrap]
        return subprocess.Popen(
            [FELICE, *run, *options],
            cwd=self.directory,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *options: str) -> tuple[int, str]:
        process = self.start("--until-caught-up", *options)
        _, told = process.communicate(timeout=2 * WAIT_S)
        return process.returncode, told

    def streams(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [FELICE, "streams", *words],
            cwd=self.directory,
            capture_output=True,
            text=True,
            timeout=2 * WAIT_S,
            check=False,
        )

    def batches(self) -> int:
        return int(self.checkpoint.progress().get("batch", -1))

    def counts(self) -> list[tuple[str, str]]:
        return sorted(read_pairs(self.bootstrap, f"{self.name}-counts"))


FELICE = str(Path(sys.executable).with_name("felice"))


def test_a_program_runs_to_the_end_of_its_topic_and_a_failure_is_told(broker: Target, tmp_path: Path) -> None:
    program = Program(broker, tmp_path)
    program.send(b"aa b ab")
    code, told = program.run()
    assert code == 0, told
    assert "1 rows" in told and "state 2 rows" in told
    assert program.counts() == [("a", "1"), ("a", "2"), ("b", "1")]
    program.send(b"\xff", partition=1)
    code, told = program.run()
    assert code == 1
    last = told.strip().splitlines()[-1]
    assert last.startswith(f"error: StreamsError: a record of topic '{program.name}-lines' cannot be read"), (
        told
    )
    assert last.endswith(f"(at {program.name}-lines-1, offset 0)")
    described = program.streams("describe", program.name).stdout
    assert "failed" in described and "lines-1, offset 0" in described


def test_a_running_program_is_stopped_rescaled_and_goes_on(broker: Target, tmp_path: Path) -> None:
    program = Program(broker, tmp_path)
    program.send(b"aa b ab")
    with program.start() as first:
        wait_until(lambda: program.batches() >= 0, WAIT_S)
        code, told = program.run()
        assert code == 1 and f"is in use by process {first.pid}" in told
        assert " running " in program.streams("list").stdout
        assert program.streams("rescale", FILE, "--partitions", "3").returncode == 1
        assert program.streams("stop", program.name).stdout == f"{program.name} has stopped\n"
        assert first.wait(WAIT_S) == 0
    assert " stopped " in program.streams("list").stdout
    code, told = program.run("--partitions", "3")
    assert code == 1 and "has 2 partitions" in told
    planned, finished = program.checkpoint.last_batches()
    if planned > finished:  # A batch was cut off.
        code, told = program.run()
        assert code == 0, told
    done = program.streams("rescale", FILE, "--partitions", "3")
    assert done.stdout == f"{program.name} has 3 partitions, before 2\n", done.stderr
    program.send(b"a b c")
    with program.start() as second:
        wait_until(lambda: len(program.counts()) == 6, WAIT_S)
        # A service manager sends the signal to every process of a service. Here the command itself gets it last.
        helpers = tree_of(second.pid)[1:]
        assert len(helpers) >= 3, "Java, the daemon of its workers, workers"
        send_to_all(helpers, signal.SIGTERM)
        program.send(b"d")
        wait_until(lambda: len(program.counts()) == 7 or second.poll() is not None, WAIT_S)
        second.terminate()
        assert second.stderr is not None
        assert second.wait(WAIT_S) == 0, second.stderr.read()
    counted = {"a": "123", "b": "12", "c": "1", "d": "1"}
    assert program.counts() == [(letter, count) for letter, counts in counted.items() for count in counts]


def test_a_program_whose_java_dies_says_so(broker: Target, tmp_path: Path) -> None:
    program = Program(broker, tmp_path)
    with program.start() as first:
        wait_until(lambda: java_of(program.checkpoint) is not None, WAIT_S)
        assert first.stderr is not None
        assert any(line == f"{program.name} is running\n" for line in first.stderr)
        os.kill(java_of(program.checkpoint) or 0, signal.SIGKILL)
        assert first.wait(WAIT_S) == 1
        assert "Spark's Java has ended" in first.stderr.read()


STARTING = """
import atexit, time
from pathlib import Path
from felice.streams import App

def never(spark):
    Path("starting").touch()
    while True:
        time.sleep(1)

atexit.register(Path("cleaned-up").touch)
app = App("{name}", value="string")
app.from_df("never", never).to("{name}-counts")
"""


def test_a_program_that_is_interrupted_while_it_starts_ends_at_once(broker: Target, tmp_path: Path) -> None:
    program = Program(broker, tmp_path)
    (tmp_path / FILE).write_text(STARTING.format(name=program.name))
    with program.start() as process:
        wait_until(lambda: (tmp_path / "starting").exists() or process.poll() is not None, WAIT_S)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=WAIT_S)
    assert (process.returncode, told.splitlines()[-1]) == (130, "Aborted!")
    assert not (tmp_path / "cleaned-up").exists(), "PySpark's handler of Ctrl-C raised KeyboardInterrupt"


def java_of(checkpoint: Checkpoint) -> int | None:
    try:
        java = json.loads((checkpoint.directory / "lock").read_text())["java"]
    except (FileNotFoundError, ValueError):
        return None
    return None if java is None else int(java[0])


def test_a_program_that_is_reset_begins_where_it_is_told(broker: Target, tmp_path: Path) -> None:
    program = Program(broker, tmp_path)
    program.send(b"a")
    assert program.run()[0] == 0
    refused = program.streams("reset", program.name, "--to", "yesterday", "--yes")
    assert refused.returncode == 1 and "--to is 'yesterday'" in refused.stderr
    done = program.streams("reset", program.name, "-b", program.bootstrap, "--to", "latest", "--yes")
    assert done.stdout == f"{program.name} begins again from latest\n", done.stderr
    program.send(b"b")
    with program.start() as running:
        wait_until(lambda: program.checkpoint.last_batches()[0] >= 0 or running.poll() is not None, WAIT_S)
        program.send(b"c")
        wait_until(lambda: len(program.counts()) >= 2, WAIT_S)
        running.terminate()
        running.wait(WAIT_S)
    assert program.counts() == [("a", "1"), ("c", "1")]


SEVERAL = """
from felice.streams import App

def count(name):
    app = App(name, value="string")
    app.stream("{name}-lines").filter(lambda key, line: "poison" not in line or 1 / (name != "{name}-a")).group_by(
        lambda key, line: line).count().to(name)
    return app

for which in "{which}":
    globals()[which] = count("{name}-" + which)
"""


def test_several_apps_of_a_file_run_fail_stop_and_start_each_by_itself(
    broker: Target, tmp_path: Path
) -> None:
    program = Program(broker, tmp_path)
    a, b, c = (f"{program.name}-{which}" for which in "abc")
    for topic in (a, b, c):
        create_topic(broker, topic, partitions=2)

    def define(which: str) -> None:
        (tmp_path / FILE).write_text(SEVERAL.format(name=program.name, which=which))

    def states() -> dict[str, str]:
        return {
            row["application"]: row["state"] for row in json.loads(program.streams("list", "--json").stdout)
        }

    def has_counted(topic: str, value: str, count: int) -> bool:
        return (value, str(count)) in read_pairs(broker.bootstrap, topic)

    define("ab")
    program.send(b"x")
    with program.start("--partitions", "1") as running:
        wait_until(lambda: has_counted(a, "x", 1) and has_counted(b, "x", 1), WAIT_S)
        program.send(b"poison")  # For `a` only.
        wait_until(lambda: states() == {a: "failed", b: "running"}, WAIT_S)
        wait_until(lambda: has_counted(b, "poison", 1), WAIT_S)
        define("bc")
        done = program.streams("reload", b)
        assert (done.returncode, done.stdout) == (0, f"started: {c}\n"), done.stderr
        wait_until(lambda: has_counted(c, "x", 1), WAIT_S)
        assert program.streams("stop", c).stdout == f"{c} has stopped\n"
        done = program.streams("reset", c, "-b", program.bootstrap, "--yes")
        assert done.returncode == 0, done.stderr
        assert program.streams("reload", b).stdout == f"started: {c}\n"
        wait_until(lambda: read_pairs(broker.bootstrap, c).count(("x", "1")) == 2, WAIT_S)
        program.send(b"x")
        wait_until(lambda: has_counted(b, "x", 2) and has_counted(c, "x", 2), WAIT_S)
        running.terminate()
        assert running.stderr is not None
        told = running.stderr.read()
        assert running.wait(WAIT_S) == 1, told
    assert states() == {a: "failed", b: "stopped", c: "stopped"}
    assert f"error: {a} has failed; still running: {b}" in told
    last = told.strip().splitlines()[-1]
    assert last.startswith(
        f"error: {a} has failed: StreamsError: a record of topic '{program.name}-lines'"
    ), told
    assert "ZeroDivisionError" in last and f"{b}: stopping after this batch" in told


POLICIES = """
from felice.streams import App, DeadLetters

def copying(which, lines="{name}-lines", bad="fail", error="fail", refused="fail"):
    app = App("{name}-" + which, value="json")
    stream = app.stream(lines, on_bad_record=bad, on_error=error)
    if error == "skip":
        stream = stream.map_values(lambda key, value: 1 / value)
    stream.to("{name}-" + which, on_bad_record=refused)
    return app

failing = copying("failing")
skipping = copying("skipping", bad="skip", error="skip")
dead = copying("dead", bad=DeadLetters("{name}-letters"), refused=DeadLetters("{name}-letters"))
refused = copying("refused", bad="skip")
missing = copying("missing", lines="{name}-missign")
"""
LONG = b'"' + b"x" * 2000 + b'"'
SMALL_BYTES = 1000


def test_bad_records_are_answered_as_each_application_says(broker: Target, tmp_path: Path) -> None:
    program = Program(broker, tmp_path)
    name = program.name
    for which, limits in (
        ("failing", {}),
        ("skipping", {}),
        ("letters", {}),
        ("missing", {}),
        ("dead", {"max_message_bytes": SMALL_BYTES}),
        ("refused", {"max_message_bytes": SMALL_BYTES}),
    ):
        create_topic(broker, f"{name}-{which}", partitions=2, **limits)
    (tmp_path / FILE).write_text(POLICIES.format(name=name))
    for value in (b"{", b"0", b"1", LONG):
        program.send(value)
    code, told = program.run()
    assert code == 1

    def written(which: str) -> list[str]:
        return sorted(value for _, value in read_pairs(broker.bootstrap, f"{name}-{which}"))

    def failure(which: str) -> str:
        return told.partition(f"{name}-{which} has failed: ")[2].partition("\n")[0]

    assert "cannot be read: b'{' is not json" in failure("failing"), told
    assert failure("failing").endswith(f"(at {name}-lines-0, offset 0)"), told
    assert f"cannot read {name}-missign: no such topic" in failure("missing"), told
    assert f"bytes is too large for topic {name}-refused: its max.message.bytes is lower" in failure(
        "refused"
    ), told
    assert [written(which) for which in ("failing", "missing", "refused")] == [[], [], []]
    assert written("skipping") == ["1.0"] and "3 skipped so far" in told, told
    assert json.loads(program.streams("describe", f"{name}-skipping", "--json").stdout)["skipped"] == 3
    assert written("dead") == ["0", "1"]
    assert written("letters") == sorted(["{", LONG.decode()])


def first_version(name: str) -> App:
    app = counting(name)
    app.table(f"{name}-users").to(f"{name}-regions")
    return app


def second_version(name: str) -> App:
    """The users are joined, which needs a store; a timer of the wall clock makes another source for Spark."""

    # Workers cannot import this module, so the class is sent to them.
    class EachSecond(Processor):
        """Tells by the wall clock how many keys it has seen."""

        def init(self, context: Context) -> None:
            self._seen = context.store("seen")
            context.schedule(1, self._tell, clock="wall")

        def process(self, record: Record) -> list[Record]:
            self._seen.put(record.key, "yes")
            return []

        def _tell(self, time: int) -> list[Record]:
            return [Record(key, "seen", time) for key, _ in self._seen.items()]

    app = App(name, value="string")
    lines, users = app.stream(f"{name}-lines").peek(lambda key, value: None), app.table(f"{name}-users")
    lines.left_join(users, lambda word, user: f"{word}:{user}").to(f"{name}-joined")
    lines.process(EachSecond, stores=[KeyValues("seen")]).to(f"{name}-regions")
    lines.group_by_key().count(name="counts").to(f"{name}-counts")
    return app


def test_another_version_of_the_program_keeps_the_state_and_fills_a_new_table(
    broker: Target, spark: Any, tmp_path: Path
) -> None:
    place = Place(broker, spark, tmp_path / "checkpoint", first_version)
    lines, users, now = f"{place.name}-lines", f"{place.name}-users", int(time.time() * 1000)
    place.send([(users, "k0", "anna", now), (users, "k1", "otto", now), (lines, "k0", "a", now)])
    place.run()
    place.app = second_version(place.name)
    place.send([(lines, "k0", "b", now), (lines, "k1", "c", now)])
    place.run()
    assert place.written("counts") == {"k0": ["1", "2"], "k1": ["1"]}
    assert place.written("joined") == {"k0": ["b:anna"], "k1": ["c:otto"]}
    # Back to fewer inputs: the users' topic and the clock are gone.
    place.app = counting(place.name)
    place.send([(lines, "k0", "d", now), (users, "k0", "emma", now)])
    place.run()
    assert place.written("counts") == {"k0": ["1", "2", "3"], "k1": ["1"]}


def priced(name: str) -> App:
    app = App(name, value="string")
    prices = app.table(f"{name}-users")
    app.stream(f"{name}-lines").left_join(prices, lambda line, price: f"{line}:{price}").to(f"{name}-joined")
    app.stream(f"{name}-regions").group_by_key().count(name="counts").emit("batch").to(f"{name}-counts")
    return app


def test_a_backlog_of_several_topics_is_taken_in_bounded_batches_in_the_order_of_time(
    broker: Target, spark: Any, tmp_path: Path
) -> None:
    place = Place(broker, spark, tmp_path / "checkpoint", priced)
    start, count = int(time.time() * 1000), 120
    # The prices of all hours are there before the first order: taken as they lie there, the last would win.
    place.send([(f"{place.name}-users", "k0", f"p{hour}", start + hour * 10) for hour in range(count)])
    place.send([(f"{place.name}-lines", "k0", f"o{hour}", start + hour * 10 + 5) for hour in range(count)])
    place.send([(f"{place.name}-regions", "k1", "x", start + hour * 10) for hour in range(count)])
    place.run(max_records=90)
    assert place.written("joined") == {"k0": [f"o{hour}:p{hour}" for hour in range(count)]}
    # 360 records in batches of at most 90: each batch sends one change of the count.
    batches = Checkpoint(place.directory).last_batches()[1] + 1
    counts = [int(count) for count in place.written("counts")["k1"]]
    assert 4 <= batches <= 7 and len(counts) <= batches and counts[-1] == count and counts == sorted(counts)


def test_a_program_starts_its_app_and_stops_it(broker: Target, spark: Any, tmp_path: Path) -> None:
    place = Place(broker, spark, tmp_path / "checkpoint", counting)
    line, now = f"{place.name}-lines", int(time.time() * 1000)
    told: list[str] = []

    def start(**options: Any) -> RunningApp:
        return place.app.start(
            broker.bootstrap,
            checkpoint=place.directory,
            spark=spark,
            partitions=2,
            say=told.append,
            **options,
        )

    with start() as running:
        place.send([(line, "k0", "a", now)])
        wait_until(lambda: place.written("counts") == {"k0": ["1"]}, WAIT_S)
        with pytest.raises(CheckpointError, match="is in use by process"):
            start()
        assert running.is_running and not running.wait(0.2)
        wait_until(lambda: running.progress.get("read") == 1, WAIT_S)
    assert not running.is_running and running.failure is None
    assert any("batch 0: 1 rows" in text for text in told) and told[-1] == "stopping after this batch"
    place.send([(line, "k0", "b", now)])
    assert start(until_caught_up=True).wait(WAIT_S)
    assert place.written("counts") == {"k0": ["1", "2"]}
    app = App(place.name, value="string")
    app.stream(line).map_values(lambda key, value: 1 // 0).group_by_key().count(name="counts").to("out")
    place.app = app
    place.send([(line, "k0", "c", now)])
    with pytest.raises(ApplicationFailed, match="ZeroDivisionError.*in step map-values-1"):
        start(until_caught_up=True).wait(WAIT_S)


def test_topics_begin_where_their_streams_say(broker: Target, spark: Any, tmp_path: Path) -> None:
    place, now = Place(broker, spark, tmp_path / "checkpoint", counting), int(time.time() * 1000)
    lines, users, regions = (f"{place.name}-{topic}" for topic in ("lines", "users", "regions"))

    def version(*later: str) -> App:
        app = App(place.name, value="string")
        streams = [app.stream(lines, start="latest"), app.stream(users, start=now + 5)]
        streams += [app.stream(topic, start="latest") for topic in later]
        for number, stream in enumerate(streams):
            stream.group_by_key().count(name=f"counts-{number}").to(f"{place.name}-counts")
        return app

    place.app = version()
    place.send([(lines, "k0", "old", now), (users, "k1", "old", now), (users, "k1", "new", now + 5)])
    place.run()
    place.send([(lines, "k0", "new", now), (regions, "k2", "old", now)])
    place.run()
    assert place.written("counts") == {"k0": ["1"], "k1": ["1"]}
    place.app = version(regions)
    place.run()
    place.send([(regions, "k2", "new", now)])
    place.run()
    assert place.written("counts") == {"k0": ["1"], "k1": ["1"], "k2": ["1"]}


def test_state_in_an_object_store(
    broker: Target, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    place, now = Place(broker, spark, tmp_path / "checkpoint", counting), int(time.time() * 1000)
    line = f"{place.name}-lines"
    with running_store() as bucket:
        address = bucket.url.removeprefix("http://")
        state = f"s3://{BUCKET}/apps?endpoint_override={address}&scheme=http&region=us-east-1"
        place.send([(line, "k0", "a", now), (line, "k1", "a", now)])
        place.run(state=state)
        place.forget_last_commit()
        place.send([(line, "k0", "b", now)])
        place.run()
        assert place.written("counts") == {"k0": ["1", "2"], "k1": ["1"]}
        checkpoint = Checkpoint(place.directory)
        assert not (checkpoint.directory / "state-0").exists()
        description = checkpoint.description()
        assert description is not None
        assert sum(name.endswith(".delta") for name in bucket.names()) == 2 * (
            checkpoint.last_batches()[1] + 1
        )
        with pytest.raises(CheckpointError, match="is kept at s3://.*leave --state out"):
            place.run(state=f"s3://{BUCKET}/others")
        assert StoredState(place.app, place.directory).store("counts").get("k0") == 2
        place_at(description.state_at).remove_all()
        # The store keeps the name of the directory above.
        assert [name for name in bucket.names() if "/" in name.strip("/")] == []
