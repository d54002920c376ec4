"""Flushes of one replica's log on a thread.

Keeps true: at most one flush of a log runs at a time. Appends that arrive during a sync share the next one.
Leaves:     what a flush must write, and the recovery point, to `log`; the effect on acknowledgements to the replica.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from felice.log.errors import FlushPostponed
from felice.log.log import Log
from felice.protocol.errors import ApiError


class FlushedReplica(Protocol):
    """A replica, as the flusher of its log sees it."""

    log: Log

    @property
    def is_open(self) -> bool:
        """False once the replica was deleted, closed, or failed: the outcome of a flush no longer matters."""
        ...

    def on_durable(self, offset: int) -> None:
        """Records below `offset` are on disk, as far as flush.messages asks for that."""
        ...

    def on_flush_postponed(self, error: FlushPostponed) -> None:
        """The disk is full. The records stay, and the next flush writes what is missing."""
        ...

    def on_flush_failed(self, error: ApiError) -> None:
        """A sync failed: the content of the disk is unknown, and nothing more may be acknowledged."""
        ...


class LogFlusher:
    """Starts flushes of a replica's log, and waits for their end."""

    # One for each partition of the broker.
    __slots__ = ("_flushing", "_replica")

    def __init__(self, replica: FlushedReplica) -> None:
        self._replica = replica
        self._flushing: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        """Whether a flush that `begin` started has not ended."""
        return self._flushing is not None

    def begin(self) -> asyncio.Task[None]:
        """Starts a flush, or joins the flush that runs. Cancelling the task that it returns stops the flush."""
        if self._flushing is None:
            self._flushing = asyncio.get_running_loop().create_task(self._flush())
        return self._flushing

    async def finish(self) -> None:
        """Returns when no flush runs, so that the log may be closed."""
        if self._flushing is not None:
            # Cancelling this wait must not cancel the flush.
            await asyncio.shield(self._flushing)

    async def _flush(self) -> None:
        """Syncs until no acknowledgement waits for the disk."""
        replica, loop = self._replica, asyncio.get_running_loop()
        log = replica.log
        try:
            while True:
                flush = log.begin_flush()
                await loop.run_in_executor(None, flush.run)
                if not replica.is_open:
                    return  # deleted or closed meanwhile: what became of its files is not a disk failure
                log.end_flush(flush)
                if not log.needs_flush:
                    break
                replica.on_durable(min(flush.end_offset, log.recovery_point))
            replica.on_durable(log.log_end_offset)
        except FlushPostponed as error:
            replica.on_flush_postponed(error)
        except ApiError as error:
            replica.on_flush_failed(error)
        finally:
            self._flushing = None
