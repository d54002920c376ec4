"""Every broker of a cluster on real ZooKeeper is restarted as documented, under load: no request fails, nothing is
lost.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chaos.cluster.network import Loopback
from chaos.cluster.processes import BrokerNode
from chaos.cluster.run import (
    PARTITIONS,
    TOPIC,
    bootstrap_of,
    create_topic,
    require_zookeeper,
    running_cluster,
)
from chaos.load import GroupReader, Writer, read_all, reader_anomalies
from checkers.history import History, anomalies
from peers.cache import require

# Long enough for processes to start on a machine under heavy load.
_PATIENCE_S = 240.0


class Statistics:
    """The latest request statistics of a librdkafka producer."""

    def __init__(self) -> None:
        self._last: dict[str, Any] = {"brokers": {}}

    def __call__(self, text: str) -> None:
        self._last = json.loads(text)

    def total(self, name: str) -> int:
        return sum(int(broker[name]) for broker in self._last["brokers"].values())


def felice(*words: str) -> int:
    command = [sys.executable, "-m", "felice.cli.main", *words]
    return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode


def wait_until_whole(bootstrap: str) -> None:
    """Wait for the condition that docs/operations.md requires before each step."""
    deadline = time.monotonic() + _PATIENCE_S
    while felice("cluster", "--check", "--brokers", "3", "-b", bootstrap):
        assert time.monotonic() < deadline, "the cluster does not become whole"


def restart(broker: BrokerNode) -> None:
    assert broker.terminate() == 0
    broker.start_and_wait()


def roll(bootstrap: str, brokers: list[BrokerNode], step: Callable[[BrokerNode], None]) -> None:
    for broker in brokers:
        wait_until_whole(bootstrap)
        step(broker)
    wait_until_whole(bootstrap)


@pytest.mark.timeout(1800)
def test_no_request_fails_while_brokers_restart_one_by_one(tmp_path: Path) -> None:
    require("Java and PySpark", require_zookeeper)
    # No session may end by itself.
    settings = {"zookeeper.session.timeout.ms": "60000"}
    with running_cluster(tmp_path, zookeepers=1, network=Loopback(), settings=settings) as targets:
        bootstrap = bootstrap_of(targets)
        create_topic(bootstrap, TOPIC)
        kinds = {
            "idempotent": {"enable.idempotence": True, "request.timeout.ms": 60_000},
            "plain": {"enable.idempotence": False, "acks": "all", "request.timeout.ms": 60_000},
        }
        statistics = {kind: Statistics() for kind in kinds}
        writers = [
            Writer(
                kind,
                bootstrap,
                TOPIC,
                PARTITIONS,
                "lz4",
                records_a_turn=6,
                pause_s=0.01,
                options={**options, "statistics.interval.ms": 200, "stats_cb": statistics[kind]},
            )
            for kind, options in kinds.items()
        ]
        readers = [GroupReader(f"r-{number}", bootstrap, TOPIC, "readers") for number in range(2)]
        for thread in (*writers, *readers):
            thread.start()
        roll(bootstrap, list(targets.brokers), restart)
        for writer in writers:
            writer.stop()
        read = read_all(bootstrap, TOPIC, PARTITIONS)
        wanted = {(found.partition, found.offset) for found in read}
        deadline = time.monotonic() + _PATIENCE_S
        while not wanted <= set().union(*(reader.seen.keys() for reader in readers)):
            assert time.monotonic() < deadline, "the group does not get to the end"
            time.sleep(0.1)
        for reader in readers:
            reader.stop()
    assert [writer.failures for writer in writers] == [[], []]
    assert [told.total("req_timeouts") for told in statistics.values()] == [0, 0]
    idempotent, plain = (writer.written() for writer in writers)
    assert min(len(idempotent), len(plain)) > 500
    assert anomalies(History(idempotent, [one for one in read if one.writer == "idempotent"])) == []
    # Without idempotence a record may be duplicated if its leader moved before the acknowledgement, as with Kafka.
    assert {one.number for one in read if one.writer == "plain"} == {one.number for one in plain}
    assert reader_anomalies(readers, read) == []
