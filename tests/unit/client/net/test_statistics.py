"""The statistics of producers and consumers: the value of every field, on known traffic."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from felice.client import OFFSET_INVALID, TopicPartition
from felice.client.aio import Consumer, Producer
from felice.protocol.messages.metadata import MetadataRequest
from felice.protocol.messages.produce import ProduceRequest
from felice.records.builder import build_batch
from felice.records.record import Record
from unit.client.fake_broker import Disconnect, FakeBroker, Hang
from unit.client.group.test_membership import Coordinator

DAY_MS = 86_400_000
EMPTY = dict.fromkeys(
    ("min", "max", "avg", "sum", "stddev", "p50", "p75", "p90", "p95", "p99", "p99_99", "cnt"), 0
)


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker({"t": 2, "u": 1}) as started:
        yield started


def config(broker: FakeBroker, **more: Any) -> dict[str, Any]:
    """A client that counts, and does not report by itself."""
    return {
        "bootstrap.servers": f"{broker.bootstrap},127.0.0.1:1",
        "client.id": "me",
        "stats_cb": lambda text: None,
        "statistics.interval.ms": DAY_MS,
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def document(client: Producer | Consumer) -> dict[str, Any]:
    assert client._core is not None
    found: dict[str, Any] = json.loads(json.dumps(client._core.statistics.document()))
    return found


async def until(condition: Callable[[], Any]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


async def test_a_client_before_its_first_connection(broker: FakeBroker) -> None:
    async with Producer(config(broker)) as producer:
        found = document(producer)
        later = document(producer)
    assert later["age"] >= found["age"] >= 0 and later["ts"] >= found["ts"] > 0
    assert abs(found["time"] - time.time()) < 3600
    assert found["name"].startswith("me#producer-") and found["name"] == later["name"]
    keys = ("client_id", "type", "metadata_cache_cnt", "tx", "tx_bytes", "rx", "rx_bytes", "topics")
    assert [found[key] for key in keys] == ["me", "producer", 0, 0, 0, 0, 0, {}]
    assert list(found["brokers"]) == [f"{broker.bootstrap}/bootstrap", "127.0.0.1:1/bootstrap"]
    row = found["brokers"][f"{broker.bootstrap}/bootstrap"]
    assert 0 <= row.pop("stateage") <= found["age"] + 1_000_000
    assert row == {
        "name": f"{broker.bootstrap}/bootstrap",
        "nodeid": -1,
        "nodename": broker.bootstrap,
        "source": "configured",
        "state": "INIT",
        "waitresp_cnt": 0,
        "tx": 0,
        "txbytes": 0,
        "txretries": 0,
        "req_timeouts": 0,
        "rx": 0,
        "rxbytes": 0,
        "rxerrs": 0,
        "req": {},
        "connects": 0,
        "disconnects": 0,
        "int_latency": EMPTY,
        "rtt": EMPTY,
        "throttle": EMPTY,
        "toppars": {},
    }


async def test_a_producer_with_records_sent_in_flight_and_waiting(broker: FakeBroker) -> None:
    limits = {"queue.buffering.max.messages": 50, "queue.buffering.max.kbytes": 200}
    options = config(broker, linger_ms=0, max_in_flight_requests_per_connection=1, batch_num_messages=2)
    async with Producer({**options, **limits}) as producer:
        await producer.send_and_wait("t", b"1" * 100, partition=1)
        broker.script(ProduceRequest, Hang)
        await producer.send("t", b"2", partition=1)
        await until(lambda: len(broker.asked(ProduceRequest)) == 2)
        # Two are a full batch, which is ready; the third is in a batch that may still grow.
        for value in (b"3", b"4", b"5"):
            await producer.send("t", value, partition=1)
        found = document(producer)
        waiting = producer._accumulator.size_bytes
        again = document(producer)
        producer.purge()
    one = len(bytes(broker.logs["t", 1]))
    assert (found["msg_cnt"], found["msg_size"]) == (4, waiting)
    assert (found["msg_max"], found["msg_size_max"]) == (50, 200 * 1024)
    assert (found["txmsgs"], found["txmsg_bytes"]) == (1, one)
    assert found["metadata_cache_cnt"] == 1
    topic = found["topics"]["t"]
    assert topic["topic"] == "t" and set(found["topics"]) == {"t"}
    sizes, counts = topic["batchsize"], topic["batchcnt"]
    assert (sizes["cnt"], sizes["max"], counts["cnt"], counts["sum"]) == (2, one, 2, 2)
    row = topic["partitions"]["1"]
    assert 0 < row.pop("xmit_msgq_bytes") < waiting
    assert row == {
        "partition": 1,
        "broker": 1,
        "leader": 1,
        "txmsgs": 1,
        "txbytes": one,
        "msgs": 1,
        "xmit_msgq_cnt": 2,
        "msgs_inflight": 1,
    }
    assert list(topic["partitions"]) == ["1"]
    assert list(found["brokers"]) == [f"{broker.bootstrap}/1", "127.0.0.1:1/bootstrap"]
    known = found["brokers"][f"{broker.bootstrap}/1"]
    assert (known["nodeid"], known["source"], known["state"]) == (1, "learned", "UP")
    assert (known["waitresp_cnt"], known["req"]["Produce"], known["connects"]) == (1, 2, 1)
    assert known["tx"] == sum(known["req"].values()) == len(broker.requests) == found["tx"]
    assert known["rx"] == known["tx"] - 1 == found["rx"] == known["rtt"]["cnt"] == known["throttle"]["cnt"]
    assert known["txbytes"] == found["tx_bytes"] > 100 and known["rxbytes"] == found["rx_bytes"] > 0
    assert known["int_latency"]["cnt"] > 0 and known["rtt"]["min"] > 0
    assert known["toppars"] == {"t-1": {"topic": "t", "partition": 1}}
    # A window is of one interval; a counter is of the client's life.
    assert again["topics"]["t"]["batchsize"]["cnt"] == 0 and again["txmsgs"] == 1


async def test_lost_connections_and_retries_are_counted(broker: FakeBroker) -> None:
    options = config(broker, linger_ms=0, retry_backoff_ms=5, retry_backoff_max_ms=10)
    async with Producer(options) as producer:
        broker.script(ProduceRequest, Disconnect)
        await producer.send_and_wait("t", b"v", partition=1)
        row = document(producer)["brokers"][f"{broker.bootstrap}/1"]
    assert (row["connects"], row["disconnects"], row["txretries"], row["state"]) == (2, 1, 1, "UP")


async def test_a_broker_that_was_lost_is_down(broker: FakeBroker) -> None:
    async with Producer(config(broker)) as producer:
        await producer.metadata(["t"])
        core, _ = producer._started()
        [connection] = core.cluster.connections("127.0.0.1", broker.port)
        connection.close()
        row = document(producer)["brokers"][f"{broker.bootstrap}/1"]
    assert (row["connects"], row["state"]) == (1, "DOWN")


@pytest.mark.parametrize(
    ("is_known", "eos"),
    [
        (
            False,
            {
                "idemp_state": "Init",
                "txn_state": "Init",
                "txn_may_enq": False,
                "producer_id": -1,
                "producer_epoch": -1,
            },
        ),
        (
            True,
            {
                "idemp_state": "Assigned",
                "txn_state": "InTransaction",
                "txn_may_enq": True,
                "producer_id": 7,
                "producer_epoch": 0,
            },
        ),
    ],
)
async def test_the_state_of_a_transaction(broker: FakeBroker, is_known: bool, eos: dict[str, Any]) -> None:
    async with Producer(config(broker, transactional_id="x")) as producer:
        if is_known:
            await producer.init_transactions()
            await producer.begin_transaction()
        assert document(producer)["eos"] == eos
        if is_known:
            await producer.commit_transaction()


async def test_a_consumer_with_a_lag(broker: FakeBroker) -> None:
    for value in (b"0", b"1", b"2", b"3"):
        broker.append("t", 0, build_batch([Record(0, 1, None, value)]))
    size = len(bytes(broker.logs["t", 0]))
    options = config(broker, enable_auto_commit=False, group_id="g", fetch_wait_max_ms=10)
    async with Consumer(options) as consumer:
        assert "cgrp" not in document(consumer)
        consumer.assign([TopicPartition("t", 0, 0), TopicPartition("t", 1, 0), TopicPartition("u", 0)])
        await until(lambda: ("t", 0) in consumer.core.delivery.received)
        waiting = document(consumer)["topics"]["t"]["partitions"]["0"]
        assert (waiting["fetchq_cnt"], waiting["app_offset"], waiting["consumer_lag"]) == (4, 0, 4)
        assert len(await consumer.consume(2, 60)) == 2
        consumer.pause([TopicPartition("t", 1)])
        found = document(consumer)
        partition = consumer.core.subscription.of("t", 0)
        fetched = consumer.core.delivery.received["t", 0]
        buffered = partition.lease.buffered_bytes
        partition.committed = 1
        partition.stored = (3, -1)
        stored = document(consumer)["topics"]["t"]["partitions"]["0"]
    assert (found["type"], found["rxmsgs"], found["rxmsg_bytes"]) == ("consumer", *fetched)
    assert fetched == (4, size)
    read = found["topics"]["t"]["partitions"]["0"]
    assert read.pop("fetchq_cnt") <= 4
    assert read == {
        "partition": 0,
        "broker": 1,
        "leader": 1,
        "fetch_state": "active",
        "fetchq_size": buffered,
        "next_offset": 4,
        "app_offset": 2,
        "stored_offset": 2,
        "committed_offset": OFFSET_INVALID,
        "lo_offset": 0,
        "hi_offset": 4,
        "consumer_lag": 2,
        "consumer_lag_stored": 2,
        "leader_epoch": broker.leader_epoch,
        "rxmsgs": 4,
        "rxbytes": size,
        "msgs": 4,
    }
    paused = found["topics"]["t"]["partitions"]["1"]
    assert (paused["fetch_state"], paused["msgs"], paused["rxbytes"]) == ("stopped", 0, 0)
    assert (stored["stored_offset"], stored["committed_offset"]) == (3, 1)
    assert (stored["consumer_lag"], stored["consumer_lag_stored"]) == (3, 1)


async def test_a_partition_whose_start_is_not_known_yet(broker: FakeBroker) -> None:
    broker.script(MetadataRequest, Hang)
    async with Consumer(config(broker, enable_auto_commit=False, group_id="g")) as consumer:
        consumer.assign([TopicPartition("u", 0)])
        row = document(consumer)["topics"]["u"]["partitions"]["0"]
    offsets = ("next_offset", "app_offset", "stored_offset", "committed_offset", "lo_offset", "hi_offset")
    assert [row[key] for key in offsets] == [OFFSET_INVALID] * 6
    assert (row["consumer_lag"], row["consumer_lag_stored"], row["leader"]) == (-1, -1, -1)
    assert row["fetch_state"] == "offset-query"


async def test_statistics_are_reported_at_their_interval(broker: FakeBroker) -> None:
    reports: list[str] = []
    options = config(broker, statistics_interval_ms=20)
    async with Producer({**options, "stats_cb": reports.append}):
        await until(lambda: len(reports) >= 2)
    assert json.loads(reports[0])["client_id"] == "me"


async def test_the_state_of_a_group() -> None:
    with Coordinator() as coordinator:
        options = config(coordinator, group_id="g", enable_auto_commit=False, heartbeat_interval_ms=50)
        async with Consumer(options) as consumer:
            await consumer.subscribe(["t"])
            joining = document(consumer)["cgrp"]
            age = joining.pop("rebalance_age")
            assert 0 <= age < 60_000
            assert joining == {
                "state": "wait-coord",
                "join_state": "wait-join",
                "rebalance_cnt": 0,
                "rebalance_reason": "first join",
                "assignment_size": 0,
            }
            while not consumer.assignment():
                await consumer.poll(0.05)
            joined = document(consumer)["cgrp"]
            del joined["rebalance_age"]
            assert joined == {
                "state": "up",
                "join_state": "steady",
                "rebalance_cnt": 1,
                "rebalance_reason": "first join",
                "assignment_size": 1,
            }
            membership = consumer.core.membership
            assert membership is not None and membership.member.joined
            await consumer.unsubscribe()
            assert not membership.member.joined and membership.member.member_id == ""
