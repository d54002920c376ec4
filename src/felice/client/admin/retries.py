"""Repeats administrative requests that failed with a transient error.

Keeps true:  An error that time or another broker resolves (no controller yet, coordinator moving, leader changing) is
             retried until the time limit. Every other error is returned at once, as the result of its item. If no
             broker can be reached, the call fails at once, not at the end of the time limit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Concatenate, ParamSpec, Self, TypeVar

from felice.client.admin.results import Results
from felice.client.error import KafkaError, KafkaException, kafka_exception
from felice.client.net.cluster import Cluster, backoff_s
from felice.client.net.limits import limited, time_left_s
from felice.client.options import AdminSettings
from felice.env import Environment
from felice.protocol.errors import ErrorCode

K = TypeVar("K")
T = TypeVar("T")
P = ParamSpec("P")

DEFAULT_TIMEOUT_S = 60.0

_TRANSIENT = {
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
}


class RetryingCalls:
    """The connections of an administrative client, and the repetition of its requests."""

    def __init__(
        self, config: Mapping[str, object] | AdminSettings, *, env: Environment | None = None
    ) -> None:
        self._settings = config if isinstance(config, AdminSettings) else AdminSettings.parse(config, env)
        self._cluster: Cluster | None = None

    @property
    def cluster(self) -> Cluster:
        """The connections, created on first use."""
        if self._cluster is None:
            self._cluster = Cluster(self._settings)
        return self._cluster

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        if self._cluster is not None:
            await self._cluster.close()
            self._cluster = None

    async def _retrying(self, ask: Callable[[], Awaitable[T]], timeout_s: float) -> T:
        """Repeat `ask` on transient errors until it succeeds."""
        attempt = 0
        reason: KafkaException | None = None
        try:
            async with limited(timeout_s):
                while True:
                    try:
                        return await ask()
                    except KafkaException as error:
                        gone = error.code == KafkaError._ALL_BROKERS_DOWN
                        if gone or not error.error.retriable() or not time_left_s(timeout_s):
                            raise
                        reason = error
                    except OSError as error:
                        raise kafka_exception(error) from error
                    await asyncio.sleep(time_left_s(backoff_s(attempt, 100, 1000, self._settings.env.random)))
                    attempt += 1
                    if attempt > 1:
                        await self.cluster.refresh([])
        except KafkaException as error:
            # A broker's error says more than that the time was over.
            if reason is not None and reason.code >= 0 and _timed_out(error):
                raise reason from None
            raise

    async def _ask(
        self,
        timeout_s: float,
        ask: Callable[Concatenate[Cluster, P], Awaitable[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Call `ask` with the cluster and the arguments. Repeat it on transient errors until it succeeds."""
        return await self._retrying(lambda: ask(self.cluster, *args, **kwargs), timeout_s)

    async def _each(
        self,
        items: Mapping[K, T],
        timeout_s: float,
        ask: Callable[Concatenate[Cluster, list[T], P], Awaitable[Results]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Results:
        """Call `ask` with the cluster, all items and the arguments. Repeat it for the items with a transient error."""
        left = dict(items)
        results: Results = {}
        attempt = 0
        async with limited(timeout_s):
            while left:
                asking = partial(ask, self.cluster, list(left.values()), *args, **kwargs)
                try:
                    answers = await self._round(asking, attempt, timeout_s)
                except KafkaException as error:
                    if attempt == 0:
                        raise
                    # The other items have their results from earlier rounds.
                    results |= {key: error for key in left if key not in results or not _timed_out(error)}
                    break
                # A timeout does not replace an earlier error, which says more.
                results.update(
                    {
                        key: found
                        for key, found in answers.items()
                        if key not in results or not _timed_out(found)
                    }
                )
                left = {key: item for key, item in left.items() if _is_transient(answers.get(key))}
                if not time_left_s(timeout_s):
                    break
                attempt += 1
        return {key: results.get(key) for key in items}

    async def _round(self, ask: Callable[[], Awaitable[Results]], attempt: int, timeout_s: float) -> Results:
        """Send a request, again on errors that may pass. If `attempt` is above 0, first wait and fetch the brokers."""
        if attempt > 0:
            async with limited(timeout_s):
                await asyncio.sleep(backoff_s(attempt - 1, 100, 1000, self._settings.env.random))
                await self.cluster.refresh([])
        return await self._retrying(ask, timeout_s)


def by_itself(items: Iterable[K]) -> dict[K, K]:
    """Items that are their own keys."""
    return {item: item for item in items}


def with_values(values: Mapping[K, T]) -> dict[K, tuple[K, T]]:
    """Items that are keys with their values."""
    return {key: (key, value) for key, value in values.items()}


def _timed_out(result: object) -> bool:
    return isinstance(result, KafkaException) and result.code == KafkaError._TIMED_OUT


def _is_transient(result: object) -> bool:
    if not isinstance(result, KafkaException):
        return False
    # Errors of this client have codes below -1: here, a broker that cannot be reached or does not answer.
    return result.code in _TRANSIENT or (result.code < -1 and result.error.retriable())
