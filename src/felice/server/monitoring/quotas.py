"""Metrics of clients with quotas: what they use, and how long they had to wait."""

from __future__ import annotations

from felice.server.metrics.families import PAUSE, Families, Family, Kind, Row, label_text
from felice.server.monitoring.sources import Sources
from felice.server.quotas.limits import QuotaKind

_RESOURCES = {QuotaKind.PRODUCE: "Produce", QuotaKind.FETCH: "Fetch", QuotaKind.REQUEST: "Request"}
_USED = {QuotaKind.PRODUCE: "byte_rate", QuotaKind.FETCH: "byte_rate", QuotaKind.REQUEST: "request_time"}
_CLIENTS_BETWEEN_PAUSES = 50


def quotas(sources: Sources) -> Families:
    """Rates and waits by client; a user's quota that its client ids share has an empty client id."""
    rows: dict[str, list[Row]] = {"byte_rate": [], "request_time": [], "throttle_time": []}
    for number, (kind, client, rate, wait_s) in enumerate(sources.services.quotas.usage()):
        labels = label_text(
            resource=_RESOURCES[kind], user=client.user or "", clientId=client.client_id or ""
        )
        rows[_USED[kind]].append((labels, rate))
        rows["throttle_time"].append((labels, wait_s * 1000))
        if number % _CLIENTS_BETWEEN_PAUSES == 0:
            yield PAUSE
    prefix = "kafka_server_quota"
    yield Family(f"{prefix}_byte_rate", Kind.GAUGE, "Bytes per second.", rows["byte_rate"])
    yield Family(f"{prefix}_request_time", Kind.GAUGE, "Percent of the event loop.", rows["request_time"])
    yield Family(
        f"{prefix}_throttle_time", Kind.GAUGE, "Milliseconds of the last wait.", rows["throttle_time"]
    )
