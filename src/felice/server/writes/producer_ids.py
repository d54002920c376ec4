"""Allocates producer ids from blocks that the cluster assigns to this broker.

Keeps true: a producer id is allocated at most once per cluster. The rest of a block is lost when the broker stops.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


class ProducerIds:
    """The current block of one broker."""

    def __init__(self, allocate_block: Callable[[], Awaitable[range]]) -> None:
        self._allocate_block = allocate_block
        self._block = iter(range(0))
        self._allocating = asyncio.Lock()

    async def next_id(self) -> int:
        """Returns an unused id; allocates a new block if needed."""
        async with self._allocating:
            producer_id = next(self._block, None)
            if producer_id is None:
                self._block = iter(await self._allocate_block())
                producer_id = next(self._block)
        return producer_id
