"""`operation_timeout` is the time that a broker gets for its work: its answer is waited for that long."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

import pytest

from felice.client import AdminClient, KafkaException, TopicPartition
from felice.client.admin import ElectionType, NewPartitions, NewTopic
from proxy import SLOW, Fault, Proxy, behind
from waiting import LIMIT_S, wait_until

WORK_S = 1.5
T: Any = {"operation_timeout": LIMIT_S}

CALLS: dict[str, Callable[[AdminClient], Future[Any]]] = {
    "CreateTopics": lambda admin: admin.create_topics([NewTopic("new", 1)], **T)["new"],
    "DeleteTopics": lambda admin: admin.delete_topics(["old"], **T)["old"],
    "CreatePartitions": lambda admin: admin.create_partitions([NewPartitions("t", 2)], **T)["t"],
    "DeleteRecords": lambda admin: next(
        iter(admin.delete_records([TopicPartition("u", 0, -1)], **T).values())
    ),
    "ElectLeaders": lambda admin: admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition("u", 0)], **T),
}


@pytest.fixture(scope="module")
def slow() -> Iterator[Proxy]:
    with behind(topics={"t": 1, "old": 1, "u": 1}) as (_, proxy):
        yield proxy


@pytest.mark.parametrize("api", CALLS)
def test_a_broker_that_works_longer_than_the_request_timeout_is_asked_once(slow: Proxy, api: str) -> None:
    """Asked again, it would say that the topic exists already. Other calls meanwhile do not end the connection."""
    config = {"bootstrap.servers": slow.bootstrap, "request.timeout.ms": 500}
    with AdminClient(config) as admin:
        admin.list_topics(timeout=LIMIT_S)
        slow.requests.clear()
        slow.set(Fault(SLOW, api=api, seconds=WORK_S))
        done = CALLS[api](admin)
        wait_until(lambda: slow.requests[api])
        with suppress(KafkaException):
            admin.list_topics(timeout=0.7)
        done.result(LIMIT_S)
        slow.fault = None
        assert slow.requests[api] == 1
