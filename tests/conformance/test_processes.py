"""`felice start --processes`: brokers as processes, and the metadata store in their parent."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from chaos.load import read_all
from conformance.topics import PRODUCE_BY_NAME, batch_of, produce_request
from conformance.wire import Wire
from felice.env.ports import free_ports
from felice.protocol.errors import ErrorCode
from waiting import wait_until

OPTIONS = ("-o", "offsets.topic.num.partitions=3", "-o", "replica.lag.time.max.ms=3000")
# Long enough for several processes to start on a machine under heavy load.
WAIT_S = 120.0

pytestmark = pytest.mark.timeout(1800)


class Group:
    def __init__(self, data_dir: Path, *words: str) -> None:
        self._log = data_dir.with_name(data_dir.name + ".stderr")
        command = [
            sys.executable,
            "-m",
            "felice.cli.main",
            "start",
            "--data-dir",
            str(data_dir),
            *OPTIONS,
            *words,
        ]
        with self._log.open("ab") as stderr:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True)
        assert self.process.stdout is not None
        self.ports = [int(port) for port in re.findall(r":(\d+)", self.process.stdout.readline())]
        assert self.ports, self._log.read_text()
        self.bootstrap = ",".join(f"127.0.0.1:{port}" for port in self.ports)

    def child(self, number: int) -> int:
        """The process of broker `number`, from 1."""
        return children_of(self.process.pid)[f"node.id={number}"]

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(how)
        code = self.process.wait(WAIT_S)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return code


def children_of(parent: int) -> dict[str, int]:
    """The ids of the child processes, by the node id in their command."""
    found = {}
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().decode().split("\0")
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except (OSError, NotADirectoryError):
            continue
        if len(fields) > 1 and int(fields[1]) == parent:
            found.update({word: int(entry.name) for word in words if word.startswith("node.id=")})
    return found


def is_alive(pid: int) -> bool:
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@contextmanager
def running(data_dir: Path, *words: str) -> Iterator[Group]:
    group = Group(data_dir, *(words or ("--processes", "3", "--port", "0")))
    try:
        yield group
    finally:
        if group.process.poll() is None:
            group.end()


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), WAIT_S).close()
    except OSError:
        return False
    return True


def create(group: Group, topic: str, partitions: int = 3) -> None:
    admin = AdminClient({"bootstrap.servers": group.bootstrap})
    config = {"min.insync.replicas": "2"}
    admin.create_topics([NewTopic(topic, partitions, 3, config=config)])[topic].result(WAIT_S)


def send(group: Group, topic: str, first: int, count: int) -> None:
    """Produces records that `read_all` understands; all are acknowledged."""
    producer = Producer({"bootstrap.servers": group.bootstrap, "enable.idempotence": True, "linger.ms": 5})
    failures: list[Any] = []
    for number in range(first, first + count):
        producer.produce(
            topic,
            f"w:{number}:",
            partition=number % 3,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    assert producer.flush(WAIT_S) == 0
    assert not failures


def numbers(group: Group, topic: str) -> list[int]:
    return sorted(read.number for read in read_all(group.bootstrap, topic, 3))


def led_by(group: Group, topic: str, broker_id: int) -> int:
    """A partition that the broker leads."""
    found = AdminClient({"bootstrap.servers": group.bootstrap}).list_topics(topic, timeout=60).topics[topic]
    return next(partition.id for partition in found.partitions.values() if partition.leader == broker_id)


def isr_sizes(group: Group, topic: str) -> list[int]:
    found = AdminClient({"bootstrap.servers": group.bootstrap}).list_topics(topic, timeout=60).topics[topic]
    return [len(partition.isrs) for partition in found.partitions.values()]


def test_a_broker_that_is_killed_is_started_again_and_nothing_is_lost(tmp_path: Path) -> None:
    with running(tmp_path / "data") as group:
        create(group, "t")
        send(group, "t", 0, 300)
        first = group.child(2)
        os.kill(first, signal.SIGKILL)
        send(group, "t", 300, 300)
        wait_until(lambda: children_of(group.process.pid).get("node.id=2", first) != first, WAIT_S)
        wait_until(lambda: listens(group.ports[1]), WAIT_S)
        wait_until(lambda: isr_sizes(group, "t") == [3, 3, 3], WAIT_S)
        assert numbers(group, "t") == list(range(600))
        assert group.end() == 0
        assert not children_of(group.process.pid)


def test_a_suspended_broker_loses_its_leaderships_and_rejoins(tmp_path: Path) -> None:
    with running(tmp_path / "data") as group:
        create(group, "t")
        send(group, "t", 0, 30)
        still = group.child(3)
        led = led_by(group, "t", 3)
        with Wire(f"127.0.0.1:{group.ports[2]}") as wire:
            late = produce_request("t", batch_of(b"w:999:"), led, acks=1)
            os.kill(still, signal.SIGSTOP)
            try:
                send(group, "t", 30, 300)  # as soon as the session has ended and others lead
                correlation_id = wire.send(late, PRODUCE_BY_NAME)
            finally:
                os.kill(still, signal.SIGCONT)
            # It reads this before it hears from the keeper that its session has ended.
            (topic,) = wire.receive(late, PRODUCE_BY_NAME, correlation_id).responses
            assert topic.partition_responses[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        wait_until(lambda: isr_sizes(group, "t") == [3, 3, 3], WAIT_S)
        assert numbers(group, "t") == list(range(330))
        assert group.child(3) == still, "the process was not started again: it rejoined"


def test_brokers_do_not_outlive_the_keeper_of_their_store(tmp_path: Path) -> None:
    with running(tmp_path / "data") as group:
        pids = list(children_of(group.process.pid).values())
        assert len(pids) == 3
        group.end(signal.SIGKILL)
        wait_until(lambda: not any(map(is_alive, pids)), WAIT_S)


def test_data_serves_brokers_of_one_process_too(tmp_path: Path) -> None:
    with running(tmp_path / "data") as group:
        create(group, "t")
        send(group, "t", 0, 30)
    with running(tmp_path / "data", "--brokers", "3", "--port", "0") as group:
        assert numbers(group, "t") == list(range(30))


def _start_two(tmp_path: Path, port: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "felice.cli.main", "start", "--processes", "2", "--port", str(port)]
    command += ["--data-dir", str(tmp_path / "data")]
    return subprocess.run(command, capture_output=True, text=True, timeout=2 * WAIT_S)


def test_a_port_in_use_is_noticed_before_any_broker_starts(tmp_path: Path) -> None:
    for _ in range(10):
        try:
            with socket.create_server(("127.0.0.1", free_ports(1)[0])) as taken:
                port = taken.getsockname()[1]
                done = _start_two(tmp_path, port - 1)
        except OSError:  # another process took the port meanwhile
            continue
        # The port before may belong to another process, and then the command names that one.
        if f"127.0.0.1:{port - 1}: address already in use" not in done.stderr:
            break
    else:
        pytest.fail("no two free ports")
    assert done.returncode == 1
    assert f"cannot listen on PLAINTEXT://127.0.0.1:{port}: address already in use" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.glob("data/broker-*"))


def test_a_broker_that_cannot_start_stops_all_brokers_of_the_command(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "broker-2").write_text("a file where the directory of the broker belongs")
    for _ in range(10):
        [port] = free_ports(1)
        done = _start_two(tmp_path, port)
        if "address already in use" not in done.stderr:  # another process took one of the two ports meanwhile
            break
    else:
        pytest.fail("no two free ports")
    assert done.returncode == 1
    assert "broker 2 did not start" in done.stderr
    assert "Traceback" not in done.stderr
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), WAIT_S).close()
