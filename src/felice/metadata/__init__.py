"""Cluster metadata: a small tree of versioned nodes with ZooKeeper's semantics, and its image.

`store` is the interface. Four stores implement it: `memory` (tests and simulation), `embedded` (this process, on disk),
`served` (an embedded store of another process of this machine) and `zookeeper`. `layout` has the paths and contents of
nodes (Kafka's own), `image` is the meaning of the nodes, `watcher` keeps the image current.
"""

from __future__ import annotations

from felice.metadata.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from felice.metadata.store import (
    BadVersion,
    Check,
    Create,
    Delete,
    Event,
    EventKind,
    MetadataStore,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    SessionExpired,
    SessionState,
    SetData,
    StoreError,
    StoreUnavailable,
)

__all__ = [
    "BadVersion",
    "BrokerImage",
    "Check",
    "ClusterImage",
    "Create",
    "Delete",
    "Event",
    "EventKind",
    "MetadataStore",
    "NoNode",
    "Node",
    "NodeExists",
    "NotEmpty",
    "PartitionImage",
    "SessionExpired",
    "SessionState",
    "SetData",
    "StoreError",
    "StoreUnavailable",
    "TopicImage",
]
