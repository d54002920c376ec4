"""The names of metrics in the three dialects, as the dashboards that read them spell them."""

from __future__ import annotations

import pytest

from felice.server.metrics.names import Dialect, MBean, exposed, labels_in

S, C, R = Dialect.STRIMZI, Dialect.CONFLUENT, Dialect.REPORTER


@pytest.mark.parametrize(
    ("mbean", "dialect", "name"),
    [
        (("kafka.server", "ReplicaManager", "LeaderCount"), S, "kafka_server_replicamanager_leadercount"),
        (
            ("kafka.server", "ReplicaManager", "IsrShrinksPerSec"),
            S,
            "kafka_server_replicamanager_isrshrinks_total",
        ),
        (
            ("kafka.server", "ReplicaManager", "IsrShrinksPerSec"),
            C,
            "kafka_server_replicamanager_isrshrinkspersec",
        ),
        (
            ("kafka.server", "ReplicaManager", "IsrShrinksPerSec"),
            R,
            "kafka_server_replicamanager_isrshrinkspersec_total",
        ),
        (
            ("kafka.network", "SocketServer", "NetworkProcessorAvgIdlePercent"),
            S,
            "kafka_network_socketserver_networkprocessoravgidle_percent",
        ),
        (
            ("kafka.network", "SocketServer", "NetworkProcessorAvgIdlePercent"),
            R,
            "kafka_network_socketserver_networkprocessoravgidlepercent",
        ),
        (
            ("kafka.server", "socket-server-metrics", "connection-count"),
            S,
            "kafka_server_socket_server_metrics_connection_count",
        ),
        (
            ("kafka.server", "socket-server-metrics", "connection-count"),
            C,
            "kafka_server_socketservermetrics_connection_count",
        ),
        (
            ("kafka.coordinator.group", "GroupMetadataManager", "NumGroupsStable"),
            S,
            "kafka_coordinator_group_groupmetadatamanager_numgroupsstable",
        ),
        (
            ("kafka.network", "RequestMetrics", "TotalTimeMs", "_count"),
            S,
            "kafka_network_requestmetrics_totaltimems_count",
        ),
    ],
)
def test_names(mbean: tuple[str, ...], dialect: Dialect, name: str) -> None:
    assert exposed(MBean(*mbean), dialect) == name


def test_only_confluents_rules_lower_the_names_of_labels() -> None:
    labels = r'listener="A",networkProcessor="0",clientId="a,Foo=\"b"'
    assert labels_in(S, labels) == labels
    assert labels_in(C, labels) == r'listener="A",networkprocessor="0",clientid="a,Foo=\"b"'
