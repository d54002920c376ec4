"""The clients that ask for subscriptions and push metrics (KIP-714).

Keeps true: every broker gives a client the same subscription id, so the client may push to any of them. A client that
            asks or pushes more often than its interval gets THROTTLING_QUOTA_EXCEEDED. Once an interval it may push
            early after an error, and once when it ends. As in Kafka the interval is that of a client instance id.
            A client that is silent for `_MIN_LIFE_S`, and for three intervals, is forgotten with its series; so is the
            one that was silent longest if there are more than `MAX_CLIENTS`.
Leaves:     resources and their meaning to `subscriptions`, values to `series`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import field
from itertools import islice
from uuid import UUID

from felice.dataclass import dataclass
from felice.env import Clock, Random
from felice.metadata import ClusterImage
from felice.protocol.errors import ApiError, ErrorCode
from felice.protocol.uuids import format_uuid
from felice.records.compression import Codec, codec_of_id, decompress
from felice.server.flow.pace import paced
from felice.server.telemetry.otlp import BadTelemetry, Point, points
from felice.server.telemetry.series import ClientSeries, Series
from felice.server.telemetry.subscriptions import Resource, Subscription, parse_resource, subscription_of

_log = logging.getLogger("felice.server")

MAX_CLIENTS = 16_384
MAX_POINTS_OF_PUSH = 10_000
RESERVED_IDS = (UUID(int=0), UUID(int=1))
_MIN_LIFE_S = 60.0
_INTERVALS_OF_LIFE = 3
# Decompressed metrics may be this many times as large as `telemetry.max.bytes`.
_MAX_EXPANSION = 16
_LABELS = ("client_id", "client_software_name", "client_software_version")
_FORGIVEN = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)


@dataclass(slots=True)
class _Client:
    """A client instance: its subscription, and when it asked and pushed last."""

    subscription: Subscription
    subscription_id: int
    resources: object
    """The resources from which the subscription was made."""
    seen_s: float
    asked_s: float = field(default=float("-inf"))
    pushed_s: float = field(default=float("-inf"))
    last_error: int = ErrorCode.NONE
    may_push_early: bool = False
    """Whether the client asked again after an error, and has not pushed since then."""
    pushed_early_s: float = field(default=float("-inf"))
    ended_s: float = field(default=float("-inf"))
    is_terminating: bool = False

    @property
    def interval_s(self) -> float:
        """How long the client waits between two pushes."""
        return self.subscription.interval_ms / 1000

    def is_gone(self, now_s: float) -> bool:
        """Whether the client was silent for too long."""
        return now_s - self.seen_s > max(_MIN_LIFE_S, _INTERVALS_OF_LIFE * self.interval_s)

    def may_ask(self, now_s: float) -> bool:
        """Whether the client may ask for its subscription: once an interval, or to recover from an error."""
        if now_s - max(self.asked_s, self.pushed_s) >= self.interval_s:
            self.asked_s = now_s
            return True
        # As in Kafka this answer does not begin a new interval. In Kafka the push that follows is throttled. Here it is
        # accepted once an interval; otherwise a client could alternate wrong pushes and questions without end.
        is_forgiven = self.last_error in _FORGIVEN
        self.may_push_early = is_forgiven and now_s - self.pushed_early_s >= self.interval_s
        return is_forgiven

    def may_push(self, now_s: float, *, is_terminating: bool) -> bool:
        """Whether the client may push: once an interval, once after each question, and once when it ends."""
        if self.asked_s > self.pushed_s or now_s - self.pushed_s >= self.interval_s:
            may_push = True
        elif self.may_push_early:
            may_push, self.pushed_early_s = True, now_s
        else:
            # Kafka accepts any number, if pushes that do not end the client come between them.
            may_push = is_terminating and now_s - self.ended_s >= self.interval_s
        if may_push:
            self.pushed_s, self.may_push_early = now_s, False
            self.ended_s = now_s if is_terminating else self.ended_s
        return may_push


@dataclass(frozen=True, slots=True)
class Push:
    """What a client pushed."""

    subscription_id: int
    is_terminating: bool
    compression_type: int
    metrics: bytes


class ClientTelemetry:
    """The clients of one broker, and the metrics that they pushed."""

    def __init__(
        self, clock: Clock, random: Random, image: Callable[[], ClusterImage], max_bytes: int
    ) -> None:
        self.series = Series()
        self.max_bytes = max_bytes
        self._clock = clock
        self._random = random
        self._image = image
        self._clients: OrderedDict[UUID, _Client] = OrderedDict()
        self._configs: Mapping[str, Mapping[str, str]] = {}
        self._resources: tuple[Resource, ...] = ()
        # One push at a time: its decompressed metrics take `_MAX_EXPANSION` times as much memory.
        self._taking = asyncio.Lock()

    def subscribe(self, instance_id: UUID, selectors: Mapping[str, str]) -> tuple[UUID, int, Subscription]:
        """The id of the client, that of its subscription, and the subscription. Raises `ApiError`."""
        if instance_id == UUID(int=0):
            instance_id = self._new_id()
        client = self._client(instance_id, selectors)
        if not client.may_ask(self._clock.monotonic()):
            raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        client.last_error = ErrorCode.NONE
        return instance_id, client.subscription_id, client.subscription

    async def push(self, instance_id: UUID, selectors: Mapping[str, str], push: Push) -> None:
        """Takes metrics over. Raises `ApiError`."""
        if instance_id in RESERVED_IDS:
            raise ApiError(ErrorCode.INVALID_REQUEST, "the client instance id is reserved")
        client = self._client(instance_id, selectors)
        client.last_error = self._fault_of(push, client)
        # As in Kafka: the push after a refused one is accepted again.
        client.is_terminating = push.is_terminating
        if client.last_error == ErrorCode.NONE and push.metrics:
            try:
                async with self._taking:
                    await self._take(instance_id, client, selectors, push)
            except (BadTelemetry, ApiError) as error:
                _log.warning(
                    "pushed metrics of a client cannot be read",
                    extra={"client_id": selectors["client_id"], "reason": str(error)},
                )
                client.last_error = ErrorCode.INVALID_RECORD
        if client.last_error != ErrorCode.NONE:
            raise ApiError(client.last_error)

    def _fault_of(self, push: Push, client: _Client) -> ErrorCode:
        if client.is_terminating:
            return ErrorCode.INVALID_REQUEST
        if not client.may_push(self._clock.monotonic(), is_terminating=push.is_terminating):
            return ErrorCode.THROTTLING_QUOTA_EXCEEDED
        if push.subscription_id != client.subscription_id:
            return ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        if push.compression_type not in set(Codec):
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        if len(push.metrics) > self.max_bytes:
            return ErrorCode.TELEMETRY_TOO_LARGE
        return ErrorCode.NONE

    async def _take(
        self, instance_id: UUID, client: _Client, selectors: Mapping[str, str], push: Push
    ) -> None:
        loop = asyncio.get_running_loop()
        # On a thread: both steps may take long.
        found = await loop.run_in_executor(None, _points_of, push, self.max_bytes * _MAX_EXPANSION)
        series: ClientSeries | None = None
        async for point in paced(found, self._clock):
            # The client may have been forgotten during a pause: nothing would remove what is added then.
            if self._clients.get(instance_id) is not client:
                break
            if client.subscription.requests(point.name):
                series = series or self.series.client(
                    instance_id, {name: selectors[name] for name in _LABELS}
                )
                self.series.add(series, point)

    def _client(self, instance_id: UUID, selectors: Mapping[str, str]) -> _Client:
        now_s, resources = self._clock.monotonic(), self._current_resources()
        client = self._clients.pop(instance_id, None)
        if client is None or client.resources is not resources:
            mine = {**selectors, "client_instance_id": format_uuid(instance_id)}
            subscription = subscription_of(resources, mine)
            client = _Client(subscription, subscription.id_for(instance_id), resources, now_s)
        client.seen_s = now_s
        self._clients[instance_id] = client
        if len(self._clients) > MAX_CLIENTS:
            oldest, _ = self._clients.popitem(last=False)
            self.series.forget(oldest)
        return client

    def _current_resources(self) -> tuple[Resource, ...]:
        configs = self._image().client_metrics
        if configs is not self._configs:
            has_changed, self._configs = configs != self._configs, configs
            # A write that changed nothing must not let clients ask again before their interval ends.
            if has_changed:
                self._resources = tuple(_readable(configs))
        return self._resources

    def forget_silent(self) -> None:
        """Forgets the clients that were silent for too long."""
        now_s = self._clock.monotonic()
        for instance_id in [key for key, client in self._clients.items() if client.is_gone(now_s)]:
            del self._clients[instance_id]
            self.series.forget(instance_id)

    def _new_id(self) -> UUID:
        while True:
            found = UUID(int=self._random.getrandbits(128), version=4)
            if found not in self._clients:
                return found


def _points_of(push: Push, limit_bytes: int) -> list[Point]:
    """The first points of a push. Raises `BadTelemetry` or `ApiError`."""
    data = decompress(codec_of_id(push.compression_type), push.metrics, limit_bytes)
    return list(islice(points(data), MAX_POINTS_OF_PUSH))


def _readable(configs: Mapping[str, Mapping[str, str]]) -> list[Resource]:
    found = []
    for name, properties in sorted(configs.items()):
        try:
            found.append(parse_resource(name, properties))
        except ApiError as error:
            _log.error(
                "a client metrics resource cannot be read", extra={"resource": name, "reason": error.message}
            )
    return found
