"""`felice_broker(...)`: one entry point for blocking and for asynchronous code."""

from __future__ import annotations

from typing import Any

from felice.server.process.embedded import stopping_after
from felice.testing.aio import AsyncBroker
from felice.testing.broker import Broker


class felice_broker:
    """`with felice_broker() as broker` gives a `Broker`, `async with felice_broker() as broker` an `AsyncBroker`.

    Takes the arguments of `Broker`. The broker starts on entry and is stopped and removed on exit.
    """

    # The arguments are those of `Broker`, which has their types.
    def __init__(self, *args: Any, **options: Any) -> None:
        self._args = args
        self._options = options
        self._broker: Broker | None = None
        self._async_broker: AsyncBroker | None = None

    def __enter__(self) -> Broker:
        self._broker = Broker(*self._args, **self._options)
        return self._broker

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if self._broker is not None:
            with stopping_after(error):
                self._broker.stop()

    async def __aenter__(self) -> AsyncBroker:
        self._async_broker = await AsyncBroker(*self._args, **self._options).start()
        return self._async_broker

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if self._async_broker is not None:
            with stopping_after(error):
                await self._async_broker.stop()
