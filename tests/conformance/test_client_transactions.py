"""Transactions of our own client, against any broker, and against a broker that fails between the steps."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from conformance.batches import fetch_request
from conformance.targets import Target
from conformance.topics import create_topic
from conformance.wire import Wire, unique_name
from felice.client import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
    aio,
)
from felice.protocol.messages.api_versions import ApiVersionsRequest
from felice.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from felice.records.batch import iter_batches
from felice.testing import Broker, ErrorCode, Fault
from waiting import wait_until

TIMEOUT_S = 60
HELD_MS = 600_000
"""For answers that the test releases itself."""
PARTITIONS = 2
V1, V2 = 1, 2


def producer(bootstrap: str, name: str = "", **settings: Any) -> Producer:
    config = {
        "bootstrap.servers": bootstrap,
        "transactional.id": name or unique_name("producer"),
        "linger.ms": 1,
        "retry.backoff.ms": 10,
        "reconnect.backoff.ms": 10,
        "reconnect.backoff.max.ms": 100,
    }
    made = Producer({**config, **{key.replace("_", "."): value for key, value in settings.items()}})
    made.init_transactions(TIMEOUT_S)
    return made


def write(made: Producer, topic: str, name: str, count: int = 4) -> list[KafkaError | None]:
    reports: list[KafkaError | None] = []
    for number in range(count):
        made.produce(
            topic,
            f"{name}-{number}",
            partition=number % PARTITIONS,
            on_delivery=lambda error, message: reports.append(error),
        )
    return reports


def written(*names: str, count: int = 4) -> list[str]:
    return sorted(f"{name}-{number}" for name in names for number in range(count))


def read(bootstrap: str, topic: str, isolation: str = "read_committed") -> list[str]:
    """All records of the topic."""
    config = {
        "bootstrap.servers": bootstrap,
        "group.id": "reader",
        "isolation.level": isolation,
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }
    found: list[str] = []
    with Consumer(config) as consumer:
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(PARTITIONS)])
        ended = 0
        while ended < PARTITIONS:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None, found
            if message.error() is None:
                found.append((message.value() or b"").decode())
            else:
                assert message.error() == KafkaError._PARTITION_EOF, message.error()
                ended += 1
    return sorted(found)


def raised(call: Callable[[], object]) -> KafkaError:
    with pytest.raises(KafkaException) as caught:
        call()
    return caught.value.error


def joined(bootstrap: str, topic: str, group: str, **settings: Any) -> Consumer:
    """A consumer with an assignment."""
    config = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    consumer = Consumer({**config, **{key.replace("_", "."): value for key, value in settings.items()}})
    consumer.subscribe([topic])
    deadline = time.monotonic() + TIMEOUT_S
    while len(consumer.assignment()) < PARTITIONS and time.monotonic() < deadline:
        consumer.poll(0.05)
    return consumer


def set_flow(bootstrap: str, level: int) -> None:
    """A new cluster begins with transaction V2; level 1 is transaction V1, with AddPartitionsToTxn."""
    with Wire(bootstrap) as wire:
        if level != flow_of(wire):
            change = FeatureUpdateKey(
                feature="transaction.version", max_version_level=level, upgrade_type=1 if level == V2 else 2
            )
            assert wire.ask(UpdateFeaturesRequest(feature_updates=[change]), 2).error_code == 0
        wait_until(lambda: flow_of(wire) == level)


def flow_of(wire: Wire) -> int:
    asked = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    return {row.name: row.max_version_level for row in wire.ask(asked, 4).finalized_features}[
        "transaction.version"
    ]


@pytest.fixture(scope="module", params=[V2, V1], ids=["v2", "v1"])
def broker(request: pytest.FixtureRequest) -> Iterator[Target]:
    """A broker for this module only, because features concern all clients."""
    with Target() as target:
        set_flow(target.bootstrap, request.param)
        yield target


@pytest.fixture
def topic(broker: Target) -> str:
    return create_topic(broker, unique_name("topic"), PARTITIONS)


# Any broker


def test_committed_records_are_visible_and_aborted_ones_are_not(broker: Target, topic: str) -> None:
    with producer(broker.bootstrap) as made:
        for name, kept in (("one", True), ("two", False), ("three", True), ("four", False)):
            made.begin_transaction()
            reports = write(made, topic, name)
            if kept:
                made.commit_transaction(TIMEOUT_S)
                assert reports == [None] * 4
            else:
                assert made.flush(TIMEOUT_S) == 0
                made.abort_transaction(TIMEOUT_S)
    assert read(broker.bootstrap, topic) == written("one", "three")
    assert read(broker.bootstrap, topic, "read_uncommitted") == written("one", "two", "three", "four")


def test_the_flow_is_the_one_that_the_cluster_has_settled_on(broker: Target, topic: str) -> None:
    epochs = []
    with producer(broker.bootstrap) as made, broker.wire() as wire:
        for name in ("one", "two"):
            made.begin_transaction()
            write(made, topic, name)
            made.commit_transaction(TIMEOUT_S)
            epochs.append(newest_epoch(wire, topic))
        # Only transaction V2 has an epoch for each transaction.
        assert epochs[1] - epochs[0] == (1 if flow_of(wire) == V2 else 0)


def newest_epoch(wire: Wire, topic: str) -> int:
    row = wire.ask(fetch_request(topic, 0, isolation_level=0), 11).responses[0].partitions[0]
    return max(batch.producer_epoch for batch in iter_batches(row.records) if not batch.is_control)


def test_records_that_wait_are_given_up_by_an_abort_and_reported(broker: Target, topic: str) -> None:
    with producer(broker.bootstrap, linger_ms=600_000) as made:
        made.begin_transaction()
        write(made, topic, "first", 2)
        made.commit_transaction(TIMEOUT_S)
        made.begin_transaction()
        reports = write(made, topic, "waiting")
        made.abort_transaction(TIMEOUT_S)
        assert [error and error.name() for error in reports] == ["_PURGE_QUEUE"] * 4
        made.begin_transaction()
        write(made, topic, "next")
        made.commit_transaction(TIMEOUT_S)
    assert read(broker.bootstrap, topic) == sorted(["first-0", "first-1", *written("next")])


def test_tables_are_written_inside_the_transaction(broker: Target, topic: str) -> None:
    import pyarrow as pa

    with producer(broker.bootstrap) as made:
        assert (
            raised(lambda: made.produce_arrow(topic, pa.table({"value": [b"before"]}))) == KafkaError._STATE
        )
        for kept in (True, False):
            made.begin_transaction()
            values = [f"{kept}-{number}".encode() for number in range(1000)]
            assert made.produce_arrow(topic, pa.table({"value": values})) == 1000
            if kept:
                made.commit_transaction(TIMEOUT_S)
            else:
                made.flush(TIMEOUT_S)
                made.abort_transaction(TIMEOUT_S)
    assert read(broker.bootstrap, topic) == written("True", count=1000)


def test_offsets_count_with_the_transaction(broker: Target, topic: str) -> None:
    with producer(broker.bootstrap) as made:
        made.begin_transaction()
        write(made, topic, "source")
        made.commit_transaction(TIMEOUT_S)
        with joined(broker.bootstrap, topic, unique_name("group")) as consumer:
            group = consumer.consumer_group_metadata()
            for offset, kept in ((1, True), (2, False)):
                made.begin_transaction()
                positions = [TopicPartition(topic, number, offset) for number in range(PARTITIONS)]
                made.send_offsets_to_transaction(positions, group, TIMEOUT_S)
                (made.commit_transaction if kept else made.abort_transaction)(TIMEOUT_S)
                found = consumer.committed(positions, TIMEOUT_S)
                assert [row.offset for row in found] == [1, 1]


def test_offsets_of_a_consumer_that_lost_its_place_must_be_aborted(broker: Target, topic: str) -> None:
    group = unique_name("group")
    with producer(broker.bootstrap) as made, joined(broker.bootstrap, topic, group) as consumer:
        stale = consumer.consumer_group_metadata()
        consumer.close()
        with joined(broker.bootstrap, topic, group):
            made.begin_transaction()
            write(made, topic, "zombie")
            positions = [TopicPartition(topic, 0, 1)]
            error = raised(lambda: made.send_offsets_to_transaction(positions, stale, TIMEOUT_S))
            assert error.txn_requires_abort()
            assert error.code() in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)
            assert raised(lambda: made.produce(topic, b"more")) == KafkaError._STATE
            assert raised(lambda: made.commit_transaction(TIMEOUT_S)).txn_requires_abort()
            made.abort_transaction(TIMEOUT_S)
            made.begin_transaction()
            write(made, topic, "next")
            made.commit_transaction(TIMEOUT_S)
    assert read(broker.bootstrap, topic) == written("next")


def test_a_replaced_producer_stays_fenced_and_its_transaction_is_aborted(broker: Target, topic: str) -> None:
    name = unique_name("producer")
    with producer(broker.bootstrap, name) as old:
        old.begin_transaction()
        write(old, topic, "old")
        assert old.flush(TIMEOUT_S) == 0
        with producer(broker.bootstrap, name) as new:
            error = raised(lambda: old.commit_transaction(TIMEOUT_S))
            assert error.fatal() and error == KafkaError._FENCED
            assert raised(old.begin_transaction).fatal()
            assert raised(lambda: old.abort_transaction(TIMEOUT_S)).fatal()
            new.begin_transaction()
            write(new, topic, "new")
            new.commit_transaction(TIMEOUT_S)
    assert read(broker.bootstrap, topic) == written("new")


def test_a_record_that_is_refused_fails_its_transaction_and_not_the_next(broker: Target, topic: str) -> None:
    small = create_topic(broker, unique_name("small"), PARTITIONS, max_message_bytes=1000)
    with producer(broker.bootstrap) as made:
        made.begin_transaction()
        write(made, topic, "lost")
        reports: list[KafkaError | None] = []
        made.produce(small, b"x" * 5000, on_delivery=lambda error, message: reports.append(error))
        error = raised(lambda: made.commit_transaction(TIMEOUT_S))
        assert error.txn_requires_abort() and error == KafkaError.MSG_SIZE_TOO_LARGE
        assert reports == [KafkaError.MSG_SIZE_TOO_LARGE]
        made.abort_transaction(TIMEOUT_S)
        made.begin_transaction()
        write(made, topic, "kept")
        write(made, small, "kept")
        made.commit_transaction(TIMEOUT_S)
    assert read(broker.bootstrap, topic) == read(broker.bootstrap, small) == written("kept")


def test_closing_aborts_what_is_open(broker: Target, topic: str) -> None:
    with producer(broker.bootstrap) as made:
        made.begin_transaction()
        write(made, topic, "open")
        made.flush(TIMEOUT_S)
    assert read(broker.bootstrap, topic) == []


def test_transaction_calls_in_a_wrong_state_are_refused_without_a_request(broker: Target, topic: str) -> None:
    with producer(broker.bootstrap) as made:
        for call in (made.init_transactions, made.commit_transaction, made.abort_transaction):
            assert raised(call) == KafkaError._STATE
        assert raised(lambda: made.produce(topic, b"outside")) == KafkaError._STATE
    with Producer({"bootstrap.servers": broker.bootstrap}) as plain:
        assert raised(plain.init_transactions) == KafkaError._NOT_CONFIGURED


def test_a_transaction_timeout_above_the_brokers_limit_is_refused(broker: Target) -> None:
    error = raised(lambda: producer(broker.bootstrap, transaction_timeout_ms=2_000_000_000))
    assert error.fatal() and error == ErrorCode.INVALID_TRANSACTION_TIMEOUT


def test_coroutines_commit_at_the_end_of_the_block_and_abort_when_it_raises(
    broker: Target, topic: str
) -> None:
    said: list[str] = []

    async def use() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda loop, context: said.append(context["message"]))
        config = {
            "bootstrap.servers": broker.bootstrap,
            "transactional.id": unique_name("aio"),
            "linger.ms": 50,
        }
        async with aio.Producer(config) as made:
            await made.init_transactions(TIMEOUT_S)
            async with made.transaction():
                sent = [await made.send(topic, f"in-{number}", partition=number % 2) for number in range(4)]
            assert [(await future).error() for future in sent] == [None] * 4
            with pytest.raises(ZeroDivisionError):
                async with made.transaction():
                    await made.send_and_wait(topic, b"out", partition=0)
                    await made.send(topic, b"purged", partition=0)
                    raise ZeroDivisionError
            await made.begin_transaction()
            await made.send_and_wait(topic, b"closed", partition=0)

    asyncio.run(asyncio.wait_for(use(), TIMEOUT_S * 2))
    # What an abort gave up is not told as an error that nobody asked about.
    gc.collect()
    assert said == []
    assert read(broker.bootstrap, topic) == written("in")


def test_coroutines_commit_offsets_in_the_transaction(broker: Target, topic: str) -> None:
    async def use() -> list[int]:
        config = {"bootstrap.servers": broker.bootstrap, "group.id": unique_name("group")}
        names = {"bootstrap.servers": broker.bootstrap, "transactional.id": unique_name("aio")}
        async with aio.Producer(names) as made, aio.Consumer(config) as consumer:
            await made.init_transactions(TIMEOUT_S)
            positions = [TopicPartition(topic, number, 3) for number in range(PARTITIONS)]
            async with made.transaction():
                group = consumer.consumer_group_metadata()
                await made.send_offsets_to_transaction(positions, group, TIMEOUT_S)
            return [row.offset for row in await consumer.committed(positions)]

    assert asyncio.run(asyncio.wait_for(use(), TIMEOUT_S * 2)) == [3, 3]


# A broker that fails


@pytest.fixture(scope="module")
def running() -> Iterator[Broker]:
    with Broker() as started:
        yield started


@pytest.fixture
def failing(running: Broker) -> Iterator[Broker]:
    set_flow(running.bootstrap, V2)
    yield running
    running.faults.clear()


@pytest.fixture
def t(failing: Broker) -> str:
    """The name of a topic and a group for one test."""
    failing.create_topic(name := unique_name("t"), PARTITIONS)
    return name


ADDING = ("AddPartitionsToTxn", "AddOffsetsToTxn")
"""What transaction V2 does without."""


def one_round(made: Producer, consumer: Consumer, t: str, name: str, *, flushed: bool = False) -> None:
    made.begin_transaction()
    write(made, t, name)
    if flushed:
        assert made.flush(TIMEOUT_S) == 0
    positions = [TopicPartition(t, number, 1) for number in range(PARTITIONS)]
    made.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), TIMEOUT_S)
    made.commit_transaction(TIMEOUT_S)


PASSING: dict[str, Callable[[Broker], Fault]] = {
    "commit asked for, connection lost": lambda b: b.faults.drop("EndTxn", times=2),
    "committed, answer lost": lambda b: b.faults.drop("EndTxn", times=2, applied=True),
    "partitions added, answer lost": lambda b: b.faults.drop("AddPartitionsToTxn", applied=True),
    "group added, answer lost": lambda b: b.faults.drop("AddOffsetsToTxn", applied=True),
    "offsets stored, answer lost": lambda b: b.faults.drop("TxnOffsetCommit", applied=True),
    "written, answer lost": lambda b: b.faults.drop("Produce", applied=True),
    "partitions, another coordinator": lambda b: b.faults.fail(
        "AddPartitionsToTxn", ErrorCode.NOT_COORDINATOR, times=2
    ),
    "group, another coordinator": lambda b: b.faults.fail("AddOffsetsToTxn", ErrorCode.NOT_COORDINATOR),
    "end, another coordinator": lambda b: b.faults.fail("EndTxn", ErrorCode.NOT_COORDINATOR, times=2),
    "end, coordinator loads": lambda b: b.faults.fail("EndTxn", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    "offsets, another coordinator": lambda b: b.faults.fail(
        "TxnOffsetCommit", ErrorCode.NOT_COORDINATOR, times=2
    ),
    "partitions, the last one still ends": lambda b: b.faults.fail(
        "AddPartitionsToTxn", ErrorCode.CONCURRENT_TRANSACTIONS, times=4
    ),
    "end, concurrent": lambda b: b.faults.fail("EndTxn", ErrorCode.CONCURRENT_TRANSACTIONS, times=2),
    "no coordinator": lambda b: b.faults.fail("FindCoordinator", ErrorCode.COORDINATOR_NOT_AVAILABLE),
    "another leader": lambda b: b.faults.fail("Produce", ErrorCode.NOT_LEADER_OR_FOLLOWER, times=2),
}


def in_both_flows(names: dict[str, Any], adding: Callable[[str], bool]) -> list[Any]:
    """Every case with transaction V1, and those that exist in V2."""
    old = [pytest.param(name, V1, id=f"{name}, v1") for name in names]
    return old + [pytest.param(name, V2, id=f"{name}, v2") for name in names if not adding(name)]


@pytest.mark.felice_only
@pytest.mark.parametrize(
    ("what", "flow"),
    in_both_flows(PASSING, lambda name: name.startswith(("partitions", "group"))),
)
def test_transient_failures_are_retried_and_records_are_there_once(
    failing: Broker, t: str, what: str, flow: int
) -> None:
    set_flow(failing.bootstrap, flow)
    with joined(failing.bootstrap, t, t) as consumer, producer(failing.bootstrap) as made:
        one_round(made, consumer, t, "before")
        if what == "no coordinator":
            failing.faults.fail("EndTxn", ErrorCode.NOT_COORDINATOR)
        PASSING[what](failing)
        one_round(made, consumer, t, "during")
        failing.faults.assert_all_fired()
        one_round(made, consumer, t, "after")
    assert read(failing.bootstrap, t) == written("before", "during", "after")


ABORTABLE = {
    "partitions": ("AddPartitionsToTxn", ErrorCode.TRANSACTION_ABORTABLE),
    "group": ("AddOffsetsToTxn", ErrorCode.TRANSACTION_ABORTABLE),
    "group forbidden": ("AddOffsetsToTxn", ErrorCode.GROUP_AUTHORIZATION_FAILED),
    "offsets": ("TxnOffsetCommit", ErrorCode.TRANSACTION_ABORTABLE),
    "generation": ("TxnOffsetCommit", ErrorCode.ILLEGAL_GENERATION),
    "end": ("EndTxn", ErrorCode.TRANSACTION_ABORTABLE),
    "forgotten": ("AddPartitionsToTxn", ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    "records": ("Produce", ErrorCode.TRANSACTION_ABORTABLE),
    "records forbidden": ("Produce", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    "sequence": ("Produce", ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    "epoch": ("Produce", ErrorCode.INVALID_PRODUCER_EPOCH),
}


@pytest.mark.felice_only
@pytest.mark.parametrize(
    ("what", "flow"), in_both_flows(ABORTABLE, lambda name: ABORTABLE[name][0] in ADDING)
)
def test_failures_of_the_transaction_ask_for_an_abort_and_the_next_is_whole(
    failing: Broker, t: str, what: str, flow: int
) -> None:
    set_flow(failing.bootstrap, flow)
    with joined(failing.bootstrap, t, t) as consumer, producer(failing.bootstrap) as made:
        one_round(made, consumer, t, "before")
        api, code = ABORTABLE[what]
        failing.faults.fail(api, code)
        error = raised(lambda: one_round(made, consumer, t, "during", flushed=True))
        assert error.txn_requires_abort() and error.code() in (code, KafkaError._STATE), error
        made.abort_transaction(TIMEOUT_S)
        failing.faults.assert_all_fired()
        one_round(made, consumer, t, "after")
    assert read(failing.bootstrap, t) == written("before", "after")


@pytest.mark.felice_only
@pytest.mark.parametrize("api", ["InitProducerId", "AddPartitionsToTxn", "EndTxn", "Produce"])
def test_a_fenced_producer_can_do_nothing_more(failing: Broker, t: str, api: str) -> None:
    set_flow(failing.bootstrap, V1)
    failing.faults.fail(api, ErrorCode.PRODUCER_FENCED)

    def use() -> None:
        with producer(failing.bootstrap) as made:
            made.begin_transaction()
            write(made, t, "fenced")
            made.commit_transaction(TIMEOUT_S)

    error = raised(use)
    assert error.fatal() and error == KafkaError._FENCED
    failing.faults.assert_all_fired()


@pytest.mark.felice_only
def test_a_call_that_timed_out_goes_on_and_its_outcome_is_taken_by_calling_again(
    failing: Broker, t: str
) -> None:
    with producer(failing.bootstrap) as made:
        made.begin_transaction()
        write(made, t, "slow")
        assert made.flush(TIMEOUT_S) == 0
        with failing.faults.delay("EndTxn", HELD_MS):
            error = raised(lambda: made.commit_transaction(0.2))
            assert error == KafkaError._TIMED_OUT and error.retriable() and not error.txn_requires_abort()
            for call in (made.begin_transaction, made.abort_transaction):
                assert "commit_transaction" in raised(call).str()
        wait_until(lambda: "commit_transaction has ended" in raised(made.begin_transaction).str())
        made.commit_transaction(TIMEOUT_S)
        made.begin_transaction()
        made.commit_transaction(TIMEOUT_S)
    assert read(failing.bootstrap, t) == written("slow")


@pytest.mark.felice_only
def test_a_commit_that_timed_out_while_flushing_is_called_again(failing: Broker, t: str) -> None:
    with producer(failing.bootstrap) as made:
        made.begin_transaction()
        with failing.faults.delay("Produce", HELD_MS):
            write(made, t, "slow")
            for _ in range(2):
                assert raised(lambda: made.commit_transaction(0.1)).retriable()
        made.commit_transaction(TIMEOUT_S)
    assert read(failing.bootstrap, t) == written("slow")


@pytest.mark.felice_only
@pytest.mark.parametrize("flow", [V1, V2])
def test_records_that_are_being_retried_are_given_up_by_an_abort(failing: Broker, t: str, flow: int) -> None:
    set_flow(failing.bootstrap, flow)
    with producer(failing.bootstrap) as made:
        made.begin_transaction()
        with failing.faults.fail("Produce", ErrorCode.NOT_LEADER_OR_FOLLOWER, times=None) as refusing:
            reports = write(made, t, "lost")
            wait_until(lambda: refusing.fired > 2)
            made.abort_transaction(TIMEOUT_S)
            assert len(reports) == 4 and None not in reports
        made.begin_transaction()
        write(made, t, "next")
        made.commit_transaction(TIMEOUT_S)
    assert read(failing.bootstrap, t) == written("next")


@pytest.mark.felice_only
@pytest.mark.parametrize("moment", ["begun", "written", "offsets sent", "committed", "ending"])
@pytest.mark.parametrize(
    ("kept", "flow"), [(True, V2), (False, V2), (True, V1)], ids=["commit-v2", "abort-v2", "commit-v1"]
)
def test_a_broker_killed_between_the_steps_leaves_what_was_decided(
    failing: Broker, t: str, moment: str, kept: bool, flow: int
) -> None:
    set_flow(failing.bootstrap, flow)

    def kill_at(now: str) -> None:
        if moment == now:
            failing.kill()
            failing.start()

    with joined(failing.bootstrap, t, t) as consumer, producer(failing.bootstrap) as made:
        one_round(made, consumer, t, "before")
        made.begin_transaction()
        kill_at("begun")
        write(made, t, "during")
        assert made.flush(TIMEOUT_S) == 0
        kill_at("written")
        positions = [TopicPartition(t, number, 2) for number in range(PARTITIONS)]
        made.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), TIMEOUT_S)
        kill_at("offsets sent")
        if moment == "ending":
            failing.faults.drop("EndTxn", applied=True)
        (made.commit_transaction if kept else made.abort_transaction)(TIMEOUT_S)
        kill_at("committed")
        one_round(made, consumer, t, "after")
    assert read(failing.bootstrap, t) == written(*["before", "during", "after"][:: 1 if kept else 2])
