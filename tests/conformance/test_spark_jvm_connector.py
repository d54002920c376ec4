"""Spark's official connector, `format("kafka")`, unmodified from Maven, reads, streams and writes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer

from conformance.targets import Target
from conformance.topics import create_topic
from conformance.wire import unique_name
from peers.cache import PROGRAMS
from peers.spark_connector import require_connector

pytest.importorskip("pyspark", reason="needs Spark: pip install 'felice[spark]'")

RECORDS = 100


def test_sparks_own_connector_reads_streams_and_writes(broker: Target, tmp_path: Path) -> None:
    jars = ",".join(map(str, require_connector()))
    topic = unique_name("connector")
    create_topic(broker, topic, partitions=2)
    create_topic(broker, f"{topic}-copy", partitions=2)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(RECORDS):
        producer.produce(topic, str(number), f"k{number}", number % 2)
    assert producer.flush(60) == 0

    program = PROGRAMS / "python" / "spark_connector.py"
    ran = subprocess.run(
        [sys.executable, str(program), broker.bootstrap, topic, jars, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    found = json.loads(ran.stdout.splitlines()[-1])
    written = sorted([f"k{number}", str(number), number % 2, number // 2] for number in range(RECORDS))
    assert found["batch"] == written
    assert found["by_time"] == RECORDS
    assert [row[:3] for row in found["copied"]] == [row[:3] for row in written]
    assert found["read_by_felice"] == RECORDS
