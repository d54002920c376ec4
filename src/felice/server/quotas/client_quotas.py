"""The quotas of clients on this broker, and how much of them each client has used.

Keeps true: changed quotas apply at once, also to connected clients; the recorded use stays.
            Memory is bounded: above `MAX_CLIENTS`, the clients that were idle longest are forgotten. Of a long client
            id only its `short_name` is kept.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator

from felice.config import BrokerConfig
from felice.env import Clock
from felice.metadata import ClusterImage
from felice.server.quotas.accepting import AcceptRates
from felice.server.quotas.bounded import MAX_CLIENTS, kept, short_name
from felice.server.quotas.connection_rates import ConnectionRates
from felice.server.quotas.limits import CLIENT_KINDS, Client, Limit, QuotaKind, limit_of
from felice.server.quotas.rates import Rate, TokenBucket, Window

# Above it a throttle would be longer than clients wait for anything, and would not fit into its field.
MAX_THROTTLE_S = 3600.0
_UNLIMITED_BYTES = 2**31 - 1


class ClientQuotas:
    """The quotas of one broker."""

    def __init__(self, clock: Clock, config: Callable[[], BrokerConfig]) -> None:
        self.are_set = False
        """Whether any client has a quota: without one, requests are not measured."""
        self._clock = clock
        self._config = config
        self._configs = ClusterImage().client_configs
        self._limits: OrderedDict[tuple[QuotaKind, str, str], Limit | None] = OrderedDict()
        self._rates: OrderedDict[tuple[QuotaKind, Client], Rate] = OrderedDict()
        self._buckets: OrderedDict[Client, TokenBucket] = OrderedDict()
        self.connections = ConnectionRates(clock, lambda: self.window)
        self.accepting = AcceptRates(clock, config, lambda: self.window)
        self.throttled_s: OrderedDict[tuple[QuotaKind, Client], float] = OrderedDict()

    def follow(self, image: ClusterImage) -> None:
        """Takes the quotas of a new image."""
        if image.client_configs is self._configs:
            return
        self._configs = image.client_configs
        self.connections.follow(image)
        self._limits.clear()
        self.are_set = any(kind.value in config for config in self._configs.values() for kind in CLIENT_KINDS)

    def record(self, kind: QuotaKind, user: str, client_id: str, amount: float) -> float:
        """Counts what a client used, and returns how many seconds it has to wait; 0.0 without a quota.

        `amount` is in bytes for PRODUCE and FETCH. For REQUEST it is 100 times the seconds of the event loop, because
        the quota is a percentage (KIP-124).
        """
        limit = self._limit(kind, user, client_id)
        if limit is None:
            return 0.0
        now_s, rate = self._clock.monotonic(), self._rate(kind, limit.shared_by)
        rate.record(amount, now_s)
        throttle_s = rate.throttle_s(limit.value, now_s)
        if kind is QuotaKind.REQUEST:
            throttle_s = min(throttle_s, self.window.sample_s)
        return self._noted(kind, limit, min(throttle_s, MAX_THROTTLE_S))

    def take_back(self, kind: QuotaKind, user: str, client_id: str, amount: float) -> None:
        """Undoes a `record`: the client did not get what was counted."""
        limit = self._limit(kind, user, client_id)
        if limit is not None:
            self._rate(kind, limit.shared_by).record(-amount, self._clock.monotonic())

    def max_fetch_bytes(self, user: str, client_id: str) -> int:
        """The largest response of one Fetch: a response larger than the quota of one window could never be sent."""
        limit = self._limit(QuotaKind.FETCH, user, client_id) if self.are_set else None
        if limit is None:
            return _UNLIMITED_BYTES
        return min(_UNLIMITED_BYTES, int(limit.value * self.window.burst_s))

    def mutations_exceeded_s(self, user: str, client_id: str) -> float:
        """How many seconds a client has to wait because of the changes that it has made."""
        limit = self._limit(QuotaKind.MUTATION, user, client_id) if self.are_set else None
        if limit is None:
            return 0.0
        now_s, bucket = self._clock.monotonic(), self._bucket(limit.shared_by)
        return min(bucket.throttle_s(limit.value, now_s), MAX_THROTTLE_S)

    def record_mutations(self, user: str, client_id: str, count: int) -> float:
        """Counts created and deleted partitions, and returns how many seconds the client has to wait (KIP-599)."""
        limit = self._limit(QuotaKind.MUTATION, user, client_id) if self.are_set else None
        if limit is None:
            return 0.0
        now_s, bucket = self._clock.monotonic(), self._bucket(limit.shared_by)
        bucket.take(count, limit.value, now_s)
        return self._noted(
            QuotaKind.MUTATION, limit, min(bucket.throttle_s(limit.value, now_s), MAX_THROTTLE_S)
        )

    def usage(self) -> Iterator[tuple[QuotaKind, Client, float, float]]:
        """What clients with quotas use per second, and the last wait of each in seconds, for metrics."""
        now_s = self._clock.monotonic()
        for (kind, client), rate in list(self._rates.items()):
            yield kind, client, rate.per_second(now_s), self.throttled_s.get((kind, client), 0.0)

    @property
    def window(self) -> Window:
        """The window over which rates are measured."""
        config = self._config()
        return Window(config.quota_window_num, config.quota_window_size_seconds)

    def _limit(self, kind: QuotaKind, user: str, client_id: str) -> Limit | None:
        def find() -> Limit | None:
            return limit_of(self._configs, kind, user, client_id)

        return kept(self._limits, (kind, user, short_name(client_id)), find)

    def _rate(self, kind: QuotaKind, client: Client) -> Rate:
        return kept(self._rates, (kind, client), lambda: Rate(self.window))

    def _bucket(self, client: Client) -> TokenBucket:
        config = self._config()
        window = Window(config.controller_quota_window_num, config.controller_quota_window_size_seconds)
        return kept(self._buckets, client, lambda: TokenBucket(window))

    def _noted(self, kind: QuotaKind, limit: Limit, throttle_s: float) -> float:
        key = kind, limit.shared_by
        self.throttled_s[key] = throttle_s
        self.throttled_s.move_to_end(key)
        if len(self.throttled_s) > MAX_CLIENTS:
            self.throttled_s.popitem(last=False)
        return throttle_s
