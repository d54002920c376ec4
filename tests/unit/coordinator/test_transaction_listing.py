"""ListTransactions with a pattern: matched on a thread, in portions, as long as the client stays."""

import asyncio
import threading

import pytest

from felice.coordinator.transaction.listing import matching_pattern
from felice.protocol.messages.list_transactions import TransactionState
from felice.protocol.patterns import linear_pattern


class Recording:
    """A pattern that records the threads that matched with it."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.threads: set[int] = set()

    def fullmatch(self, text: str, /) -> bool:
        self.asked.append(text)
        self.threads.add(threading.get_ident())
        return True

    match = fullmatch


def rows(count: int, length: int) -> list[TransactionState]:
    return [TransactionState(transactional_id=f"{index:0{length}}") for index in range(count)]


def test_the_rows_that_match_whole_come_back_in_order() -> None:
    given = [TransactionState(transactional_id=text) for text in ("a1", "b1", "a2", "a2x")]
    found = asyncio.run(matching_pattern(given, linear_pattern("a[0-9]")))
    assert [row.transactional_id for row in found] == ["a1", "a2"]


def test_no_id_is_matched_on_the_loop() -> None:
    pattern = Recording()
    assert len(asyncio.run(matching_pattern(rows(20, 32_000), pattern))) == 20
    assert threading.get_ident() not in pattern.threads


def test_a_disconnect_ends_the_search() -> None:
    pattern = Recording()

    async def leave() -> None:
        async with asyncio.timeout(60):
            task = asyncio.create_task(matching_pattern(rows(1000, 32_000), pattern))
            while not pattern.asked:
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(leave())
    assert len(pattern.asked) < 1000
