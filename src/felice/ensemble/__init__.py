"""Runs a real ZooKeeper ensemble on this machine, from the jars of PySpark: for development and tests.

    with Ensemble(directory, nodes=3, port=0) as ensemble:
        ensemble.connect            # 127.0.0.1:40001,127.0.0.1:40002,127.0.0.1:40003
        ensemble.leader().kill()

In production `zookeeper.connect` names an ensemble that operators run.
"""

from __future__ import annotations

from felice.ensemble.ensemble import Ensemble
from felice.ensemble.files import EnsembleError
from felice.ensemble.node import Node, NodeStatus, node_status

__all__ = ["Ensemble", "EnsembleError", "Node", "NodeStatus", "node_status"]
