"""Options of the endpoint for metrics and health. Kafka does not have them; their names begin with `felice.`."""

from __future__ import annotations

import re

from felice.config.option import Kind, Scope, option
from felice.dataclass import dataclass

METRICS_LISTENER = "felice.metrics.listener"
METRICS_PROTOCOL = "felice.metrics.security.protocol"
METRICS_USERS = "felice.metrics.users"
ENDPOINT = "METRICS"
"""The name of the endpoint in options such as `listener.name.metrics.ssl.keystore.location`."""
METRIC_NAMES = ("strimzi", "confluent", "reporter")
METRIC_FAMILIES = (
    "requests",
    "connections",
    "replicas",
    "controller",
    "store",
    "directories",
    "groups",
    "transactions",
    "quotas",
    "topics",
    "partitions",
    "logs",
    "lag",
)


def _fault_of_address(text: str) -> str | None:
    if text and address_of(text) is None:
        return "expected host:port, such as 127.0.0.1:9404"
    return None


def _fault_of_users(text: str | None) -> str | None:
    if text is None:
        return None
    expected = "expected user:password, or several of them with commas between them"
    try:
        text.encode()
    except UnicodeEncodeError:
        return expected
    pairs = [pair.strip().partition(":") for pair in text.split(",")]
    return None if all(user and password for user, _, password in pairs) else expected


def address_of(text: str) -> tuple[str, int] | None:
    """The host and port of `host:port`; an empty host means every interface."""
    found = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[^:\[\]\s]*):([0-9]{1,5})", text)
    if found is None or int(found.group(2)) > 65_535:
        return None
    return found.group(1).strip("[]"), int(found.group(2))


def listener_of(text: str, number: int) -> str:
    """The address for the broker with this number, counted from 0, among brokers that share one configuration."""
    address = address_of(text)
    if address is None or address[1] == 0:
        return text
    return f"{text.rpartition(':')[0]}:{address[1] + number}"


@dataclass(frozen=True, slots=False)
class MonitoringOptions:
    """Options of metrics, slow requests and log lines."""

    telemetry_max_bytes: int = option(
        "telemetry.max.bytes",
        Kind.INT,
        1024 * 1024,
        "The largest push of metrics by a client (KIP-714), as it arrives.",
        minimum=1,
    )
    felice_slow_request_ms: int = option(
        "felice.slow.request.ms",
        Kind.LONG,
        1_000,
        "A request that takes longer is logged with the parts of its time; -1: none. Of requests that wait because "
        "their client asks for it (Fetch, JoinGroup, SyncGroup) only the time in the queue and on the event loop "
        "counts.",
        scope=Scope.CLUSTER_WIDE,
        minimum=-1,
    )
    felice_metrics_listener: str = option(
        METRICS_LISTENER,
        Kind.STRING,
        "",
        "The address (host:port) at which the broker serves /metrics for Prometheus, /health and /ready over HTTP; if "
        "the option is empty, the broker does not serve them. Without felice.metrics.users the endpoint asks for no "
        "password: choose an address that only your monitoring reaches. Port 0 picks a free port. Brokers that one "
        "command starts have consecutive ports.",
        internal_check=_fault_of_address,
    )
    felice_metrics_security_protocol: str = option(
        METRICS_PROTOCOL,
        Kind.STRING,
        "PLAINTEXT",
        "SSL: the endpoint for metrics uses HTTPS with the ssl.* options of the broker. Options that begin with "
        "listener.name.metrics. override them (for example listener.name.metrics.ssl.client.auth=required).",
        choices=("PLAINTEXT", "SSL"),
    )
    felice_metrics_users: str | None = option(
        METRICS_USERS,
        Kind.PASSWORD,
        None,
        "user:password, or several with commas between them: the endpoint then answers /metrics and /metrics/clients "
        "only to these users (HTTP Basic). /health and /ready need no password. Without SSL, passwords are sent in "
        "clear text.",
        internal_check=_fault_of_users,
    )
    felice_metrics_names: str = option(
        "felice.metrics.names",
        Kind.STRING,
        "strimzi",
        "How Kafka's metrics are named: as Strimzi and jmx_exporter's kafka-2_0_0 rules do (strimzi), Confluent's "
        "jmx-monitoring-stacks (confluent), or Strimzi's metrics reporter (reporter).",
        choices=METRIC_NAMES,
    )
    felice_metrics_families: tuple[str, ...] = option(
        "felice.metrics.families",
        Kind.LIST,
        METRIC_FAMILIES,
        "The groups of metrics to serve. partitions and logs have seventeen series for each partition, lag has two for "
        "each committed offset, topics has ten for each topic.",
        choices=METRIC_FAMILIES,
    )

    @property
    def metrics_logins(self) -> frozenset[str]:
        """The `user:password` pairs of `felice.metrics.users`; empty if the endpoint asks for no password."""
        pairs = (self.felice_metrics_users or "").split(",")
        return frozenset(pair.strip() for pair in pairs if pair.strip())

    @property
    def serves_metrics_by_tls(self) -> bool:
        """Whether the broker has an endpoint for metrics that uses HTTPS."""
        return bool(self.felice_metrics_listener) and self.felice_metrics_security_protocol == "SSL"
