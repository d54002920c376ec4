"""Transaction V2 (KIP-890), request by request: writing adds the partition, and every transaction has its own epoch."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest

from conformance.group_calls import fetch_group, find_coordinator
from conformance.targets import Target
from conformance.topics import create_topic
from conformance.transaction_calls import (
    MARKERS_V2,
    PRODUCE_V2,
    TXN_OFFSET_COMMIT_V2,
    WireProducer,
    fetch_row,
    until_settled,
    visible,
    within_timeout,
)
from conformance.wire import Wire, unique_name
from felice.protocol.errors import ApiError, ErrorCode
from felice.protocol.messages.describe_transactions import DescribeTransactionsRequest
from felice.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from waiting import wait_until


@pytest.fixture
def producer(wire: Wire) -> WireProducer:
    return WireProducer(wire, unique_name("tx")).begin_life()


@pytest.fixture
def topic(broker: Target) -> str:
    return create_topic(broker, unique_name("t"), 2)


def state_of(producer: WireProducer) -> tuple[str, list[tuple[str, list[int]]]]:
    asked = DescribeTransactionsRequest(transactional_ids=[producer.transactional_id])
    (found,) = producer.wire.ask(asked).transaction_states
    return found.transaction_state, [(where.topic, where.partitions) for where in found.topics]


def wait_state(producer: WireProducer, state: str) -> None:
    wait_until(lambda: state_of(producer)[0] == state)


# Partitions add themselves


def test_a_write_adds_its_partition(wire: Wire, producer: WireProducer, topic: str) -> None:
    producer.write_v2(topic, b"a", partition=1)
    assert state_of(producer) == ("Ongoing", [(topic, [1])])
    assert producer.end_v2(True) == 0
    wait_state(producer, "CompleteCommit")


def test_a_write_right_after_a_commit_waits_for_it(wire: Wire, producer: WireProducer, topic: str) -> None:
    """The markers of the previous transaction may be on their way: the broker asks its coordinator again."""
    for number in range(20):
        assert producer.send(topic, b"%d" % number, version=PRODUCE_V2).error_code in (
            ErrorCode.NONE,
            ErrorCode.CONCURRENT_TRANSACTIONS,
        )
        if producer.sequence == 0:
            producer.write_v2(topic, b"%d" % number)
        assert producer.end_v2(True) == 0
    wait_state(producer, "CompleteCommit")
    assert visible(fetch_row(wire, topic)) == [b"%d" % number for number in range(20)]


def test_batches_that_are_sent_together_keep_their_order(
    wire: Wire, producer: WireProducer, topic: str
) -> None:
    """Batches behind the first one wait while the partition is added."""
    values = [b"%d" % number for number in range(5)]
    requests = []
    for value in values:
        requests.append(producer.produce_request(topic, value))
        producer.sequence += 1
    sent = [(request, wire.send(request, PRODUCE_V2)) for request in requests]
    answers = [wire.receive(request, PRODUCE_V2, correlation_id) for request, correlation_id in sent]
    rows = [answer.responses[0].partition_responses[0] for answer in answers]
    assert [(row.error_code, row.base_offset) for row in rows] == [(0, offset) for offset in range(5)]
    assert producer.end_v2(True) == 0
    wait_state(producer, "CompleteCommit")
    assert visible(fetch_row(wire, topic)) == values


def test_offsets_add_their_group(wire: Wire, producer: WireProducer, topic: str) -> None:
    group = unique_name("g")
    find_coordinator(wire, group)
    commit_offset(producer, group, topic, 5)
    state, partitions = state_of(producer)
    assert (state, [name for name, _ in partitions]) == ("Ongoing", ["__consumer_offsets"])
    assert offset_of(wire, group, topic) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    assert producer.end_v2(True) == 0
    wait_until(lambda: offset_of(wire, group, topic) == (5, 0))
    commit_offset(producer, group, topic, 9)
    assert producer.end_v2(False) == 0
    wait_until(lambda: offset_of(wire, group, topic) == (5, 0))


def commit_offset(producer: WireProducer, group: str, topic: str, offset: int) -> None:
    assert until_settled(lambda: producer.commit_offset(group, topic, offset, TXN_OFFSET_COMMIT_V2)) == 0


def offset_of(wire: Wire, group: str, topic: str) -> tuple[int, int]:
    row = fetch_group(wire, group, {topic: [0]}, require_stable=True).topics[0].partitions[0]
    return row.committed_offset, row.error_code


@pytest.mark.parametrize("known", [True, False])
def test_another_producer_cannot_add_partitions(
    wire: Wire, producer: WireProducer, topic: str, known: bool
) -> None:
    name = producer.transactional_id if known else unique_name("nobody")
    stranger = WireProducer(wire, name, producer.producer_id + 7000, 0)
    error = until_settled(lambda: stranger.send(topic, b"a", version=PRODUCE_V2).error_code)
    assert error == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert fetch_row(wire, topic, committed=False).high_watermark == 0


def test_the_first_batch_of_a_producer_begins_at_sequence_0(
    wire: Wire, producer: WireProducer, topic: str
) -> None:
    """Row 5: a batch with a higher sequence overtook the ones before it."""
    producer.sequence = 3
    row = producer.send(topic, b"a", version=PRODUCE_V2)
    assert row.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


# An epoch for every transaction


@pytest.mark.parametrize("commit", [True, False])
def test_every_end_raises_the_epoch(wire: Wire, producer: WireProducer, topic: str, commit: bool) -> None:
    first = replace(producer)
    producer.write_v2(topic, b"a")
    assert producer.end_v2(commit) == 0
    assert (producer.producer_id, producer.epoch) == (first.producer_id, first.epoch + 1)
    producer.write_v2(topic, b"b")
    assert producer.end_v2(True) == 0
    assert producer.epoch == first.epoch + 2
    wait_state(producer, "CompleteCommit")
    assert visible(fetch_row(wire, topic)) == ([b"a", b"b"] if commit else [b"b"])


def test_a_late_write_of_a_transaction_that_ended_is_fenced(
    wire: Wire, producer: WireProducer, topic: str
) -> None:
    producer.write_v2(topic, b"a")
    late = replace(producer)
    assert producer.end_v2(True) == 0
    wait_state(producer, "CompleteCommit")
    for partition in (0, 1):
        row = late.send(topic, b"late", partition=partition, version=PRODUCE_V2)
        assert row.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert late.commit_offset("g", topic, 1, TXN_OFFSET_COMMIT_V2) != 0
    assert fetch_row(wire, topic).last_stable_offset == 2


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_may_be_asked_for_again(producer: WireProducer, topic: str, commit: bool) -> None:
    """A producer that missed the response gets it again: the identity for its next transaction."""
    producer.write_v2(topic, b"a")
    first, again, otherwise = (replace(producer) for _ in range(3))
    assert first.end_v2(commit) == 0
    assert until_settled(lambda: again.end_v2(commit)) == 0
    assert (again.producer_id, again.epoch) == (first.producer_id, first.epoch)
    assert otherwise.end_v2(not commit) == ErrorCode.INVALID_TXN_STATE


def test_an_empty_transaction_can_be_aborted_but_not_committed(producer: WireProducer, topic: str) -> None:
    """In each state without an open transaction: before the first, after a commit, after an abort."""
    for end in (None, True, False):
        if end is not None:
            producer.write_v2(topic, b"a")
            assert producer.end_v2(end) == 0
            wait_state(producer, "CompleteCommit" if end else "CompleteAbort")
        assert producer.end_v2(True) == ErrorCode.INVALID_TXN_STATE
        epoch = producer.epoch
        assert producer.end_v2(False) == 0
        assert producer.epoch == epoch + 1
        wait_state(producer, "CompleteAbort")


def test_ending_with_another_identity_has_an_error_for_each_kind(
    wire: Wire, producer: WireProducer, topic: str
) -> None:
    producer.write_v2(topic, b"a")
    stranger = replace(producer, producer_id=producer.producer_id + 5000)
    assert stranger.end_v2(True) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert replace(producer, epoch=producer.epoch + 1).end_v2(True) == ErrorCode.PRODUCER_FENCED
    nobody = WireProducer(wire, unique_name("unknown"), 0, 0)
    assert until_settled(lambda: nobody.end_v2(True)) == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_a_takeover_fences_the_earlier_producer(wire: Wire, producer: WireProducer, topic: str) -> None:
    producer.write_v2(topic, b"lost")
    zombie, other = replace(producer), WireProducer(wire, producer.transactional_id)
    assert other.init() == ErrorCode.CONCURRENT_TRANSACTIONS
    assert until_settled(other.init) == 0
    assert (other.producer_id, other.epoch) == (producer.producer_id, producer.epoch + 2)
    assert zombie.end_v2(True) == ErrorCode.PRODUCER_FENCED
    assert zombie.end_v2(False) == ErrorCode.PRODUCER_FENCED
    row = zombie.send(topic, b"zombie", version=PRODUCE_V2)
    assert row.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    other.write_v2(topic, b"kept")
    assert other.end_v2(True) == 0
    wait_state(other, "CompleteCommit")
    assert visible(fetch_row(wire, topic)) == [b"kept"]


def test_a_transaction_that_takes_too_long_is_aborted() -> None:
    hasty = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"}
    with Target(hasty) as target, target.wire() as wire:
        topic = create_topic(target, unique_name("t"))
        producer = WireProducer(wire, "slow")
        offset = within_timeout(
            600, lambda: producer.begin_life(timeout_ms=600), lambda: producer.write_v2(topic, b"too late")
        )
        wait_until(lambda: fetch_row(wire, topic).last_stable_offset == offset + 2)
        assert (
            producer.send(topic, b"later", version=PRODUCE_V2).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
        )
        assert producer.end_v2(True) == ErrorCode.INVALID_TXN_STATE

        def abort() -> None:
            assert until_settled(lambda: producer.end_v2(False)) == 0

        def commit() -> None:
            producer.write_v2(topic, b"next")
            assert producer.end_v2(True) == 0

        within_timeout(600, abort, commit)
        wait_state(producer, "CompleteCommit")
        assert visible(fetch_row(wire, topic)) == [b"next"]


# Both flows


def test_one_id_may_change_its_flow(wire: Wire, producer: WireProducer, topic: str) -> None:
    """As when an older client replaces a newer one, or the feature is disabled and enabled again."""
    producer.write(topic, b"1")
    producer.commit()
    producer.write_v2(topic, b"2")
    assert producer.end_v2(True) == 0
    wait_state(producer, "CompleteCommit")
    producer.write(topic, b"3")
    producer.commit()
    producer.write(topic, b"4")
    assert producer.end_v2(False) == 0
    producer.write_v2(topic, b"5")
    producer.commit()
    assert visible(fetch_row(wire, topic)) == [b"1", b"2", b"3", b"5"]


# Markers


def test_a_marker_ends_only_older_epochs(wire: Wire, producer: WireProducer, topic: str) -> None:
    """A marker may be repeated when no transaction is open; in transaction V1 it has the epoch of its transaction."""
    producer.write_v2(topic, b"a")
    assert marker(producer, topic, producer.epoch) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert marker(producer, topic, producer.epoch + 1) == 0
    assert fetch_row(wire, topic).last_stable_offset == 2
    assert marker(producer, topic, producer.epoch + 1) == 0
    assert marker(producer, topic, producer.epoch) == ErrorCode.INVALID_PRODUCER_EPOCH
    old = WireProducer(wire, unique_name("old")).begin_life()
    old.write(topic, b"b")
    assert marker(old, topic, old.epoch, transaction_version=0) == 0


def marker(producer: WireProducer, topic: str, epoch: int, transaction_version: int = 2) -> int:
    asked = WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=epoch,
        transaction_result=True,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[0])],
        coordinator_epoch=0,
        transaction_version=transaction_version,
    )
    answer = producer.wire.ask(WriteTxnMarkersRequest(markers=[asked]), MARKERS_V2)
    return int(answer.markers[0].topics[0].partitions[0].error_code)


# Restarts


@pytest.mark.parametrize("commit", [True, False])
def test_transactions_outlive_a_restart(commit: bool) -> None:
    with Target() as target:
        topic = create_topic(target, unique_name("t"))
        with target.wire() as wire:
            producer = WireProducer(wire, "open").begin_life()
            producer.write_v2(topic, b"a")
            ended, again = (WireProducer(wire, "ended").begin_life() for _ in range(2))
            ended = replace(again)
            ended.write_v2(topic, b"b")
            assert ended.end_v2(commit) == 0
            wait_state(ended, "CompleteCommit" if commit else "CompleteAbort")
        target.restart()
        with target.wire() as wire:
            producer.wire = ended.wire = again.wire = wire
            assert until_settled(lambda: again.end_v2(commit)) == 0
            assert (again.producer_id, again.epoch) == (ended.producer_id, ended.epoch)
            producer.write_v2(topic, b"more")
            assert producer.end_v2(True) == 0
            ended.write_v2(topic, b"next")
            assert ended.end_v2(True) == 0
            wait_state(ended, "CompleteCommit")
            wait_state(producer, "CompleteCommit")
            assert visible(fetch_row(wire, topic)) == [b"a", *([b"b"] if commit else []), b"more", b"next"]


# Impatient producers


def test_many_partitions_at_once_are_added_together(wire: Wire, broker: Target) -> None:
    topic = create_topic(broker, unique_name("wide"), 8)
    producers = [WireProducer(wire, unique_name("tx")).begin_life() for _ in range(4)]

    def work(mine: WireProducer) -> None:
        with broker.wire() as own:
            mine.wire = own
            for _ in range(3):
                for partition in range(8):
                    mine.sequence = 0
                    mine.write_v2(topic, b"x", partition=partition)
                assert mine.end_v2(True) == 0

    threads = [threading.Thread(target=work, args=(mine,)) for mine in producers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(240)
    for mine in producers:
        mine.wire = wire
        wait_state(mine, "CompleteCommit")
        assert mine.epoch == 3


# Odd requests


@pytest.mark.felice_only  # nobody else's markers can be held back
def test_writes_wait_while_markers_of_the_last_transaction_are_missing(
    wire: Wire, producer: WireProducer, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker asks again for 100 ms. Then the client must retry, with the true error if its version knows it."""

    async def no_marker(*_: object) -> object:
        raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE)

    with monkeypatch.context() as patched:
        patched.setattr("felice.server.writes.transactions.MarkerWriter.write", no_marker)
        producer.write_v2(topic, b"a")
        assert producer.end_v2(True) == 0
        began = time.monotonic()
        row = producer.send(topic, b"b", version=PRODUCE_V2)
        assert row.error_code == ErrorCode.CONCURRENT_TRANSACTIONS
        assert time.monotonic() - began >= 0.1
        assert producer.send(topic, b"b", version=11).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    producer.write_v2(topic, b"b")
    assert producer.end_v2(True) == 0
    wait_state(producer, "CompleteCommit")
    assert visible(fetch_row(wire, topic)) == [b"a", b"b"]


def test_an_unacknowledged_write_adds_its_partition(wire: Wire, producer: WireProducer, topic: str) -> None:
    """A later request of the connection is answered."""
    request = producer.produce_request(topic, b"a")
    request.acks = 0
    wire.send(request, PRODUCE_V2)
    wait_until(lambda: state_of(producer) == ("Ongoing", [(topic, [0])]))
    assert producer.end_v2(True) == 0
    wait_until(lambda: visible(fetch_row(wire, topic)) == [b"a"])


@pytest.mark.felice_only  # Apache Kafka closes the connection
def test_a_request_has_one_producer(wire: Wire, producer: WireProducer, topic: str) -> None:
    other = WireProducer(wire, unique_name("other")).begin_life()
    request = producer.produce_request(topic, b"a")
    request.topic_data += other.produce_request(topic, b"b", partition=1).topic_data
    answer = wire.ask(request, PRODUCE_V2)
    codes = [row.error_code for topic in answer.responses for row in topic.partition_responses]
    assert codes == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2
    assert fetch_row(wire, topic, committed=False).high_watermark == 0
