"""The options of a client metrics resource: which metrics some clients push to the brokers (KIP-714)."""

from __future__ import annotations

from felice.config.option import Items, Kind, Option, Scope, option, options_of
from felice.dataclass import dataclass

MIN_INTERVAL_MS = 100
MAX_INTERVAL_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class ClientMetricsConfig:
    """One resource. Its values are checked where they are set, because its errors are not those of other options."""

    metrics: tuple[str, ...] = option(
        "metrics",
        Kind.LIST,
        (),
        "Prefixes of the names of the metrics; * requests all. Without any, nothing is requested.",
        items=Items.REPEATED,
        scope=Scope.CLUSTER_WIDE,
    )
    interval_ms: int = option(
        "interval.ms",
        Kind.INT,
        300_000,
        "How often clients push: 100 to 3600000.",
        scope=Scope.CLUSTER_WIDE,
    )
    match: tuple[str, ...] = option(
        "match",
        Kind.LIST,
        (),
        "Which clients: selector=regular expression, separated by commas. A client must match all. Without any, "
        "all clients match.",
        items=Items.REPEATED,
        scope=Scope.CLUSTER_WIDE,
    )


CLIENT_METRICS_OPTIONS: dict[str, Option] = options_of(ClientMetricsConfig)
"""The options of a client metrics resource, by name."""
