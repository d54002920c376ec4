"""Half a minute of `make chaos` on loopback: brokers on ZooKeeper are killed and paused under load; the checkers
run.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.cluster.faults import Pace, killed_broker, killed_zookeeper_leader, paused_broker
from chaos.cluster.network import Loopback
from chaos.cluster.run import put_under_load, require_zookeeper, running_cluster
from peers.cache import require

FAULTS = [killed_broker, killed_zookeeper_leader, paused_broker]


@pytest.mark.timeout(1800)
def test_kills_and_pauses_of_brokers_and_zookeepers_leave_no_anomaly(tmp_path: Path) -> None:
    require("Java and PySpark", require_zookeeper)
    with running_cluster(tmp_path, network=Loopback()) as targets:
        pace = Pace(fault_s=(0.5, 6.0), rest_s=(1.0, 3.0))
        outcome = put_under_load(
            targets, FAULTS, 3, 0.4, tmp_path, copiers=["confluent-kafka"], pace=pace, least_faults=2
        )
    assert outcome.anomalies == []
    assert sum(outcome.faults.values()) >= 2
    assert outcome.acknowledged > 1_000
