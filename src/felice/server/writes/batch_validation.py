"""Checks produced batches before they are appended, the large ones on threads; other work on batches joins them there.

Keeps true:  at most `felice.large.batches.max.at.once` batches are decompressed on threads at a time, each to at most
             `felice.batch.max.decompressed.bytes`: their product bounds the memory of all producers together.
             A thread that works for a client that has left counts until it has ended.
How:         `validate_small` validates on the event loop what takes milliseconds; `validate_large` uses threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from felice.config import BrokerConfig
from felice.protocol.primitives import Buffer
from felice.records.validate import NeedsThread, ProduceRules, Verdict, validation_result

T = TypeVar("T")


class BatchValidation:
    """Validates produced batches on the event loop or on a bounded number of threads."""

    def __init__(self, config: Callable[[], BrokerConfig]) -> None:
        self._config = config
        self._room = asyncio.Semaphore(config().felice_large_batches_max_at_once)

    def validate_small(
        self, records: Buffer, rules: ProduceRules, *, now_ms: int, zstd_allowed: bool
    ) -> Verdict | None:
        """Validates a produced batch on the event loop. Returns None if it is large: call `validate_large`."""
        limit = self._config().felice_batch_max_decompressed_bytes
        try:
            return validation_result(records, rules, now_ms, zstd_allowed, limit, on_loop=True)
        except NeedsThread:
            return None

    async def validate_large(
        self, records: Buffer, rules: ProduceRules, *, now_ms: int, zstd_allowed: bool
    ) -> Verdict:
        """Validates a produced batch on a thread, as soon as one of the bounded number is free."""
        limit = self._config().felice_batch_max_decompressed_bytes
        return await self.on_thread(
            partial(validation_result, records, rules, now_ms, zstd_allowed, limit, on_loop=False)
        )

    async def on_thread(self, work: Callable[[], T]) -> T:
        """Runs other work that decompresses one batch on a thread, and returns its result.

        Waits until one of the bounded number of threads is free.
        """
        await self._room.acquire()
        future = asyncio.get_running_loop().run_in_executor(None, work)
        future.add_done_callback(lambda _: self._room.release())
        return await asyncio.shield(future)
