"""How `AdminClient` returns results: coroutines of `aio.Admin` run on their own thread and complete futures.

Keeps true:  Every requested item has a future, and every future gets a result or a `KafkaException`.
"""

from __future__ import annotations

from collections.abc import Coroutine, Hashable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, Never, Self, TypeVar

from felice.client.admin.core import Admin
from felice.client.error import KafkaError, failure, kafka_exception
from felice.client.net.loop_thread import LoopThread
from felice.client.options import AdminSettings

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class FutureCalls:
    """A client with futures for results, which can be closed or used in a `with` block."""

    def __init__(self, conf: Mapping[str, object] | None = None, **kwargs: object) -> None:
        settings = AdminSettings.parse({**(conf or {}), **kwargs})
        self._closing = False
        self._thread = LoopThread("admin client")
        self._admin = Admin(settings)
        self._thread.at_end = self._admin.close

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_thread") and self._thread.alive:
            self._thread.post(self._thread.loop.stop)

    def __len__(self) -> int:
        return 0

    def __bool__(self) -> bool:
        return True

    def close(self) -> None:
        """Close the connections. Unfinished futures fail with _DESTROY."""
        self._closing = True
        if self._thread.alive:
            self._thread.stop()

    def poll(self, timeout: float = 0) -> int:
        """Return 0: futures complete by themselves, and no callbacks wait to be called."""
        self._check_open()
        return 0

    def _check_open(self) -> None:
        """Raise `RuntimeError` after `close`, as confluent_kafka does."""
        if self._closing:
            raise RuntimeError(self._thread.why_ended())

    def _one(self, work: Coroutine[object, Never, T]) -> Future[T]:
        if not self._thread.alive:
            work.close()
            self._check_open()
            raise failure(KafkaError._STATE, self._thread.why_ended())
        answer: Future[T] = Future()
        answer.set_running_or_notify_cancel()

        # The callback holds a reference to the client, so that the client is not collected before the result.
        def done(task: Future[T], client: FutureCalls = self) -> None:
            error = None if task.cancelled() else task.exception()
            if task.cancelled() or (error is not None and client._closing):
                error = failure(KafkaError._DESTROY, "the client was closed before the call ended")
            if error is None:
                answer.set_result(task.result())
            else:
                answer.set_exception(kafka_exception(error))

        self._thread.submit(work).add_done_callback(done)
        return answer

    def _many(
        self, keys: Iterable[K], work: Coroutine[object, Never, Mapping[K, object]]
    ) -> dict[K, Future[Any]]:
        """Return a future per key, all completed by one coroutine with values or exceptions by key.

        The callers' return types name the type of the values.
        """
        futures: dict[K, Future[Any]] = {key: Future() for key in keys}
        for future in futures.values():
            future.set_running_or_notify_cancel()

        def done(task: Future[Mapping[K, object]]) -> None:
            error = task.exception()
            results = {} if error else task.result()
            for key, future in futures.items():
                _settle(future, error or results.get(key))

        self._one(work).add_done_callback(done)
        return futures


def _settle(future: Future[Any], outcome: object) -> None:
    if isinstance(outcome, BaseException):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
