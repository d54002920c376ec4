"""The offsets of connectors in a topic of the cluster: read to its end, written where Kafka's workers write them."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from felice.client import Producer, murmur2
from felice.pipelines.connect.model.errors import ConnectError
from felice.pipelines.connect.storage.offset_topic import TopicOffsets
from felice.testing import Broker, felice_broker

A, B = {"table": "a"}, {"table": "b"}
PARTITIONS = 5


@pytest.fixture
def broker() -> Iterator[Broker]:
    with felice_broker() as started:
        started.create_topic("offsets", partitions=PARTITIONS)
        yield started


def store(broker: Broker, connector: str = "jdbc", timeout_s: float = 30.0) -> TopicOffsets:
    address = {"bootstrap.servers": broker.bootstrap}
    return TopicOffsets(connector, "offsets", address, address, timeout_s)


def test_offsets_are_read_by_the_next_task_of_their_connector(broker: Broker) -> None:
    with closing(store(broker)) as first, closing(store(broker, "other")) as other:
        assert first.read([A, B]) == [None, None]
        first.write([(A, {"id": 1}), (B, {"id": 2})])
        first.write([(A, {"id": 3})])
        assert first.read([B, A]) == [{"id": 2}, {"id": 3}]
        assert other.read([A]) == [None]
    with closing(store(broker)) as second:
        assert second.read([A, {"none": 1}, B]) == [{"id": 3}, None, {"id": 2}]
        second.write([(A, None)])
        assert second.read([A]) == [None]
        # Nothing is new.
        assert second.read([A, B]) == [None, {"id": 2}]


def test_keys_are_in_the_partitions_of_kafkas_workers(broker: Broker) -> None:
    with closing(store(broker)) as offsets:
        offsets.write([({"table": str(n)}, {"id": n}) for n in range(20)])
    found = list(broker.records("offsets"))
    assert len({one.partition for one in found}) > 1
    for one in found:
        assert one.partition == murmur2(one.key, PARTITIONS)


def test_open_and_aborted_transactions_are_not_seen(broker: Broker) -> None:
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": "t", "partitioner": "murmur2_random"}
    )
    producer.init_transactions(30)
    with closing(store(broker)) as offsets, closing(producer):
        for number, ends in enumerate((producer.commit_transaction, producer.abort_transaction, None)):
            producer.begin_transaction()
            producer.produce("offsets", f'{{"id":{number}}}'.encode(), b'["jdbc",{"table":"a"}]')
            producer.flush(30)
            if ends is not None:
                ends(30)
        began = time.monotonic()
        assert offsets.read([A]) == [{"id": 0}]
        assert time.monotonic() - began < 50, "the read waited for the open transaction"
        producer.commit_transaction(30)
        assert offsets.read([A]) == [{"id": 2}]


def test_records_that_are_no_offsets_are_named_and_skipped(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.produce("offsets", b"{", key=b'["jdbc",{"table":"a"}]')
    broker.produce("offsets", b"{}", key=b"what")
    with closing(store(broker)) as offsets, caplog.at_level(logging.ERROR, "felice.connect"):
        assert offsets.read([A]) == [None]
    assert caplog.text.count("is not understood and skipped") == 2


def test_a_missing_topic_is_named(broker: Broker) -> None:
    address = {"bootstrap.servers": broker.bootstrap, "allow.auto.create.topics": False}
    offsets = TopicOffsets("jdbc", "missing", address, address)
    with closing(offsets), pytest.raises(ConnectError, match="cannot read the offsets topic missing: "):
        offsets.read([A])


def test_brokers_that_are_gone_are_an_error_in_time() -> None:
    with felice_broker() as broker:
        broker.create_topic("offsets", partitions=1)
        offsets = store(broker, timeout_s=5)
        assert offsets.read([A]) == [None]
    with closing(offsets):
        with pytest.raises(ConnectError, match="cannot read the offsets topic offsets"):
            offsets.read([A])
        with pytest.raises(ConnectError, match="cannot write to the offsets topic offsets"):
            offsets.write([(A, {"id": 1})])
