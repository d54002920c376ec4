"""A broker whose options come from the environment variables of Kafka's container images, as a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from conformance.live_process import READY, STOP_TIMEOUT_S
from felice.client import Consumer, Producer, TopicPartition
from waiting import LIMIT_S

pytestmark = pytest.mark.felice_only


@pytest.mark.parametrize("prefix", ["KAFKA_", "KAFKA_CFG_"])
def test_a_process_takes_its_options_from_variables(prefix: str, tmp_path: Path) -> None:
    settings = {
        "NODE_ID": "3",
        "PROCESS_ROLES": "broker,controller",
        "CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "CONTROLLER_QUORUM_VOTERS": "3@localhost:9093",
        "LISTENERS": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "LOG_DIRS": str(tmp_path / "data"),
        "NUM_PARTITIONS": "5",
        "OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
    }
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "felice.cli.main",
            "broker",
            "--environment-options",
            "--log-level",
            "warning",
        ],
        env={**os.environ, **{f"{prefix}{name}": value for name, value in settings.items()}},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith(READY), process.communicate()
        bootstrap = line.removeprefix(READY).strip()
        with Producer({"bootstrap.servers": bootstrap}) as producer:
            producer.produce("t", b"v", partition=4)
        with Consumer({"bootstrap.servers": bootstrap, "group.id": "g"}) as consumer:
            consumer.assign([TopicPartition("t", 4, 0)])
            message = consumer.poll(LIMIT_S)
            assert message is not None and message.value() == b"v"
            assert list(consumer.list_topics(timeout=LIMIT_S).brokers) == [3]
    finally:
        process.terminate()
        _, err = process.communicate(timeout=STOP_TIMEOUT_S)
    assert "not read" not in err
