"""Partitions are added to a transaction all or none, however the request names them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from felice.env import SystemClock
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from felice.server.flow import pace
from felice.server.writes.partition_additions import add_partitions

IMAGE: Any = SimpleNamespace(partition=lambda topic, index: object() if index < 2 else None)
NOT_ATTEMPTED, UNKNOWN = ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize("order", [1, -1])
def test_a_topic_named_twice_keeps_the_errors_of_both_rows(version: int, order: int) -> None:
    # No transaction has anything added: the coordinator has no method that could be called.
    rows = [([9, 0], [UNKNOWN, NOT_ATTEMPTED]), ([1], [NOT_ATTEMPTED])][::order]
    topics = [AddPartitionsToTxnTopic(name="t", partitions=partitions) for partitions, _ in rows]
    request = AddPartitionsToTxnRequest(
        transactions=[AddPartitionsToTxnTransaction(transactional_id="x", topics=topics)],
        v3_and_below_transactional_id="x",
        v3_and_below_topics=topics,
    )
    transactions: Any = SimpleNamespace()
    response = asyncio.run(add_partitions(request, transactions, IMAGE, version, SystemClock(), lambda: None))
    found = (
        response.results_by_topic_v3_and_below
        if version == 3
        else response.results_by_transaction[0].topic_results
    )
    codes = [[row.partition_error_code for row in topic.results_by_partition] for topic in found]
    assert codes == [codes for _, codes in rows]


def test_permissions_for_thousands_of_topics_are_checked_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "_WORK_S", 1e-9)
    topics = [AddPartitionsToTxnTopic(name=f"t{number}", partitions=[0]) for number in range(3000)]
    passes, seen = 0, []

    def may_write(topic: str) -> bool:
        seen.append(passes)
        return False

    async def scenario() -> None:
        nonlocal passes
        request = AddPartitionsToTxnRequest(v3_and_below_transactional_id="x", v3_and_below_topics=topics)
        none: Any = None
        answer = add_partitions(request, none, IMAGE, 3, SystemClock(), lambda: None, may_write)
        task = asyncio.ensure_future(answer)
        while not task.done():
            await asyncio.sleep(0)
            passes += 1
        assert len((await task).results_by_topic_v3_and_below) == 3000

    asyncio.run(scenario())
    assert len(set(seen)) >= 3000


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize("verify_only", [False, True])
def test_the_session_is_checked_after_each_pause(version: int, verify_only: bool) -> None:
    """During a pause the process may be suspended, and another broker becomes the coordinator."""
    events = []

    class Image:
        def partition(self, topic: str, index: int) -> object:
            events.append("paused")  # as it may after each topic
            return object()

    class Transactions:
        async def add_partitions(self, *asked: object) -> ErrorCode:
            return self.verify()

        def verify(self, *asked: object) -> ErrorCode:
            events.append("called")
            return ErrorCode.NONE

    topics = [AddPartitionsToTxnTopic(name="t", partitions=[0])]
    request = AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(transactional_id=name, topics=topics, verify_only=verify_only)
            for name in ("x", "y")
        ],
        v3_and_below_transactional_id="x",
        v3_and_below_topics=topics,
    )
    transactions: Any = Transactions()
    image: Any = Image()
    asyncio.run(
        add_partitions(request, transactions, image, version, SystemClock(), lambda: events.append("checked"))
    )
    assert events == ["paused", "checked", "called"] * (1 if version == 3 else 2)
