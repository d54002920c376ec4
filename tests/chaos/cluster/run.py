"""Chaos: a cluster of real processes under load and faults, and the check of what its clients recorded.

    make chaos MINUTES=30 ARGS="--seed 7"

Three brokers and three ZooKeeper servers, in network namespaces where that is allowed, are killed, paused, cut off,
restarted, and their disks are filled, one fault after another. Idempotent producers, a group of consumers and
transactional copiers (Java, librdkafka, ours) run all the while.
Exit code 0 means that the checkers found no anomaly.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import click
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from chaos.cluster.faults import USUAL_PACE, Fault, Nemesis, Pace, Targets, faults_for
from chaos.cluster.network import Loopback, Namespaces
from chaos.cluster.processes import BrokerNode, Network, ZooKeeperNode
from chaos.load import Copying, GroupReader, Writer, copy_anomalies, read_all, reader_anomalies
from checkers.history import History, anomalies
from felice.ensemble.files import EnsembleError, find_jars
from felice.env.java import JavaNotFound, find_java
from peers.cache import PeerMissing

TOPIC = "promises"
PARTITIONS = 6
COPY_PARTITIONS = 2
COPIERS = ("java", "confluent-kafka", "felice")
SMALL_DISK_MB = 768
SETTINGS = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "6",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "6",
    "group.initial.rebalance.delay.ms": "500",
    "zookeeper.session.timeout.ms": "4000",
    "replica.lag.time.max.ms": "5000",
    "log.segment.bytes": str(4 * 1024 * 1024),
}
# Long enough for a machine under heavy load.
_PATIENCE_S = 300.0
# Errors of a request that may succeed later: a broker is missing, does not answer, or cannot reach ZooKeeper.
_PASSING = {
    KafkaError.INVALID_REPLICATION_FACTOR,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.NOT_CONTROLLER,
    KafkaError.KAFKA_STORAGE_ERROR,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._TRANSPORT,
}
PATIENT = {"message.timeout.ms": 600_000, "request.timeout.ms": 5_000, "socket.timeout.ms": 10_000}


@dataclass(slots=True)
class Outcome:
    """What a chaos run did, and the anomalies that were found."""

    minutes: float
    faults: dict[str, int] = field(default_factory=dict)
    acknowledged: int = 0
    read: int = 0
    copies: dict[str, str] = field(default_factory=dict)
    anomalies: list[str] = field(default_factory=list)


@contextmanager
def running_cluster(
    directory: Path,
    brokers: int = 3,
    zookeepers: int = 3,
    network: Network | None = None,
    settings: Mapping[str, str] | None = None,
) -> Iterator[Targets]:
    """Start everything and wait until topics can be created; stop everything at the end, also after an error.

    `settings` change those of the brokers.
    """
    with ExitStack() as stack:
        network = network or (Namespaces() if Namespaces.is_possible() else Loopback())
        stack.callback(network.close)
        ensemble = ZooKeeperNode.ensemble(zookeepers, network, directory)
        connect = ",".join(node.client_address for node in ensemble)
        nodes = [
            BrokerNode(
                number,
                network,
                directory / f"b{number}",
                f"{connect}/chaos",
                {**SETTINGS, **(settings or {})},
            )
            for number in range(1, brokers + 1)
        ]
        for node in nodes:
            if has_small_disks(network):
                stack.callback(_unmount, node.data)
                _mount(node.data)
        for process in (*ensemble, *nodes):
            stack.callback(process.kill)
        for process in ensemble:
            process.start()
        for process in ensemble:
            process.wait_until_serving()
        for node in nodes:
            node.start_and_wait()
        yield Targets(network, nodes, ensemble)


def has_small_disks(network: Network) -> bool:
    """Whether small file systems can be mounted: that needs the same rights as namespaces."""
    return network.can_cut


def _mount(path: Path) -> None:
    """Mount a file system of its own, small enough to be filled."""
    path.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK_MB}m", "tmpfs", str(path)],
        check=True,
        capture_output=True,
    )


def _unmount(path: Path) -> None:
    subprocess.run(["umount", "-l", str(path)], capture_output=True, check=False)


def require_zookeeper() -> None:
    """Check that Java and ZooKeeper's jars are there; raises `PeerMissing`."""
    try:
        find_java()
        find_jars(with_logs=False, with_tls=False)
    except (JavaNotFound, EnsembleError) as missing:
        raise PeerMissing(str(missing)) from missing


def bootstrap_of(targets: Targets) -> str:
    return ",".join(broker.bootstrap for broker in targets.brokers)


def create_topic(bootstrap: str, name: str, partitions: int = PARTITIONS) -> None:
    """Create a topic on three brokers; try again while one of them is missing or does not answer."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = NewTopic(name, partitions, 3, config={"min.insync.replicas": "2"})
    deadline = time.monotonic() + _PATIENCE_S
    has_failed = False
    while True:
        try:
            admin.create_topics([topic])[name].result(_PATIENCE_S)
            return
        except KafkaException as error:
            code = error.args[0].code()
            # An earlier request, whose answer did not come, may have created the topic.
            if has_failed and code == KafkaError.TOPIC_ALREADY_EXISTS:
                return
            if code not in _PASSING or time.monotonic() >= deadline:
                raise
        has_failed = True
        time.sleep(0.5)


def put_under_load(
    targets: Targets,
    faults: list[Fault],
    seed: int,
    minutes: float,
    directory: Path,
    *,
    copiers: Sequence[str] = COPIERS,
    pace: Pace = USUAL_PACE,
    least_faults: int = 0,
) -> Outcome:
    """Cause faults for these minutes, or longer for `least_faults`, and check what the clients recorded."""
    bootstrap = bootstrap_of(targets)
    create_topic(bootstrap, TOPIC)
    writers = [_writer(f"w-{codec}", bootstrap, TOPIC, codec) for codec in ("none", "lz4", "zstd")]
    copyings = []
    for number, client in enumerate(copiers):
        for name in (f"source-{client}", f"target-{client}"):
            create_topic(bootstrap, name, COPY_PARTITIONS)
        writers.append(_writer(f"c-{client}", bootstrap, f"source-{client}", "none", COPY_PARTITIONS))
        copyings.append(
            Copying(client, bootstrap, f"source-{client}", f"target-{client}", 1000 * seed + number)
        )
    readers = [GroupReader(f"r-{number}", bootstrap, TOPIC, "readers") for number in range(3)]
    nemesis = Nemesis(targets, faults, seed, pace, directory / "faults.log")
    for thread in (*writers, *copyings, *readers, nemesis):
        thread.start()
    _wait(minutes * 60, nemesis, least_faults)
    nemesis.stop()
    for writer in writers:
        writer.stop()
    read = read_all(bootstrap, TOPIC, PARTITIONS)
    _let_readers_finish(readers, {(found.partition, found.offset) for found in read})
    history = History([record for writer in writers[:3] for record in writer.written()], read)
    faults_found = [*anomalies(history), *reader_anomalies(readers, read), *_complaints(targets)]
    for copying, client, writer in zip(copyings, copiers, writers[3:], strict=True):
        copying.stop()
        source = read_all(bootstrap, f"source-{client}", COPY_PARTITIONS)
        copied = read_all(bootstrap, f"target-{client}", COPY_PARTITIONS, "read_committed")
        faults_found += anomalies(History(writer.written(), source))
        faults_found += copy_anomalies(f"copy by {client}", source, copied)
    faults_found += [f"{writer.name}: {error}" for writer in writers for error in writer.failures]
    if nemesis.failure is not None:
        faults_found.append(f"a fault could not be repaired: {nemesis.failure!r}")
    copies = {
        copying.name: f"{copying.transactions} transactions in {copying.lives} runs, {copying.kills} killed"
        for copying in copyings
    }
    return Outcome(minutes, dict(nemesis.done), len(history.acknowledged), len(read), copies, faults_found)


def _writer(name: str, bootstrap: str, topic: str, codec: str, partitions: int = PARTITIONS) -> Writer:
    return Writer(name, bootstrap, topic, partitions, codec, records_a_turn=6, pause_s=0.05, options=PATIENT)


def _wait(seconds: float, nemesis: Nemesis, least_faults: int) -> None:
    deadline = time.monotonic() + seconds
    last = deadline + _PATIENCE_S
    while nemesis.failure is None and time.monotonic() < (
        deadline if nemesis.done.total() >= least_faults else last
    ):
        time.sleep(0.5)


def _let_readers_finish(
    readers: list[GroupReader], wanted: set[tuple[int, int]], timeout_s: float = _PATIENCE_S
) -> None:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if wanted <= set().union(*(set(reader.seen) for reader in readers)):
            break
        time.sleep(0.5)
    for reader in readers:
        reader.stop()


def _complaints(targets: Targets) -> list[str]:
    """Tracebacks in the brokers' output: injected faults do not excuse them, they are errors of the code."""
    return [
        f"{broker.name} has {count} tracebacks in {broker.log}"
        for broker in targets.brokers
        if (count := broker.log.read_text(errors="replace").count("Traceback (most recent call last)"))
    ]


@click.command()
@click.option("--minutes", type=float, default=30.0, show_default=True)
@click.option("--seed", type=int, default=1, show_default=True, help="Which faults come in which order.")
@click.option(
    "--directory", type=click.Path(file_okay=False, path_type=Path), help="Kept; else a temporary one."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def main(minutes: float, seed: int, directory: Path | None, as_json: bool) -> None:
    """Put a cluster of real processes under load and faults, and check what its clients recorded."""
    where = directory or Path(tempfile.mkdtemp(prefix="felice-chaos-"))
    if where.exists() and any(where.iterdir()):
        raise click.UsageError(f"{where} is not empty: files of an earlier run would count as this one's")
    where.mkdir(parents=True, exist_ok=True)
    with running_cluster(where) as targets:
        faults = faults_for(targets.network, small_disks=has_small_disks(targets.network))
        outcome = put_under_load(targets, faults, seed, minutes, where)
    _show(outcome, as_json)
    if outcome.anomalies:
        click.echo(f"the output of the processes is in {where}", err=True)
        sys.exit(1)
    if directory is None:
        shutil.rmtree(where, ignore_errors=True)


def _show(outcome: Outcome, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(vars_of(outcome)))
        return
    click.echo(
        f"{outcome.minutes:g} minutes, {outcome.acknowledged:,} records acknowledged, {outcome.read:,} read"
    )
    for name, count in sorted(outcome.faults.items()):
        click.echo(f"  {count:4} × {name.replace('_', ' ')}")
    for name, said in outcome.copies.items():
        click.echo(f"  {name}: {said}")
    click.echo("no anomaly" if not outcome.anomalies else f"{len(outcome.anomalies)} anomalies:")
    for line in outcome.anomalies[:50]:
        click.echo(f"  {line}")


def vars_of(outcome: Outcome) -> dict[str, object]:
    return {name: getattr(outcome, name) for name in outcome.__dataclass_fields__}


if __name__ == "__main__":
    main()
