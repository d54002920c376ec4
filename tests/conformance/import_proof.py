"""Imports an Apache Kafka that was killed under load, and exports it again, comparing everything each time.

Run as a script: `python tests/conformance/import_proof.py [SECONDS [KILLS]]`. Producers of every codec, transactions
and compaction run for SECONDS; then Kafka is killed. A copy of its directory stays with Kafka. `felice import` is
killed at KILLS random moments; none of them may change the source or leave a directory that starts. Then Felice serves
the import, Kafka its copy, and Kafka the export of what Felice served: records, groups and users must be the same.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from conformance import imports
from felice.env import SystemDisk
from felice.server.membership.identity import check_may_begin
from felice.server.process.embedded import EmbeddedBroker
from felice.server.startup import StartupError
from peers.apache_kafka import ApacheKafka
from peers.clients import CODECS
from peers.java import run_tool
from unit.migration.kafka_files import fingerprint

KAFKA = {
    "group.initial.rebalance.delay.ms": "0",
    "metadata.log.max.record.bytes.between.snapshots": "4000",
    "internal.metadata.log.segment.bytes": "10240",
    "log.cleaner.backoff.ms": "500",
    "log.segment.bytes": "1048576",
}
FELICE = [sys.executable, "-m", "felice.cli.main"]
SHARE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
GROUPS = ("classic", "modern")


def load(bootstrap: str, until: float) -> list[threading.Thread]:
    """Producers that go on until Kafka is killed."""

    def produce(codec: str) -> None:
        chance = random.Random(codec)
        producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "log_level": 0})
        number = 0
        while time.monotonic() < until:
            value = chance.randbytes(chance.randrange(2_000)).hex()
            producer.produce("plain", value, key=f"{codec}-{number}", partition=number % 2)
            producer.produce("compacted", str(number), key=f"{codec}-{number % 300}", partition=number % 2)
            number += 1
            if number % 50 == 0:
                producer.flush(1)
                time.sleep(0.02)

    def transact() -> None:
        producer = imports.transactional(bootstrap, "busy")
        number = 0
        while time.monotonic() < until:
            producer.begin_transaction()
            for _ in range(20):
                producer.produce("moving", f"busy {number}", partition=number % 2)
                number += 1
            producer.flush(5)
            end = producer.abort_transaction if number % 60 == 0 else producer.commit_transaction
            with contextlib.suppress(KafkaException):  # the kill came
                end(imports.TIMEOUT_S)

    started = [threading.Thread(target=produce, args=[codec], daemon=True) for codec in CODECS]
    started.append(threading.Thread(target=transact, daemon=True))
    for thread in started:
        thread.start()
    return started


def prepare(bootstrap: str) -> None:
    imports.make_topics(bootstrap)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    changes = {"segment.ms": "1000", "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "1000"}
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in changes.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, "compacted", incremental_configs=entries)
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(imports.TIMEOUT_S)
    imports.fill(bootstrap)
    earliest = ("--alter", "--entity-type", "groups", "--entity-name", "queue")
    at = ("--bootstrap-server", bootstrap)
    run_tool("kafka.admin.ConfigCommand", *at, *earliest, "--add-config", "share.auto.offset.reset=earliest")
    run_tool(SHARE_CONSUMER, *at, "--topic", "plain", "--group", "queue", "--max-messages", "20")
    imports.commit_offsets(bootstrap, "classic")
    imports.commit_offsets(bootstrap, "modern", group_protocol="consumer")


Facts = tuple[list[imports.Row], Mapping[str, Mapping[tuple[str, int], int]], int]


def facts_of(bootstrap: str) -> Facts:
    """Records, offsets of groups, and the iterations of the user's password."""
    places = [("plain", 0), ("plain", 1)]
    groups = {group: imports.offsets_of(bootstrap, group, places) for group in GROUPS}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    users = admin.describe_user_scram_credentials(["alice"])
    user = users["alice"].result(imports.TIMEOUT_S)
    return imports.rows_of(bootstrap), groups, user.scram_credential_infos[0].iterations


def compare(ours: Facts, theirs: Facts, what: str) -> None:
    """The cleaners may have come to different places: of a compacted topic the last record of each key counts."""
    assert ours[1:] == theirs[1:], (ours[1:], theirs[1:])
    for topic in imports.TOPICS:
        one, other = ([row for row in facts[0] if row[0] == topic] for facts in (ours, theirs))
        if topic != "compacted":
            assert one == other, f"{what}: {topic} has {len(one)} and {len(other)} records"
            continue
        assert dict(_last(one)) == dict(_last(other)), f"{what}: {topic} ends differently"
        values = {row[:3]: row[3:] for row in one}
        assert all(values.get(row[:3], row[3:]) == row[3:] for row in other), topic
    print(f"{what}: {len(ours[0]):,} records, groups and users are the same", flush=True)


def _last(rows: list[imports.Row]) -> list[tuple[tuple[int, bytes | None], tuple[int, bytes | None]]]:
    return [((row[1], row[3]), (row[2], row[4])) for row in rows]


def kill_imports(source: Path, target: Path, kills: int, seed: int) -> None:
    chance, before, took_s = random.Random(seed), fingerprint(source), 3.0
    killed = 0
    for _ in range(kills):
        began = time.monotonic()
        process = subprocess.Popen([*FELICE, "import", str(source), "--to", str(target), "--json"])
        try:
            process.wait(chance.uniform(0, took_s))
            took_s = time.monotonic() - began
            shutil.rmtree(target)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            killed += 1
            if target.exists():
                shutil.rmtree(target)  # the kill came after the last step
        for rest in target.parent.glob(".*"):
            if (rest / "meta.properties").exists() and not (rest / "metadata").exists():
                _must_not_start(rest)
        assert fingerprint(source) == before, "the source has changed"
    print(f"{killed} of {kills} imports were killed; the source is unchanged", flush=True)


def _must_not_start(directory: Path) -> None:
    try:
        check_may_begin(SystemDisk(), [directory], None)
    except StartupError:
        return
    raise AssertionError(f"{directory} would start")


def timed(what: str, *words: str) -> dict[str, object]:
    began = time.monotonic()
    done = subprocess.run([*FELICE, *words, "--json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    facts: dict[str, object] = json.loads(done.stdout)
    print(f"{what}: {time.monotonic() - began:.1f} s, {facts}", flush=True)
    return facts


def with_kafka(directory: Path, work: Callable[[str], Facts]) -> Facts:
    with ApacheKafka(KAFKA, directory) as kafka:
        return work(kafka.bootstrap)


def main(seconds: float = 30, kills: int = 20) -> None:
    seed = random.randrange(10_000)
    root = Path(tempfile.mkdtemp(prefix="import-proof-"))
    print(f"in {root}, seed {seed}", flush=True)
    with ApacheKafka(KAFKA, root / "kafka") as kafka:
        prepare(kafka.bootstrap)
        until = time.monotonic() + seconds
        threads = load(kafka.bootstrap, until)
        left_open = imports.transact(kafka.bootstrap)
        time.sleep(max(0.0, until - time.monotonic() - 1))
        os.kill(kafka.pid, signal.SIGKILL)
    for thread in threads:
        thread.join(1)
    del left_open
    shutil.copytree(root / "kafka", root / "copy")
    before = fingerprint(kafka.log_dir)
    kill_imports(kafka.log_dir, root / "new", kills, seed)
    timed("import", "import", str(kafka.log_dir), "--to", str(root / "new"))
    with EmbeddedBroker(root / "new", properties={"node.id": "1"}) as broker:
        ours = facts_of(broker.bootstrap)
    assert fingerprint(kafka.log_dir) == before, "the source has changed"
    compare(ours, with_kafka(root / "copy", facts_of), "Felice and Kafka")
    (root / "back").mkdir()
    timed("export", "export", str(root / "new"), "--to", str(root / "back" / "data"))
    compare(with_kafka(root / "back", facts_of), ours, "Kafka on the export and Felice")
    shutil.rmtree(root)


if __name__ == "__main__":
    main(*(kind(word) for kind, word in zip((float, int), sys.argv[1:], strict=False)))
