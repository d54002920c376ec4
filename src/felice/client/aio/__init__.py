"""The client for programs that have an event loop: `Producer`, `Consumer` and `Admin` as coroutines."""

from __future__ import annotations

from felice.client.admin.core import Admin
from felice.client.aio.consumer import AsyncConsumer as Consumer
from felice.client.aio.producer import AsyncProducer as Producer

__all__ = ["Admin", "Consumer", "Producer"]
