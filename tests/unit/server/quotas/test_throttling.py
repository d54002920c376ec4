"""What a request costs its client, and the answer that it gets."""

from __future__ import annotations

from typing import Any

import pytest

from felice.protocol.api import API
from felice.protocol.connection import Request
from felice.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from felice.protocol.messages.metadata import MetadataRequest, MetadataResponse
from felice.protocol.messages.produce import ProduceRequest, ProduceResponse
from felice.protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from felice.server.context import NO_REPLY
from felice.server.quotas.limits import QuotaKind
from felice.server.quotas.throttling import throttled
from unit.server.quotas.test_limits import Fixture, limited


def apply(fixture: Fixture, message: Any, answer: Any, *, size_bytes: int = 0, local_s: float = 0.0) -> Any:
    api = next(api for api in API.by_key.values() if isinstance(message, api.request))
    request = Request(api, api.versions.max, 1, "app", message, size_bytes)
    return throttled(fixture.quotas, request, answer, "alice", local_s)


def records(size_bytes: int) -> FetchResponse:
    row = PartitionData(records=bytes(size_bytes))
    return FetchResponse(session_id=7, responses=[FetchableTopicResponse(topic="t", partitions=[row])])


def test_records_that_a_consumer_does_not_get_do_not_count() -> None:
    fixture = Fixture(limited(QuotaKind.FETCH, 1_000))
    for _ in range(3):
        answer, wait_s = apply(fixture, FetchRequest(), records(20_000))
        # Without the bytes of the answers before, so the same each time.
        assert (answer.responses, answer.throttle_time_ms, wait_s) == ([], 10_000, 10.0)
    sent = records(10_000)
    assert apply(fixture, FetchRequest(), sent) == (sent, 0.0)


@pytest.mark.parametrize(("epoch", "session_id"), [(0, 0), (-1, 0), (3, 7)])
def test_a_session_that_the_client_does_not_know_is_not_named(epoch: int, session_id: int) -> None:
    fixture = Fixture(limited(QuotaKind.FETCH, 1_000))
    answer, _ = apply(fixture, FetchRequest(session_epoch=epoch), records(20_000))
    assert answer.session_id == session_id


def test_followers_are_exempt() -> None:
    fixture = Fixture(limited(QuotaKind.FETCH, 1))
    answer = records(20_000)
    assert apply(fixture, FetchRequest(replica_id=2), answer) == (answer, 0.0)


def test_the_longest_wait_counts() -> None:
    configs = {**limited(QuotaKind.PRODUCE, 1_000)}
    (entity,) = configs
    fixture = Fixture({entity: {**configs[entity], QuotaKind.REQUEST.value: "1"}})
    answer, wait_s = apply(fixture, ProduceRequest(), ProduceResponse(), size_bytes=15_000, local_s=10.0)
    assert (answer.throttle_time_ms, wait_s) == (5_000, 5.0)
    answer, wait_s = apply(fixture, MetadataRequest(), MetadataResponse(), local_s=10.0)
    assert (answer.throttle_time_ms, wait_s) == (1_000, 1.0)


def test_time_does_not_count_without_a_reply_nor_for_brokers() -> None:
    fixture = Fixture(limited(QuotaKind.REQUEST, 1))
    assert apply(fixture, ProduceRequest(acks=0), NO_REPLY, local_s=100.0) == (NO_REPLY, 0.0)
    answer = WriteTxnMarkersResponse()
    assert apply(fixture, WriteTxnMarkersRequest(), answer, local_s=100.0) == (answer, 0.0)


def test_a_wait_that_the_handler_decided_stays() -> None:
    fixture = Fixture(limited(QuotaKind.REQUEST, 1))
    assert apply(fixture, MetadataRequest(), MetadataResponse(throttle_time_ms=2_500))[1] == 2.5
