"""Client metrics resources: their checks, and what they request from a client. Pure."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from felice.config import ConfigError, shortened
from felice.config.client_metrics import (
    CLIENT_METRICS_OPTIONS,
    MAX_INTERVAL_MS,
    MIN_INTERVAL_MS,
    ClientMetricsConfig,
)
from felice.config.option import construct, parse_all
from felice.dataclass import dataclass
from felice.protocol.errors import ApiError, ErrorCode
from felice.protocol.patterns import Pattern, PatternError, linear_pattern

EVERY_METRIC = "*"
SELECTORS = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
DEFAULT_INTERVAL_MS = 300_000


@dataclass(frozen=True, slots=True)
class Resource:
    """One client metrics resource."""

    metrics: tuple[str, ...]
    interval_ms: int
    match: Mapping[str, Pattern]

    def selects(self, client: Mapping[str, str]) -> bool:
        """Whether a client, given by its selectors, matches."""
        return all(pattern.fullmatch(client[selector]) for selector, pattern in self.match.items())


@dataclass(frozen=True, slots=True)
class Subscription:
    """The request to one client: prefixes of metrics, and how often it pushes them."""

    metrics: tuple[str, ...]
    interval_ms: int

    def id_for(self, client_instance_id: UUID) -> int:
        """The same on every broker, as long as the subscription is the same."""
        text = f"{','.join(self.metrics)};{self.interval_ms}"
        return _signed((zlib.crc32(text.encode()) ^ client_instance_id.int) & 0xFFFF_FFFF)

    def requests(self, metric: str) -> bool:
        """Whether a metric of this name is requested."""
        return any(prefix == EVERY_METRIC or metric.startswith(prefix) for prefix in self.metrics)


def subscription_of(resources: Iterable[Resource], client: Mapping[str, str]) -> Subscription:
    """What all matching resources request together."""
    metrics: set[str] = set()
    interval_ms = DEFAULT_INTERVAL_MS
    for resource in resources:
        if resource.selects(client):
            metrics.update(resource.metrics)
            interval_ms = min(interval_ms, resource.interval_ms)
    return Subscription((EVERY_METRIC,) if EVERY_METRIC in metrics else tuple(sorted(metrics)), interval_ms)


def parse_resource(name: str, properties: Mapping[str, str]) -> Resource:
    """Parses the configuration of a resource. Raises `ApiError` with Kafka's codes."""
    for key in properties:
        if key not in CLIENT_METRICS_OPTIONS:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {shortened(key)}"
            )
    try:
        config = construct(ClientMetricsConfig, parse_all(CLIENT_METRICS_OPTIONS, properties))
    except ConfigError as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from None
    if not MIN_INTERVAL_MS <= config.interval_ms <= MAX_INTERVAL_MS:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Invalid value {config.interval_ms} for interval.ms, interval must be between 100 and 3600000 (1 hour)",
        )
    return Resource(config.metrics, config.interval_ms, _patterns(config.match))


def _patterns(texts: Sequence[str]) -> dict[str, Pattern]:
    found = {}
    for text in texts:
        selector, equals, pattern = (part.strip() for part in text.partition("="))
        if not equals or "=" in pattern:
            raise ApiError(ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {shortened(text)}")
        if selector not in SELECTORS:
            raise ApiError(
                ErrorCode.INVALID_CONFIG, f"Illegal client matching parameter: {shortened(selector)}"
            )
        try:
            found[selector] = linear_pattern(pattern)
        except PatternError as error:
            raise ApiError(
                ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {shortened(text)}: {error}"
            ) from None
    return found


def _signed(number: int) -> int:
    return number - (1 << 32) if number >= 1 << 31 else number
