"""How many connections per second a broker and each of its listeners accept (max.connection.creation.rate, KIP-612).

Keeps true: a connection over the limit is delayed and not refused, and counts for the rates. Other connections of its
            listener wait behind it. A listener without a limit of its own has the number of the broker as its limit.
            Connections to the inter-broker listener do not count for the limit of all listeners together and do not
            wait for it, unless it is the only listener.
"""

from __future__ import annotations

from collections.abc import Callable

from felice.config import BrokerConfig
from felice.env import Clock
from felice.server.quotas.rates import Rate, Window


class AcceptRates:
    """The rates of one broker."""

    def __init__(
        self, clock: Clock, config: Callable[[], BrokerConfig], window: Callable[[], Window]
    ) -> None:
        self._clock = clock
        self._config = config
        self._window = window
        self._of_broker: Rate | None = None
        self._of_listeners: dict[str, Rate] = {}
        self._limited: BrokerConfig | None = None
        self._limits: dict[str, int] = {}
        self._exempt: str | None = None  # the listener that the limit of all listeners does not concern

    def record(self, listener: str) -> float:
        """Counts a connection. Returns the seconds for which the listener must not accept further ones."""
        config, now_s, window = self._config(), self._clock.monotonic(), self._window()
        if config is not self._limited:
            self._follow(config)
        own = self._of_listeners.setdefault(listener, Rate(window))
        wait_s = _recorded(own, self._limits[listener], now_s)
        if listener != self._exempt:
            self._of_broker = self._of_broker or Rate(window)
            wait_s = max(wait_s, _recorded(self._of_broker, config.max_connection_creation_rate, now_s))
        return min(wait_s, window.sample_s)

    def _follow(self, config: BrokerConfig) -> None:
        self._limited, self._limits = config, config.creation_rates
        self._exempt = config.privileged_listener


def _recorded(rate: Rate, limit: int, now_s: float) -> float:
    rate.record(1, now_s)
    return rate.throttle_s(limit, now_s)
