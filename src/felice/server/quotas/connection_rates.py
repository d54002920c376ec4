"""How many connections each address may open per second (connection_creation_rate).

Keeps true: a connection above the limit gets no response, and is closed after a wait of at most one second, which slows
            down clients that connect again and again. Such a connection does not count for the rate.
            Memory is bounded as in `client_quotas`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from ipaddress import ip_address

from felice.env import Clock
from felice.metadata import ClusterImage
from felice.metadata.client_entity import DEFAULT
from felice.server.quotas.bounded import kept
from felice.server.quotas.limits import QuotaKind, number
from felice.server.quotas.rates import Rate, Window

_MAX_WAIT_S = 1.0


class ConnectionRates:
    """The rates of one broker."""

    def __init__(self, clock: Clock, window: Callable[[], Window]) -> None:
        self._clock = clock
        self._window = window
        self._configs = ClusterImage().client_configs
        self._limits: dict[str, float] = {}
        self._rates: OrderedDict[str, Rate] = OrderedDict()

    def follow(self, image: ClusterImage) -> None:
        """Takes the quotas of a new image."""
        if image.client_configs is self._configs:
            return
        self._configs = image.client_configs
        self._limits = {
            plain_address(entity.ip): value
            for entity, config in self._configs.items()
            if entity.ip is not None
            and (value := number(config.get(QuotaKind.CONNECTIONS.value))) is not None
        }

    def record(self, address: str) -> float:
        """Counts a connection. Returns 0, or the seconds after which it must be closed."""
        if not self._limits:
            return 0.0
        peer = plain_address(address)
        limit = self._limits.get(peer, self._limits.get(DEFAULT))
        if limit is None:
            return 0.0
        now_s = self._clock.monotonic()
        rate = kept(self._rates, peer, lambda: Rate(self._window()))
        rate.record(1, now_s)
        wait_s = min(rate.throttle_s(limit, now_s), _MAX_WAIT_S)
        if wait_s > 0:
            rate.record(-1, now_s)
        return wait_s


def plain_address(text: str) -> str:
    """One text for each address: IPv4 in IPv6 is IPv4, and IPv6 has its shortest form. Other texts stay."""
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return text
    return str(getattr(address, "ipv4_mapped", None) or address)
