"""A small client for raw batches, without event loop or threads, for processes such as Spark's executors."""

from __future__ import annotations

from felice.client.blocking.client import EARLIEST, LATEST, BlockingClient
from felice.client.blocking.config import BlockingConfig
from felice.client.blocking.fetching import OffsetOutOfRange, RawBatches
from felice.client.blocking.producing import Appended

__all__ = [
    "EARLIEST",
    "LATEST",
    "Appended",
    "BlockingClient",
    "BlockingConfig",
    "OffsetOutOfRange",
    "RawBatches",
]
