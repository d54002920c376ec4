"""A directory of a killed Apache Kafka 4.3 is imported, and Kafka's own consumer reads it from Felice."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from conformance import imports
from felice.cli.main import felice, run
from felice.server.process.embedded import EmbeddedBroker
from peers.apache_kafka import ApacheKafka
from peers.java import require_java, run_tool
from unit.migration.kafka_files import fingerprint
from waiting import wait_until

pytestmark = pytest.mark.felice_only

KAFKA = {
    "group.initial.rebalance.delay.ms": "0",
    # Several snapshots of the metadata, and a log behind the last one.
    "metadata.log.max.record.bytes.between.snapshots": "2000",
    "internal.metadata.log.segment.bytes": "10240",
}


@pytest.fixture(scope="module", autouse=True)
def _java() -> None:
    require_java()


def test_kafkas_consumer_reads_every_record_at_its_offset(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with ApacheKafka(KAFKA, tmp_path / "kafka") as kafka:
        imports.make_topics(kafka.bootstrap)
        imports.fill(kafka.bootstrap)
        left_open = imports.transact(kafka.bootstrap)
        groups = {
            "classic": imports.commit_offsets(kafka.bootstrap, "classic"),
            "modern": imports.commit_offsets(kafka.bootstrap, "modern", group_protocol="consumer"),
        }
        rows = imports.rows_of(kafka.bootstrap)
        capsys.readouterr()
        assert run(felice, ["import", str(kafka.log_dir), "--to", str(tmp_path / "new")]) == 1
        assert "is in use by a running Kafka" in capsys.readouterr().err
        os.kill(kafka.pid, signal.SIGKILL)
    del left_open
    before = fingerprint(kafka.log_dir)
    assert run(felice, ["import", str(kafka.log_dir), "--to", str(tmp_path / "new"), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert [one["transactional_id"] for one in facts["open_transactions"]] == [imports.OPEN]
    assert facts["left"] == []
    with EmbeddedBroker(tmp_path / "new", properties={"node.id": str(facts["node_id"])}) as broker:
        assert _read_by_kafka(broker.bootstrap, len(rows)) == sorted(map(_line, rows))
        for group, offsets in groups.items():
            assert imports.offsets_of(broker.bootstrap, group, list(offsets)) == offsets
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        users = admin.describe_user_scram_credentials(["alice"])
        assert users["alice"].result(imports.TIMEOUT_S).scram_credential_infos[0].iterations == 4096
        _end_the_open_transaction(broker.bootstrap)
        _write_and_read(broker.bootstrap)
    assert fingerprint(kafka.log_dir) == before


def _line(row: imports.Row) -> str:
    _, partition, offset, key, value = row
    return f"Partition:{partition}\tOffset:{offset}\t{_text(key)}\t{_text(value)}"


def _text(data: bytes | None) -> str:
    return "null" if data is None else data.decode()


def _read_by_kafka(bootstrap: str, count: int) -> list[str]:
    """The lines of one run of the console consumer over all topics, sorted."""
    shown = ("print.key", "print.offset", "print.partition")
    options = [part for name in shown for part in ("--formatter-property", f"{name}=true")]
    topics = ("--include", "|".join(imports.TOPICS), "--from-beginning", "--max-messages", str(count))
    consumer = "org.apache.kafka.tools.consumer.ConsoleConsumer"
    done = run_tool(consumer, "--bootstrap-server", bootstrap, *topics, *options)
    return sorted(done.stdout.splitlines())


def _end_the_open_transaction(bootstrap: str) -> None:
    """The producer comes back under its name: what it left is aborted, and readers of committed records go on."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "committed",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    imports.transactional(bootstrap, imports.OPEN)
    consumer.subscribe(["moving"])
    values: list[bytes] = []

    def all_committed() -> bool:
        values.extend(one.value() for one in consumer.consume(10, 0.1) if one.error() is None)
        return len(values) >= 10

    wait_until(all_committed, imports.TIMEOUT_S)
    assert sorted(values) == sorted(f"commit_transaction {number}".encode() for number in range(10))
    consumer.close()


def _write_and_read(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    producer.produce("plain", "new", partition=0)
    assert producer.flush(imports.TIMEOUT_S) == 0
    assert imports.rows_of(bootstrap, ["plain"])[-1][4] is not None
