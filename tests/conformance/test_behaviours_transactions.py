"""Transactions, request by request: the rules of the coordinator, of partitions and of readers."""

from __future__ import annotations

import threading

import pytest

from conformance.group_calls import fetch_group, find_coordinator, stable_member
from conformance.targets import Target
from conformance.topics import create_topic
from conformance.transaction_calls import WireProducer, fetch_row, until_settled, visible, within_timeout
from conformance.wire import Wire, unique_name
from felice.protocol.errors import ApiError, ErrorCode
from felice.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from felice.protocol.messages.describe_transactions import DescribeTransactionsRequest
from felice.protocol.messages.list_offsets import (
    LATEST_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from felice.protocol.messages.list_transactions import ListTransactionsRequest
from waiting import LIMIT_S, wait_until


@pytest.fixture
def producer(wire: Wire) -> WireProducer:
    return WireProducer(wire, unique_name("tx")).begin_life()


@pytest.fixture
def topic(broker: Target) -> str:
    return create_topic(broker, unique_name("t"), 2)


# Identities


def test_an_id_that_is_taken_over_gets_the_next_epoch(wire: Wire, producer: WireProducer) -> None:
    other = WireProducer(wire, producer.transactional_id).begin_life()
    assert (other.producer_id, other.epoch) == (producer.producer_id, producer.epoch + 1)


def test_a_producer_that_holds_an_identity_may_ask_again(wire: Wire, producer: WireProducer) -> None:
    """KIP-360: it gets the next epoch, and the same response again if the first was lost."""
    again = WireProducer(wire, producer.transactional_id, producer.producer_id, producer.epoch)
    assert producer.init(resume=True) == 0
    assert again.init(resume=True) == 0
    assert (
        (again.producer_id, again.epoch) == (producer.producer_id, producer.epoch) == (again.producer_id, 1)
    )


@pytest.mark.parametrize(
    ("version", "error"), [(3, ErrorCode.INVALID_PRODUCER_EPOCH), (4, ErrorCode.PRODUCER_FENCED)]
)
def test_a_fenced_producer_cannot_ask_again(
    wire: Wire, producer: WireProducer, version: int, error: ErrorCode
) -> None:
    WireProducer(wire, producer.transactional_id).begin_life()
    assert producer.init(version, resume=True) == error


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_out_of_bounds_is_refused(wire: Wire, producer: WireProducer, timeout_ms: int) -> None:
    assert producer.init(timeout_ms=timeout_ms) == ErrorCode.INVALID_TRANSACTION_TIMEOUT


def test_a_takeover_aborts_the_open_transaction(wire: Wire, producer: WireProducer, topic: str) -> None:
    """Rule 89: CONCURRENT_TRANSACTIONS after fencing, then success with an epoch higher by two."""
    producer.write(topic, b"lost")
    other = WireProducer(wire, producer.transactional_id)
    assert other.init() == ErrorCode.CONCURRENT_TRANSACTIONS
    assert until_settled(other.init) == 0
    assert (other.producer_id, other.epoch) == (producer.producer_id, producer.epoch + 2)
    assert visible(fetch_row(wire, topic)) == []
    assert producer.end(True) == ErrorCode.PRODUCER_FENCED
    assert producer.send(topic, b"zombie").error_code == ErrorCode.INVALID_PRODUCER_EPOCH


# Adding partitions


def test_partitions_are_added_all_or_none(producer: WireProducer, topic: str) -> None:
    assert producer.add((topic, 0), (topic, 9), ("no-such-topic", 0)) == {
        (topic, 0): ErrorCode.OPERATION_NOT_ATTEMPTED,
        (topic, 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("no-such-topic", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert producer.add((topic, 0), (topic, 1)) == {(topic, 0): 0, (topic, 1): 0}
    assert producer.add((topic, 0)) == {(topic, 0): 0}


@pytest.mark.parametrize(
    ("version", "fenced"), [(1, ErrorCode.INVALID_PRODUCER_EPOCH), (2, ErrorCode.PRODUCER_FENCED)]
)
def test_errors_by_version(
    wire: Wire, producer: WireProducer, topic: str, version: int, fenced: ErrorCode
) -> None:
    """Rule 92."""
    zombie = WireProducer(wire, producer.transactional_id, producer.producer_id, producer.epoch)
    producer.begin_life()
    assert zombie.add((topic, 0), version=version)[topic, 0] == fenced
    assert zombie.add_offsets("g", version) == fenced
    assert zombie.end(True, version) == fenced
    stranger = WireProducer(wire, producer.transactional_id, producer.producer_id + 5000, 0)
    assert stranger.add((topic, 0), version=version)[topic, 0] == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert stranger.end(True, version) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    nobody = WireProducer(wire, unique_name("unknown"), 0, 0)
    assert until_settled(lambda: nobody.end(True, version)) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert WireProducer(wire, "", 0, 0).end(True, version) == ErrorCode.INVALID_REQUEST
    assert (
        WireProducer(wire, "", 0, 0).add((topic, 0), version=version)[topic, 0] == ErrorCode.INVALID_REQUEST
    )


def test_internal_topics_cannot_be_added(producer: WireProducer) -> None:
    where = ("__transaction_state", 0)
    assert producer.add(where) == {where: ErrorCode.TOPIC_AUTHORIZATION_FAILED}


# Ending


def test_ends_by_state(producer: WireProducer, topic: str) -> None:
    """The table of EndTxn for clients before transaction V2."""
    assert producer.end(True) == producer.end(False) == ErrorCode.INVALID_TXN_STATE
    producer.write(topic, b"a")
    producer.commit()
    assert producer.end(True) == ErrorCode.NONE
    assert producer.end(False) == ErrorCode.INVALID_TXN_STATE
    producer.write(topic, b"b")
    producer.abort()
    assert producer.end(False) == ErrorCode.NONE
    assert producer.end(True) == ErrorCode.INVALID_TXN_STATE


def test_a_transaction_without_data_ends(producer: WireProducer, topic: str) -> None:
    """Rule 91."""
    for commit in (False, True):
        assert producer.add_one(topic) == 0
        assert producer.end(commit) == 0
        producer.wait_complete(commit)


def test_a_transaction_that_takes_too_long_is_aborted_and_fenced() -> None:
    hasty = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"}
    with Target(hasty) as target, target.wire() as wire:
        topic = create_topic(target, unique_name("t"))
        producer = WireProducer(wire, "slow")
        offset = within_timeout(
            600, lambda: producer.begin_life(timeout_ms=600), lambda: producer.write(topic, b"too late")
        )
        wait_until(lambda: fetch_row(wire, topic).last_stable_offset == offset + 2)
        assert producer.end(True) == ErrorCode.PRODUCER_FENCED
        assert visible(fetch_row(wire, topic)) == []


# Producing


@pytest.mark.parametrize(
    ("version", "error"), [(9, ErrorCode.INVALID_TXN_STATE), (11, ErrorCode.TRANSACTION_ABORTABLE)]
)
def test_a_partition_outside_the_transaction_refuses_records(
    producer: WireProducer, topic: str, version: int, error: ErrorCode
) -> None:
    """KIP-890, part 1: before the first partition is added, while others are added, and after the end."""
    assert producer.send(topic, b"a", version=version).error_code == error
    producer.write(topic, b"b")
    elsewhere = WireProducer(producer.wire, producer.transactional_id, producer.producer_id, producer.epoch)
    assert elsewhere.send(topic, b"c", partition=1, version=version).error_code == error
    producer.commit()
    assert producer.send(topic, b"late", version=version).error_code == error


def test_transactional_records_need_a_known_producer(wire: Wire, topic: str) -> None:
    stranger = WireProducer(wire, unique_name("stranger"), 12345, 0)
    error = until_settled(lambda: stranger.send(topic, b"a").error_code)
    assert error == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_a_batch_outside_the_open_transaction_is_refused(producer: WireProducer, topic: str) -> None:
    producer.write(topic, b"a")
    assert producer.send(topic, b"b", transactional=False).error_code == ErrorCode.INVALID_TXN_STATE


# Reading


def test_read_committed_ends_at_the_last_stable_offset(
    wire: Wire, producer: WireProducer, topic: str
) -> None:
    """Rule 93: records that others write after an open transaction wait with it."""
    plain = WireProducer(wire, unique_name("other")).begin_life()
    plain.send(topic, b"before", transactional=False)
    producer.write(topic, b"open")
    plain.send(topic, b"behind", transactional=False)
    row = fetch_row(wire, topic)
    assert (row.last_stable_offset, row.high_watermark) == (1, 3)
    assert visible(row) == [b"before"]
    assert latest(wire, topic, committed=True) == 1
    assert latest(wire, topic, committed=False) == 3
    everything = fetch_row(wire, topic, committed=False)
    assert not everything.aborted_transactions
    assert visible(everything) == [b"before", b"open", b"behind"]
    producer.commit()
    row = fetch_row(wire, topic)
    assert (row.last_stable_offset, visible(row)) == (4, [b"before", b"open", b"behind"])
    assert latest(wire, topic, committed=True) == 4


def latest(wire: Wire, topic: str, *, committed: bool) -> int:
    asked = ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=LATEST_TIMESTAMP)
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=int(committed),
        topics=[ListOffsetsTopic(name=topic, partitions=[asked])],
    )
    return int(wire.ask(request, 7).topics[0].partitions[0].offset)


@pytest.mark.felice_only  # Kafka lists them by their markers and leaves the order to clients; not all of them sort
def test_aborted_transactions_are_listed_by_their_first_offset(wire: Wire, topic: str) -> None:
    """Rule 51: the transaction that began first ends last, and is still listed first."""
    first, second = (WireProducer(wire, unique_name("tx")).begin_life() for _ in range(2))
    first.write(topic, b"1")
    second.write(topic, b"2")
    second.abort()
    first.abort()
    row = fetch_row(wire, topic)
    listed = [(entry.producer_id, entry.first_offset) for entry in row.aborted_transactions]
    assert listed == [(first.producer_id, 0), (second.producer_id, 1)]
    assert visible(row) == []
    assert not fetch_row(wire, topic, committed=False).aborted_transactions


def test_a_commit_wakes_a_waiting_reader(
    wire: Wire, producer: WireProducer, topic: str, broker: Target
) -> None:
    producer.write(topic, b"a")
    seen: list[list[bytes]] = []
    with broker.wire() as other:
        reader = threading.Thread(
            target=lambda: seen.append(visible(fetch_row(other, topic, max_wait_ms=140_000)))
        )
        reader.start()
        producer.commit()
        reader.join(LIMIT_S)
    assert seen == [[b"a"]]


# Offsets


def test_offsets_count_when_the_transaction_commits(wire: Wire, producer: WireProducer, topic: str) -> None:
    group = unique_name("g")
    find_coordinator(wire, group)
    assert producer.add_offsets(group) == 0
    assert producer.commit_offset(group, topic, 5) == 0
    assert offset_of(wire, group, topic) == (-1, 0)
    assert offset_of(wire, group, topic, stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    producer.commit()
    assert offset_of(wire, group, topic, stable=True) == (5, 0)
    assert producer.add_offsets(group) == 0
    assert producer.commit_offset(group, topic, 9) == 0
    producer.abort()
    assert offset_of(wire, group, topic, stable=True) == (5, 0)


def offset_of(wire: Wire, group: str, topic: str, stable: bool = False) -> tuple[int, int]:
    row = fetch_group(wire, group, {topic: [0]}, require_stable=stable).topics[0].partitions[0]
    return row.committed_offset, row.error_code


@pytest.mark.parametrize(
    ("version", "error"), [(3, ErrorCode.INVALID_TXN_STATE), (4, ErrorCode.TRANSACTION_ABORTABLE)]
)
def test_offsets_of_a_group_outside_the_transaction_are_refused(
    wire: Wire, producer: WireProducer, topic: str, version: int, error: ErrorCode
) -> None:
    group = unique_name("g")
    find_coordinator(wire, group)
    assert producer.commit_offset(group, topic, 5, version) == error


def test_an_expelled_member_cannot_commit_in_a_transaction(
    wire: Wire, producer: WireProducer, topic: str
) -> None:
    """KIP-447."""
    group = unique_name("g")
    member = stable_member(wire, group)
    assert producer.add_offsets(group) == 0
    mine = {"member_id": member.member_id, "generation_id": member.generation}
    assert producer.commit_offset(group, topic, 1, **mine) == 0
    old = {**mine, "generation_id": member.generation - 1}
    assert producer.commit_offset(group, topic, 1, **old) == ErrorCode.ILLEGAL_GENERATION
    other = {**mine, "member_id": "somebody"}
    assert producer.commit_offset(group, topic, 1, **other) == ErrorCode.UNKNOWN_MEMBER_ID
    # Older producers say nothing of members, and are believed.
    assert producer.commit_offset(group, topic, 2, version=2) == 0
    missing = unique_name("missing")
    assert producer.add_offsets(missing) == 0
    assert (
        producer.commit_offset(missing, topic, 1, generation_id=3, member_id="m")
        == ErrorCode.ILLEGAL_GENERATION
    )


# Restarts


def test_transactions_outlive_a_restart() -> None:
    with Target() as target:
        topic = create_topic(target, unique_name("t"))
        with target.wire() as wire:
            open_one = WireProducer(wire, "open").begin_life()
            open_one.write(topic, b"open")
            done = WireProducer(wire, "done").begin_life()
            done.write(topic, b"done")
            done.commit()
        target.restart()
        with target.wire() as wire:
            open_one.wire = done.wire = wire
            assert fetch_row(wire, topic).last_stable_offset == 0
            assert until_settled(lambda: done.end(True)) == 0
            assert until_settled(lambda: open_one.add((topic, 0))[topic, 0]) == 0
            assert open_one.send(topic, b"more").error_code == 0
            open_one.commit()
            assert visible(fetch_row(wire, topic)) == [b"open", b"done", b"more"]


@pytest.mark.felice_only
@pytest.mark.parametrize("commit", [True, False])
def test_a_decided_transaction_is_completed_after_a_restart(
    commit: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rules for a coordinator that stops between its decision and the last marker."""

    async def no_marker(*_: object) -> object:
        raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE)

    with Target() as target:
        topic = create_topic(target, unique_name("t"))
        group = unique_name("g")
        with target.wire() as wire, monkeypatch.context() as patched:
            find_coordinator(wire, group)
            producer = WireProducer(wire, "decided").begin_life()
            producer.write(topic, b"a")
            assert producer.add_offsets(group) == 0
            assert producer.commit_offset(group, topic, 5) == 0
            patched.setattr("felice.server.writes.transactions.MarkerWriter.write", no_marker)
            assert producer.end(commit) == 0
            assert producer.end(commit) == ErrorCode.CONCURRENT_TRANSACTIONS
            assert producer.end(not commit) == ErrorCode.INVALID_TXN_STATE
            assert fetch_row(wire, topic).last_stable_offset == 0
            target.stop()
        target.start()
        with target.wire() as wire:
            find_coordinator(wire, group)
            wait_until(lambda: fetch_row(wire, topic).last_stable_offset == 2)
            assert visible(fetch_row(wire, topic)) == ([b"a"] if commit else [])
            wait_until(lambda: offset_of(wire, group, topic, stable=True)[1] == 0)
            assert offset_of(wire, group, topic, stable=True) == (5 if commit else -1, 0)


# Looking at them


def test_a_transaction_is_described_and_listed(wire: Wire, producer: WireProducer, topic: str) -> None:
    producer.write(topic, b"a", partition=1)
    name = producer.transactional_id
    asked = DescribeTransactionsRequest(transactional_ids=[name, unique_name("unknown")])
    found, unknown = wire.ask(asked).transaction_states
    assert (found.error_code, found.transaction_state, found.transactional_id) == (0, "Ongoing", name)
    assert (found.producer_id, found.producer_epoch) == (producer.producer_id, producer.epoch)
    assert [(where.topic, where.partitions) for where in found.topics] == [(topic, [1])]
    assert found.transaction_timeout_ms == 60_000
    assert found.transaction_start_time_ms > 0
    assert unknown.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND

    def listed(**filters: object) -> list[tuple[str, str]]:
        answer = wire.ask(ListTransactionsRequest(**filters))
        assert answer.error_code == 0
        rows = [(row.transactional_id, row.transaction_state) for row in answer.transaction_states]
        return [row for row in rows if row[0] == name]

    assert listed() == listed(state_filters=["Ongoing"]) == [(name, "Ongoing")]
    assert listed(producer_id_filters=[producer.producer_id]) == [(name, "Ongoing")]
    assert listed(transactional_id_pattern=name[:-1] + ".") == [(name, "Ongoing")]
    assert listed(state_filters=["Empty"]) == listed(duration_filter=3_600_000) == []
    assert listed(transactional_id_pattern=name[:-1]) == listed(producer_id_filters=[-5]) == []
    answer = wire.ask(ListTransactionsRequest(state_filters=["Nonsense"]))
    assert (answer.unknown_state_filters, answer.transaction_states) == (["Nonsense"], [])
    for pattern in ("(", "((a{1,1000}){1,1000}){1,1000}", "a{1,99999999999}", "(?=a)", "(x{100}){9}|" * 1000):
        bad = wire.ask(ListTransactionsRequest(transactional_id_pattern=pattern))
        assert bad.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert listed(transactional_id_pattern="(.+)+" + "(" * 5000 + ")" * 5000) == [(name, "Ongoing")]


def test_producers_of_a_partition_are_described(wire: Wire, producer: WireProducer, topic: str) -> None:
    producer.write(topic, b"a", b"b")
    asked = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[0, 7])])
    here, nowhere = wire.ask(asked).topics[0].partitions
    (found,) = here.active_producers
    assert (found.producer_id, found.producer_epoch) == (producer.producer_id, producer.epoch)
    assert (found.last_sequence, found.current_txn_start_offset, found.coordinator_epoch) == (1, 0, -1)
    assert nowhere.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    producer.commit()
    (found,) = wire.ask(asked).topics[0].partitions[0].active_producers
    assert found.current_txn_start_offset == -1
    assert found.coordinator_epoch >= 0
