"""Our AdminClient's calls for operators of transactions, against a real broker and a real cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from conformance.targets import Target
from conformance.topics import create_topic
from conformance.transaction_calls import WireProducer, fetch_row, leave_hanging, visible
from conformance.wire import Wire, unique_name
from felice.client import KafkaError, KafkaException, Producer, TopicPartition
from felice.client.admin import (
    AbortTransactionSpec,
    AdminClient,
    ProducerState,
    TransactionListing,
    TransactionState,
)
from felice.protocol.errors import ErrorCode
from felice.testing import Cluster
from waiting import LIMIT_S, wait_until

ONGOING = TransactionState.ONGOING


@pytest.fixture(scope="module")
def broker() -> Iterator[Target]:
    with Target({"transaction.partition.verification.enable": "false"}) as target:
        yield target


@pytest.fixture
def admin(broker: Target) -> Iterator[AdminClient]:
    with AdminClient({"bootstrap.servers": broker.bootstrap}) as made:
        yield made


@pytest.fixture
def topic(broker: Target) -> str:
    return create_topic(broker, unique_name("t"), 2)


@pytest.fixture
def producer(wire: Wire) -> WireProducer:
    return WireProducer(wire, unique_name("tx")).begin_life()


def error_code(found: BaseException | None) -> int:
    assert isinstance(found, KafkaException), found
    return found.code


def producers_of(admin: AdminClient, topic: str, broker_id: int | None = None) -> list[ProducerState]:
    partition = TopicPartition(topic, 0)
    found: list[ProducerState] = admin.describe_producers([partition], broker_id=broker_id)[partition].result(
        LIMIT_S
    )
    return found


def test_transactions_are_listed_by_state_producer_duration_and_pattern(
    admin: AdminClient, producer: WireProducer, topic: str
) -> None:
    name = producer.transactional_id
    producer.write(topic, b"open")
    row = TransactionListing(name, producer.producer_id, ONGOING)

    def listed(**chosen: object) -> list[TransactionListing]:
        found = admin.list_transactions(**chosen).result(LIMIT_S)  # type: ignore[arg-type]
        return [row for rows in found.values() for row in rows if row.transactional_id == name]

    assert listed() == listed(states=[ONGOING]) == listed(producer_ids=[producer.producer_id]) == [row]
    assert listed(pattern=f"{name[:-1]}.") == [row]
    assert listed(states=[TransactionState.EMPTY]) == listed(producer_ids=[producer.producer_id + 1000]) == []
    assert listed(longer_than_ms=3_600_000) == listed(pattern=name[:-1]) == []
    wrong = admin.list_transactions(pattern="(").exception(LIMIT_S)
    assert error_code(wrong) == ErrorCode.INVALID_REGULAR_EXPRESSION
    producer.commit()
    assert listed() == [TransactionListing(name, producer.producer_id, TransactionState.COMPLETE_COMMIT)]


def test_a_transaction_is_described_by_its_coordinator(
    admin: AdminClient, producer: WireProducer, topic: str
) -> None:
    name = producer.transactional_id
    futures = admin.describe_transactions([name, "never-used"])
    empty = futures[name].result(LIMIT_S)
    assert (empty.state, empty.start_time_ms, empty.topic_partitions) == (TransactionState.EMPTY, None, [])
    assert error_code(futures["never-used"].exception(LIMIT_S)) == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    producer.write(topic, b"open", partition=1)
    found = admin.describe_transactions([name])[name].result(LIMIT_S)
    assert (found.state, found.timeout_ms) == (ONGOING, 60_000)
    assert (found.producer_id, found.producer_epoch) == (producer.producer_id, producer.epoch)
    assert found.topic_partitions == [TopicPartition(topic, 1)]
    assert found.start_time_ms is not None
    producer.commit()
    with pytest.raises(KafkaException):
        admin.describe_transactions([name, name])


def test_producers_of_partitions_are_described(
    admin: AdminClient, producer: WireProducer, topic: str
) -> None:
    producer.write(topic, b"a", b"b")
    (found,) = producers_of(admin, topic)
    assert (found.producer_id, found.producer_epoch) == (producer.producer_id, producer.epoch)
    assert (found.last_sequence, found.coordinator_epoch, found.current_transaction_start_offset) == (
        1,
        None,
        0,
    )
    producer.commit()
    (found,) = producers_of(admin, topic)
    assert found.current_transaction_start_offset is None
    assert found.coordinator_epoch is not None
    missing = TopicPartition(topic, 9)
    failed = admin.describe_producers([missing])[missing].exception(LIMIT_S)
    assert error_code(failed) == KafkaError.UNKNOWN_TOPIC_OR_PART
    failed = admin.describe_producers([missing], broker_id=4711)[missing].exception(LIMIT_S)
    assert error_code(failed) == KafkaError._UNKNOWN_BROKER


def test_a_hanging_transaction_is_aborted_at_its_partition(
    admin: AdminClient, wire: Wire, topic: str
) -> None:
    left = leave_hanging(wire, unique_name("hanging"), topic)
    assert fetch_row(wire, topic).last_stable_offset == 0
    partition = TopicPartition(topic, 0)
    stale = AbortTransactionSpec(partition, left.producer_id, left.epoch - 1, 0)
    assert error_code(admin.abort_transaction(stale).exception(LIMIT_S)) == KafkaError.INVALID_PRODUCER_EPOCH
    admin.abort_transaction(AbortTransactionSpec(partition, left.producer_id, left.epoch, 0)).result(LIMIT_S)
    row = fetch_row(wire, topic)
    assert (row.last_stable_offset, visible(row)) == (2, [])
    (found,) = producers_of(admin, topic)
    assert found.current_transaction_start_offset is None
    nowhere = AbortTransactionSpec(TopicPartition(topic, 9), 1, 0, 0)
    assert error_code(admin.abort_transaction(nowhere).exception(LIMIT_S)) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_a_fenced_producers_transaction_is_aborted_and_its_next_write_refused(
    admin: AdminClient, wire: Wire, producer: WireProducer, topic: str
) -> None:
    producer.write(topic, b"open")
    name = producer.transactional_id
    fenced = admin.fence_producers([name])[name].result(LIMIT_S)
    assert (fenced.producer_id, fenced.producer_epoch > producer.epoch) == (producer.producer_id, True)
    wait_until(lambda: fetch_row(wire, topic).last_stable_offset == 2)
    assert producer.end(True) == ErrorCode.PRODUCER_FENCED
    again = admin.force_terminate_transaction(name).result(LIMIT_S)
    assert again.producer_epoch > fenced.producer_epoch


def test_every_broker_reports_its_versions(admin: AdminClient) -> None:
    ((node, found),) = admin.list_api_versions().result(LIMIT_S).items()
    assert node.id in admin.list_topics().brokers
    by_key = {row.key: row for row in found}
    assert [row.key for row in found] == sorted(by_key)
    assert (by_key[27].name, by_key[27].min_version, by_key[27].max_version) == ("WriteTxnMarkers", 1, 2)
    assert by_key[0].usable == by_key[0].max_version


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, topics={"spread": 1}) as started:
        yield started


@pytest.mark.felice_only
def test_producers_and_transactions_are_described_after_their_leaders_changed(
    cluster: Cluster,
) -> None:
    conf = {"bootstrap.servers": cluster.bootstrap}
    with Producer({**conf, "enable.idempotence": True}) as producer:
        producer.produce("spread", b"one")
    with AdminClient(conf) as admin:
        wait_until(lambda: all(producers_of(admin, "spread", number) for number in (1, 2, 3)))
        fenced = admin.fence_producers(["moving"], request_timeout=120)["moving"].result(150)
        before = admin.describe_transactions(["moving"], request_timeout=120)["moving"].result(150)
        assert (before.producer_id, before.producer_epoch) == (fenced.producer_id, fenced.producer_epoch)
        cluster.kill_broker(before.coordinator_id)
        after = admin.describe_transactions(["moving"], request_timeout=120)["moving"].result(150)
        assert after.coordinator_id != before.coordinator_id
        assert after.producer_id == before.producer_id
