"""kill -9 during load, eight times: every acknowledged record is there, once, in order.

A killed process leaves the page cache behind, so even without a sync no acknowledged record may be missing
(docs/invariants.md). The checker is `checkers.history`.
"""

from __future__ import annotations

import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from chaos.load import Writer, read_all
from checkers.history import History, anomalies

PARTITIONS = 3
KILLS = 8
# Long enough for a machine under heavy load.
WAIT_S = 120.0
# Small segments, so that kills hit segment rolls too.
OPTIONS = ["-o", "log.segment.bytes=1048576", "-o", "log.index.interval.bytes=512"]


class Broker:
    """`felice start` with one port and directory, killed and started again."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._process: subprocess.Popen[str] | None = None
        self.port = 0

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        command = [str(Path(sys.executable).parent / "felice"), "start", "--port", str(self.port)]
        self._process = subprocess.Popen(
            [*command, "--data-dir", str(self._data_dir), *OPTIONS], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        found = re.search(r":(\d+)\s*$", line)
        assert found, f"the broker did not come back: {line!r}"
        self.port = int(found[1])

    def end(self, how: signal.Signals) -> int:
        assert self._process is not None
        assert self._process.stdout is not None
        self._process.send_signal(how)
        code = self._process.wait(WAIT_S)
        self._process.stdout.close()
        return code


@contextmanager
def running(data_dir: Path) -> Iterator[Broker]:
    broker = Broker(data_dir)
    broker.start()
    try:
        yield broker
    finally:
        broker.end(signal.SIGKILL)


def create_topic(bootstrap: str) -> str:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("promises", PARTITIONS, 1)])["promises"].result(WAIT_S)
    return "promises"


def wait_for_acknowledgements(writer: Writer, count: int, timeout_s: float = WAIT_S) -> None:
    deadline = time.monotonic() + timeout_s
    while sum(offset is not None for offset in list(writer.offsets.values())) < count:
        assert time.monotonic() < deadline, f"fewer than {count} records were acknowledged in {timeout_s} s"
        time.sleep(0.05)


@pytest.mark.timeout(1800)
def test_nothing_acknowledged_is_lost_by_eight_kills(tmp_path: Path) -> None:
    rng = random.Random(20130101)
    with running(tmp_path / "data") as broker:
        topic = create_topic(broker.bootstrap)
        writers = [
            Writer(f"w-{codec}", broker.bootstrap, topic, PARTITIONS, codec)
            for codec in ("none", "lz4", "zstd")
        ]
        for writer in writers:
            writer.start()
        for _ in range(KILLS):
            time.sleep(rng.uniform(0.1, 0.8))
            broker.end(signal.SIGKILL)
            broker.start()
        for writer in writers:
            writer.stop()
        history = History(
            [record for writer in writers for record in writer.written()],
            read_all(broker.bootstrap, topic, PARTITIONS),
        )
    assert not [failure for writer in writers for failure in writer.failures]
    assert len(history.acknowledged) > 1000, "the load was too small for a check"
    assert anomalies(history) == []


def test_a_clean_stop_ends_with_success_and_leaves_nothing_to_recover(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    broker = Broker(data_dir)
    broker.start()
    topic = create_topic(broker.bootstrap)
    writer = Writer("w", broker.bootstrap, topic, PARTITIONS, "none")
    writer.start()
    wait_for_acknowledgements(writer, 100)
    writer.stop()
    assert broker.end(signal.SIGTERM) == 0
    assert (data_dir / ".kafka_cleanshutdown").exists()
    with running(data_dir) as again:
        assert anomalies(History(writer.written(), read_all(again.bootstrap, topic, PARTITIONS))) == []
