"""The time that a handler works after its first pause counts, and the time that it waits does not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from felice.protocol.api import API
from felice.protocol.connection import Request
from felice.protocol.frames import encode_request
from felice.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from felice.protocol.messages.metadata import MetadataRequest
from felice.server.flow import pace
from felice.server.flow.timed_handler import TimedHandler
from felice.server.net import session
from felice.server.requests import large_answers
from unit.server.test_costs import Line
from unit.server.test_large_refusals import with_authorizer
from unit.server.test_large_requests import COUNT, describe_transactions, metadata


class Handler:
    """Works for 2 s, waits for 10 s, and works for 3 s."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.request = Request(API.METADATA, 9, 1, "app", MetadataRequest(), 0)
        self.request.timing = 1.0, 0.5, self.now_s
        self.was_cancelled = False

    async def run(self, woken: asyncio.Future[None]) -> str:
        self.now_s += 2
        try:
            await woken
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise
        finally:
            self.now_s += 3
        return "answer"

    async def wait(self, end: Callable[[asyncio.Future[None]], object], is_awaited: bool) -> str:
        woken = asyncio.get_running_loop().create_future()
        coroutine: Any = self.run(woken)
        handler = TimedHandler(coroutine, self.request, lambda: self.now_s)

        async def awaited() -> str:
            return str(await handler)

        task = asyncio.ensure_future(awaited() if is_awaited else handler)
        await asyncio.sleep(0)
        self.now_s += 10
        end(woken)
        return str(await task)


@pytest.mark.parametrize("is_awaited", [False, True])
def test_steps_count_and_waits_do_not(is_awaited: bool) -> None:
    handler = Handler()
    assert asyncio.run(handler.wait(lambda woken: woken.set_result(None), is_awaited)) == "answer"
    assert handler.request.timing == (1.0, 5.5, 105.0)


@pytest.mark.parametrize("is_awaited", [False, True])
def test_an_error_reaches_the_handler_and_its_caller(is_awaited: bool) -> None:
    handler = Handler()
    with pytest.raises(ValueError, match="why"):
        asyncio.run(handler.wait(lambda woken: woken.set_exception(ValueError("why")), is_awaited))
    assert handler.request.timing == (1.0, 5.5, 105.0)


@pytest.mark.parametrize("is_awaited", [False, True])
def test_a_handler_can_be_cancelled(is_awaited: bool) -> None:
    handler = Handler()
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(handler.wait(lambda woken: woken.cancel(), is_awaited))
    assert handler.was_cancelled


def test_a_handler_that_never_ran_can_be_closed() -> None:
    handler = Handler()
    waiting = TimedHandler(handler.run(None), handler.request, lambda: 0.0)  # type: ignore[arg-type]
    waiting.close()
    with pytest.raises(RuntimeError, match="cannot reuse already awaited coroutine"):
        waiting.send(None)


@pytest.mark.parametrize(
    ("request_bytes", "slices"),
    [
        (encode_request(3, 12, 1, "c", MetadataRequest(topics=None)), 3),
        (metadata(), COUNT),
        (describe_transactions(), COUNT),
    ],
    ids=["a small request with a large answer", "a large Metadata", "a large DescribeTransactions"],
)
def test_every_slice_counts_for_the_request_quota(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request_bytes: bytes, slices: int
) -> None:
    charged: list[float] = []

    def record(
        _quotas: object, _request: object, answer: Any, _user: str, local_s: float
    ) -> tuple[Any, float]:
        charged.append(local_s)
        return answer, 0.0

    async def scenario(line: Line) -> None:
        entity = EntityData(entity_type="user", entity_name="a")
        entry = EntryData(entity=[entity], ops=[OpData(key="request_percentage", value=50.0)])
        await line.ask(encode_request(49, 1, 1, "c", AlterClientQuotasRequest(entries=[entry])))
        for module in (pace, large_answers):
            monkeypatch.setattr(module, "MAX_ITEMS_WITHOUT_PAUSE", 1)
        monkeypatch.setattr(pace, "_WORK_S", 1e-9)
        monkeypatch.setattr(session, "throttled", record)
        # A clock that advances by a second at each reading, so that each step takes a second.
        clock = type("Clock", (), {"monotonic": staticmethod(count(0.0, 1.0).__next__)})
        monkeypatch.setattr(line.session, "_clock", clock)
        begin = len(line.transport.written)
        line.feed(request_bytes)
        async with asyncio.timeout(60):
            while len(line.transport.written) == begin or not line.session.is_idle:
                await asyncio.sleep(0)
        (local_s,) = charged
        assert local_s >= slices

    with_authorizer(tmp_path, scenario)
