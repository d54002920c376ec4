"""The newest values that clients pushed, as series of Prometheus.

Keeps true: one client has at most `MAX_SERIES_OF_CLIENT` series, and all clients together `MAX_SERIES`. Their texts
            have limits, too. `dropped` counts values above these limits.
            A name has one kind, gauge or counter: that of its first series.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from uuid import UUID

from felice.dataclass import dataclass
from felice.protocol.uuids import format_uuid
from felice.server.metrics.families import Families, Family, Kind, counter, gauge, label_text
from felice.server.telemetry.otlp import Attributes, Point

MAX_SERIES = 20_000
MAX_SERIES_OF_CLIENT = 2_000
_MAX_TEXT = 256
_MAX_LABEL_TEXT = 1024
_NOT_IN_NAMES = r"[^a-zA-Z0-9_]"
# Labels that begin with two underscores belong to Prometheus: it would refuse a page with a label `__name__`.
_RESERVED = r"^__+"
_CLIENTS = "felice_client_telemetry_clients"
_DROPPED = "felice_client_telemetry_dropped_total"


class ClientSeries:
    """The series of one client: their names and labels."""

    def __init__(self, labels: Mapping[str, str]) -> None:
        self.labels = labels
        self.keys: set[tuple[str, str]] = set()


@dataclass(slots=True)
class _Metric:
    """The values of one name, of all clients, by labels."""

    kind: Kind
    values: dict[str, float]


class Series:
    """The series of all clients."""

    def __init__(self) -> None:
        self.count = 0
        self.dropped = 0
        self._clients: dict[UUID, ClientSeries] = {}
        self._metrics: dict[str, _Metric] = {}

    def client(self, instance_id: UUID, labels: Mapping[str, str]) -> ClientSeries:
        """The series of a client. All of them have these labels, and its id."""
        own = {name: value[:_MAX_TEXT] for name, value in labels.items()}
        own["client_instance_id"] = format_uuid(instance_id)
        return self._clients.setdefault(instance_id, ClientSeries(own))

    def add(self, client: ClientSeries, point: Point) -> None:
        """Takes a value over, unless there are too many series."""
        name = _name(point.name)
        kind = Kind.COUNTER if point.is_counter else Kind.GAUGE
        key = (name, label_text(**_labels(client.labels, point.attributes)))
        metric = self._metrics.get(name)
        is_known = key in client.keys
        is_taken = name in (_CLIENTS, _DROPPED) or (metric is not None and metric.kind is not kind)
        if is_taken or not (is_known or self._has_room(client, key[1])):
            self.dropped += 1
            return
        if metric is None:
            metric = self._metrics[name] = _Metric(kind, {})
        if not is_known:
            client.keys.add(key)
            self.count += 1
        before = metric.values.get(key[1], 0.0) if point.is_delta else 0.0
        metric.values[key[1]] = before + point.value

    def _has_room(self, client: ClientSeries, labels: str) -> bool:
        return (
            len(client.keys) < MAX_SERIES_OF_CLIENT
            and self.count < MAX_SERIES
            and len(labels) <= _MAX_LABEL_TEXT
        )

    def forget(self, instance_id: UUID) -> None:
        """Removes the series of a client."""
        client = self._clients.pop(instance_id, None)
        for name, labels in client.keys if client is not None else ():
            self.count -= 1
            values = self._metrics[name].values
            del values[labels]
            if not values:
                del self._metrics[name]

    def families(self) -> Families:
        """All series, one family for each name."""
        yield gauge(_CLIENTS, "Clients with pushed metrics.", len(self._clients))
        yield counter(
            _DROPPED,
            "Pushed values that were dropped: there are too many series, or the name has another meaning.",
            self.dropped,
        )
        for name, metric in sorted(self._metrics.items()):
            # The clients may push while the page is written.
            yield Family(name, metric.kind, "Pushed by clients (KIP-714).", list(metric.values.items()))


def _name(text: str) -> str:
    """A name of Prometheus: `org.apache.kafka.producer.record.send.total` has underscores instead of dots."""
    found = re.sub(_RESERVED, "_", re.sub(_NOT_IN_NAMES, "_", text[:_MAX_TEXT]))
    return found if found and not found[0].isdigit() else f"_{found}"


def _labels(own: Mapping[str, str], attributes: Attributes) -> dict[str, str]:
    pushed = {_name(key): value[:_MAX_TEXT] for key, value in attributes}
    return {**pushed, **own}
