"""The statistics that producers and consumers share, with the field names of librdkafka's STATISTICS.md.

Keeps true:  Every field present has a true value. Fields about parts that only librdkafka has (internal queues and
             buffers, wakeups, compression buffers) are left out, not reported as zero.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable
from typing import Any

from felice.client.model import BrokerMetadata
from felice.client.net.cluster import Cluster
from felice.client.net.traffic import BrokerTraffic
from felice.client.options import ClientSettings

Document = dict[str, Any]

_instances = itertools.count(1)


class Statistics:
    """Builds the statistics document every `statistics.interval.ms` and passes it to `stats_cb` as JSON.

    `details` adds the fields of the producer or consumer; it runs on the client's loop.
    """

    def __init__(
        self,
        cluster: Cluster,
        settings: ClientSettings,
        details: Callable[[Document], None],
        tell: Callable[..., None],
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._details = details
        self._tell = tell
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._name = f"{settings.client_id}#{settings.title}-{next(_instances)}"

    def start(self) -> None:
        """Start if both callback and interval are configured."""
        if self._settings.stats_cb is not None and self._settings.statistics_interval_ms:
            self._cluster.spawn(self._emit())

    async def _emit(self) -> None:
        while True:
            await asyncio.sleep(self._settings.statistics_interval_ms / 1000)
            self._tell(self._settings.stats_cb, json.dumps(self.document()))

    def document(self) -> Document:
        """Return the current statistics and start new sample windows."""
        now = self._loop.time()
        brokers = self._brokers(now)
        document: Document = {
            "name": self._name,
            "client_id": self._settings.client_id,
            "type": self._settings.title,
            "ts": int(now * 1e6),
            "time": self._settings.env.clock.now_ms() // 1000,
            "age": int((now - self._began) * 1e6),
            "metadata_cache_cnt": len(self._cluster.topology.topics),
            "brokers": brokers,
            "tx": sum(broker["tx"] for broker in brokers.values()),
            "tx_bytes": sum(broker["txbytes"] for broker in brokers.values()),
            "rx": sum(broker["rx"] for broker in brokers.values()),
            "rx_bytes": sum(broker["rxbytes"] for broker in brokers.values()),
            "topics": {},
        }
        self._details(document)
        return document

    def _brokers(self, now: float) -> dict[str, Document]:
        known = {(row.host, row.port): row for row in self._cluster.topology.brokers.values()}
        bootstrap = [address for address in self._settings.bootstrap if address not in known]
        addresses = dict.fromkeys([*known, *bootstrap, *self._cluster.traffic])
        rows = (
            self._broker(address, known.get(address), self._cluster.traffic_of(*address), now)
            for address in addresses
        )
        return {row["name"]: row for row in rows}

    def _broker(
        self, address: tuple[str, int], known: BrokerMetadata | None, traffic: BrokerTraffic, now: float
    ) -> Document:
        node_name = f"{address[0]}:{address[1]}"
        connections = self._cluster.connections(*address)
        since = traffic.connected_at if connections else self._began
        return {
            "name": f"{node_name}/{'bootstrap' if known is None else known.id}",
            "nodeid": -1 if known is None else known.id,
            "nodename": node_name,
            "source": "configured" if known is None else "learned",
            "state": "UP" if connections else "DOWN" if traffic.connects else "INIT",
            "stateage": int((now - since) * 1e6),
            "waitresp_cnt": sum(connection.in_flight for connection in connections),
            "tx": sum(traffic.requests.values()),
            "txbytes": traffic.sent_bytes,
            "txretries": traffic.retries,
            "req_timeouts": traffic.timeouts,
            "rx": traffic.replies,
            "rxbytes": traffic.received_bytes,
            "rxerrs": traffic.bad_replies,
            "req": dict(traffic.requests),
            "connects": traffic.connects,
            "disconnects": traffic.disconnects,
            "int_latency": traffic.internal_latency_us.take(),
            "rtt": traffic.round_trips_us.take(),
            "throttle": traffic.throttle_ms.take(),
            "toppars": {},
        }


def topic_row(document: Document, topic: str) -> Document:
    """Return the row of a topic in a document; creates it if missing."""
    row: Document = document["topics"].setdefault(topic, {"topic": topic, "partitions": {}})
    return row


def partition_row(document: Document, cluster: Cluster, topic: str, partition: int) -> Document:
    """Return the row of a partition, with its leader, in a document; creates it if missing."""
    leader = cluster.topology.leader(topic, partition)
    row: Document = topic_row(document, topic)["partitions"].setdefault(
        str(partition), {"partition": partition, "broker": leader, "leader": leader}
    )
    for broker in document["brokers"].values():
        if broker["nodeid"] == leader >= 0:
            broker["toppars"][f"{topic}-{partition}"] = {"topic": topic, "partition": partition}
    return row
