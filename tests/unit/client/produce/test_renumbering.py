"""An idempotent producer drops a record that may have been written: the next records start in a new epoch.

With the next sequences of the old epoch, a broker that never got the record would see a gap and refuse all of them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from felice.client import KafkaError, Producer
from felice.protocol.messages.produce import ProduceRequest
from unit.client.fake_broker import Disconnect, FakeBroker
from waiting import LIMIT_S


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker({"t": 1}) as started:
        yield started


def producer_for(broker: FakeBroker, **keys: Any) -> Producer:
    given = {name.replace("_", "."): value for name, value in keys.items()}
    return Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "enable.idempotence": True,
            "linger.ms": 0,
            "retry.backoff.ms": 5,
            "retry.backoff.max.ms": 10,
            **given,
        }
    )


def numbers(broker: FakeBroker) -> list[tuple[int, int]]:
    return [(header.producer_epoch, header.base_sequence) for header in broker.batches("t", 0)]


def deliver(producer: Producer, value: bytes) -> KafkaError | None:
    told: list[KafkaError | None] = []
    producer.produce("t", value, on_delivery=lambda error, _: told.append(error))
    assert producer.flush(LIMIT_S) == 0
    [error] = told
    return error


def test_records_after_one_that_expired_begin_in_a_new_epoch(broker: FakeBroker) -> None:
    producer = producer_for(broker)
    assert deliver(producer, b"before") is None
    append = broker.handlers[ProduceRequest]
    broker.handlers[ProduceRequest] = lambda request, version: Disconnect
    told: list[KafkaError | None] = []
    producer.produce("t", b"expires", on_delivery=lambda error, _: told.append(error))
    while len(broker.asked(ProduceRequest)) < 2:
        producer.poll(0.01)
    # Only what was sent expires: on a slow machine another record might, too.
    sender = producer._core.sender
    given, sender._settings = sender._settings, replace(sender._settings, delivery_timeout_ms=1000)
    producer.flush(LIMIT_S)
    assert [error and error.code() for error in told] == [KafkaError._MSG_TIMED_OUT]
    sender._settings = given
    broker.handlers[ProduceRequest] = append
    for value in (b"after", b"that"):
        assert deliver(producer, value) is None
    assert numbers(broker) == [(0, 0), (1, 0), (1, 1)]


def test_records_after_one_that_was_purged_on_its_way_begin_in_a_new_epoch(broker: FakeBroker) -> None:
    producer, purged = producer_for(broker), threading.Event()

    def close_then(request: ProduceRequest, version: int) -> type[Disconnect]:
        purged.wait(LIMIT_S)
        return Disconnect

    assert deliver(producer, b"before") is None
    broker.script(ProduceRequest, close_then)
    told: list[KafkaError | None] = []
    producer.produce("t", b"purged", on_delivery=lambda error, _: told.append(error))
    while len(broker.asked(ProduceRequest)) < 2:
        producer.poll(0.01)
    producer.purge(in_queue=False, in_flight=True)
    purged.set()
    producer.flush(LIMIT_S)
    assert [error and error.code() for error in told] == [KafkaError._PURGE_INFLIGHT]
    assert deliver(producer, b"after") is None
    assert numbers(broker) == [(0, 0), (1, 0)]


def test_a_record_that_was_never_sent_leaves_no_gap(broker: FakeBroker) -> None:
    producer = producer_for(broker, linger_ms=60_000)
    assert not broker.asked(ProduceRequest)
    producer.produce("t", b"waits")
    producer.purge(in_queue=True, in_flight=False)
    assert deliver(producer, b"first") is None
    assert deliver(producer, b"second") is None
    assert numbers(broker) == [(0, 0), (0, 1)]
