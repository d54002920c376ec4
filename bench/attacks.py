"""Attacks on one broker, beside healthy clients whose waits are measured.

An attack is a function that prepares the broker and returns attackers: functions that run in their own processes
until they are killed. The targets, on two idle cores: no healthy client waits longer than a second, the broker uses
less than 256 MiB of memory, and it is idle five seconds after the attackers are gone.
"""

from __future__ import annotations

import multiprocessing
import resource
import select
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from bench.healthy import HealthyClients, Line, create_topic
from bench.systems import Felice, cpu_seconds
from bench.workloads import Figures
from felice.protocol.api import API
from felice.protocol.frames import encode_request
from felice.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from felice.protocol.messages.describe_groups import DescribeGroupsRequest
from felice.protocol.messages.describe_transactions import DescribeTransactionsRequest
from felice.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from felice.protocol.messages.fetch import FetchRequest, FetchTopic
from felice.protocol.messages.find_coordinator import FindCoordinatorRequest
from felice.protocol.messages.init_producer_id import InitProducerIdRequest
from felice.protocol.messages.list_transactions import ListTransactionsRequest
from felice.protocol.messages.metadata import MetadataRequest
from felice.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from felice.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from felice.records.builder import BatchBuilder
from felice.records.compression import Codec

ATTACK_S = 8.0
LONGEST_WAIT_MS = 1000.0
MOST_MIB = 256.0
IDLE_AFTER_S = 5.0

_OPTIONS = (
    "group.initial.rebalance.delay.ms=0",
    "offsets.topic.num.partitions=4",
    "transaction.state.log.num.partitions=4",
    "socket.listen.backlog.size=4096",
)
_BOMB_BYTES = 256 * 1024 * 1024
_MANY = 3_000_000
# Below `felice.request.max.elements`.
_ADMITTED = 49_000
_DESCRIPTORS = 256
_ANNOUNCED_BYTES = 100 * 1000 * 1000
_SENT_BYTES = 20 * 1000 * 1000
# An idle broker uses at most this share of one core.
_IDLE_SHARE = 0.05
_WINDOW_S = 0.5
_LONGEST_WAIT_FOR_IDLE_S = 120.0

Attacker = Callable[[], None]
Attack = Callable[[Felice], list[Attacker]]


def nothing(broker: Felice) -> list[Attacker]:
    """No attack: measures how long healthy clients wait otherwise."""
    return []


def metadata_flood(broker: Felice) -> list[Attacker]:
    """Each of twenty clients sends 1,000 requests for metadata of 5,000 partitions at once, and reads the responses."""
    return _metadata_clients(broker, _read_everything)


def never_read(broker: Felice) -> list[Attacker]:
    """The requests of `metadata_flood`, by clients that never read a response."""
    return _metadata_clients(broker, lambda sockets: None)


def _metadata_clients(broker: Felice, then: Callable[[list[socket.socket]], None]) -> list[Attacker]:
    create_topic(broker.bootstrap, "large", 5_000)
    data = encode_request(API.METADATA.key, 9, 1, "flood", MetadataRequest(topics=None)) * 1_000

    def attack() -> None:
        sockets = [Line(broker.bootstrap).socket for _ in range(20)]
        for each in sockets:
            each.setblocking(False)
            with suppress(BlockingIOError):
                each.send(data)
        then(sockets)
        _wait_for_the_end()

    return [attack]


def _read_everything(sockets: list[socket.socket]) -> None:
    left = list(sockets)
    while left:
        for each in select.select(left, [], [])[0]:
            try:
                is_open = bool(each.recv(1 << 20))
            except BlockingIOError:
                continue
            except OSError:
                is_open = False
            if not is_open:
                left.remove(each)


def regexes(broker: Felice) -> list[Attacker]:
    """Patterns that make a backtracking engine run for ever on a transactional id that nearly matches."""
    line = Line(broker.bootstrap)
    name = "a" * 26 + "!"
    finding = FindCoordinatorRequest(key_type=1, coordinator_keys=[name])
    while line.ask(API.FIND_COORDINATOR, 4, finding).coordinators[0].error_code:
        time.sleep(0.05)
    beginning = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
    while line.ask(API.INIT_PRODUCER_ID, 4, beginning).error_code:
        time.sleep(0.05)
    line.close()
    patterns = ["(a+)+$", "((a{1,1000}){1,1000}){1,1000}", "(" * 5000 + ")" * 5000, "a{1,99999999999}"]
    requests = [ListTransactionsRequest(transactional_id_pattern=pattern) for pattern in patterns]
    data = b"".join(encode_request(API.LIST_TRANSACTIONS.key, 2, 1, "regex", asked) for asked in requests)
    return [lambda: _send_again_and_again(broker.bootstrap, data * 20, 4)]


def decompression_bombs(broker: Felice) -> list[Attacker]:
    """Eight batches of 245 KB that expand to 256 MiB each, for a topic that the broker recompresses."""
    create_topic(broker.bootstrap, "bombs", compression_type="gzip")
    builder = BatchBuilder(codec=Codec.GZIP)
    builder.append(int(time.time() * 1000), b"k", bytes(_BOMB_BYTES))
    partition = PartitionProduceData(index=0, records=bytes(builder.build()))
    bomb = ProduceRequest(
        acks=1, timeout_ms=30_000, topic_data=[TopicProduceData(name="bombs", partition_data=[partition])]
    )
    data = encode_request(API.PRODUCE.key, 9, 1, "bomb", bomb) * 8
    return [lambda: _send_again_and_again(broker.bootstrap, data, 2)]


def huge_arrays(broker: Felice) -> list[Attacker]:
    """Requests with millions of empty elements."""
    groups = DescribeGroupsRequest(groups=[""] * _MANY)
    topics = FetchRequest(max_wait_ms=0, topics=[FetchTopic()] * _MANY)
    data = encode_request(API.DESCRIBE_GROUPS.key, 5, 1, "arrays", groups)
    data += encode_request(API.FETCH.key, 4, 1, "arrays", topics)
    return [lambda: _send_again_and_again(broker.bootstrap, data, 4)]


def large_requests(broker: Felice) -> list[Attacker]:
    """Requests with as many elements as a broker takes: markers, elections and descriptions of transactions."""
    create_topic(broker.bootstrap, "marked", 100)
    indexes = [number % 100 for number in range(_ADMITTED)]
    topic = WritableTxnMarkerTopic(name="marked", partition_indexes=indexes)
    markers = [WritableTxnMarker(producer_id=1, producer_epoch=0, transaction_result=True, topics=[topic])]
    elections = [TopicPartitions(topic="marked", partitions=list(range(_ADMITTED)))]
    names = [f"transaction-{number}" for number in range(_ADMITTED)]
    data = encode_request(API.WRITE_TXN_MARKERS.key, 1, 1, "large", WriteTxnMarkersRequest(markers=markers))
    data += encode_request(
        API.ELECT_LEADERS.key, 2, 1, "large", ElectLeadersRequest(topic_partitions=elections)
    )
    data += encode_request(
        API.DESCRIBE_TRANSACTIONS.key,
        0,
        1,
        "large",
        DescribeTransactionsRequest(transactional_ids=names),
    )
    return [lambda: _send_again_and_again(broker.bootstrap, data, 4)]


def descriptors(broker: Felice) -> list[Attacker]:
    """Opens more connections than the broker has descriptors, and creates a topic meanwhile."""
    resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (_DESCRIPTORS, _DESCRIPTORS))
    topic = CreatableTopic(name="late", num_partitions=20, replication_factor=1)
    data = encode_request(API.CREATE_TOPICS.key, 5, 1, "many", CreateTopicsRequest(topics=[topic]))

    def attack() -> None:
        held = []
        for _ in range(2 * _DESCRIPTORS):
            held.append(_begin_to_connect(broker.bootstrap))
        with suppress(OSError):
            held[0].send(data)
        _wait_for_the_end()

    return [attack]


def idle_connections(broker: Felice) -> list[Attacker]:
    """5,000 connections that send nothing."""

    def attack() -> None:
        held = [Line(broker.bootstrap) for _ in range(5_000)]
        _wait_for_the_end()
        held.clear()

    return [attack]


def slow_connections(broker: Felice) -> list[Attacker]:
    """500 connections that send requests and read responses byte by byte."""
    data = encode_request(API.METADATA.key, 9, 1, "slow", MetadataRequest(topics=None)) * 1_000

    def attack() -> None:
        held = [Line(broker.bootstrap).socket for _ in range(500)]
        for position in range(len(data)):
            for each in held:
                with suppress(OSError):
                    each.send(data[position : position + 1])
            time.sleep(0.01)

    return [attack]


def partial_requests(broker: Felice) -> list[Attacker]:
    """100 connections that announce requests of 100 MB, send 20 MB of them and stop; they connect again when closed."""
    begun = encode_request(API.METADATA.key, 9, 1, "partial", MetadataRequest(topics=None))
    data = _ANNOUNCED_BYTES.to_bytes(4, "big") + begun[4:] + bytes(_SENT_BYTES)

    def attack() -> None:
        sent: dict[socket.socket, int] = {}
        while True:
            while len(sent) < 100:
                opened = Line(broker.bootstrap).socket
                opened.setblocking(False)
                sent[opened] = 0
            waiting = [each for each, position in sent.items() if position < len(data)]
            readable, writable, _ = select.select(list(sent), waiting, [], 0.1)
            for each in writable:
                with suppress(BlockingIOError, OSError):
                    sent[each] += each.send(data[sent[each] : sent[each] + (1 << 20)])
            for each in readable:
                each.close()  # the broker answers nothing: it has closed the connection
                del sent[each]

    return [attack]


ATTACKS: dict[str, Attack] = {
    "attack-none": nothing,
    "attack-metadata-flood": metadata_flood,
    "attack-never-read": never_read,
    "attack-regexes": regexes,
    "attack-decompression-bombs": decompression_bombs,
    "attack-huge-arrays": huge_arrays,
    "attack-large-requests": large_requests,
    "attack-descriptors": descriptors,
    "attack-idle-connections": idle_connections,
    "attack-slow-connections": slow_connections,
    "attack-partial-requests": partial_requests,
}


def run_attack(name: str) -> Figures:
    """Runs one attack on a new broker.

    Returns the waits of healthy clients, the broker's peak memory, and the time until it is idle.
    """
    with Felice(*_OPTIONS) as broker:
        healthy = HealthyClients(broker.bootstrap)
        context = multiprocessing.get_context("fork")
        attackers = [context.Process(target=attack, daemon=True) for attack in ATTACKS[name](broker)]
        for attacker in attackers:
            attacker.start()
        time.sleep(ATTACK_S)
        for attacker in attackers:
            attacker.kill()
            attacker.join()
        gone = time.monotonic()
        waits = healthy.stop()
        idle_after_s = _seconds_until_idle(broker.pid, gone)
        return waits | {"peak MiB": _peak_mib(broker.pid), "idle after s": idle_after_s}


def misses(name: str, figures: Figures) -> list[str]:
    """One text for each target that the attack missed."""
    limits = {"peak MiB": MOST_MIB, "idle after s": IDLE_AFTER_S}
    limits |= {figure: LONGEST_WAIT_MS for figure in figures if figure.endswith("longest ms")}
    limits |= {figure: 0.0 for figure in figures if figure.endswith("failed")}
    return [
        f"{name}: {figure} is {figures[figure]:,.1f}, at most {limit:,.0f} is the target"
        for figure, limit in limits.items()
        if figures[figure] > limit
    ]


def _send_again_and_again(bootstrap: str, data: bytes, connections: int) -> NoReturn:
    """Each connection sends `data` and reads the response, again and again; a closed one connects again."""
    open_now: dict[socket.socket, int] = {}
    while True:
        while len(open_now) < connections:
            opened = Line(bootstrap).socket
            opened.setblocking(False)
            open_now[opened] = 0
        readable, writable, _ = select.select(list(open_now), list(open_now), [], 1.0)
        for each in set(readable) | set(writable):
            try:
                if each in writable:
                    open_now[each] = (open_now[each] + each.send(data[open_now[each] :])) % len(data)
                if each in readable and not each.recv(1 << 20):
                    raise ConnectionResetError
            except BlockingIOError:
                continue
            except OSError:
                each.close()
                del open_now[each]
                time.sleep(0.01)


def _begin_to_connect(bootstrap: str) -> socket.socket:
    host, _, port = bootstrap.rpartition(":")
    found = socket.socket()
    found.setblocking(False)
    with suppress(BlockingIOError):
        found.connect((host, int(port)))
    time.sleep(0.002)
    return found


def _wait_for_the_end() -> NoReturn:
    while True:
        time.sleep(1)


def _seconds_until_idle(pid: int, since: float) -> float:
    """Seconds from `since` until the broker was idle."""
    while True:
        before, begun = cpu_seconds(pid), time.monotonic()
        time.sleep(_WINDOW_S)
        share = (cpu_seconds(pid) - before) / (time.monotonic() - begun)
        if share <= _IDLE_SHARE or begun - since > _LONGEST_WAIT_FOR_IDLE_S:
            return begun - since


def _peak_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


def raise_own_limit() -> None:
    """Raises this process's limit of descriptors, because attackers need thousands of them."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
