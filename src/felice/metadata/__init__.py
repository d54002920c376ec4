"""Cluster metadata: a small tree of versioned nodes with ZooKeeper's semantics, and its image.

`store` is the interface. Four stores implement it: `memory` (tests and simulation), `embedded` (this process, on disk),
`served` (an embedded store of another process of this machine) and `zookeeper`. `layout` has the paths and contents of
nodes (Kafka's own), `image` is the meaning of the nodes, `watcher` keeps the image current.
"""

from __future__ import annotations

from felice.metadata.image import BrokerImage as BrokerImage
from felice.metadata.image import ClusterImage as ClusterImage
from felice.metadata.image import PartitionImage as PartitionImage
from felice.metadata.image import TopicImage as TopicImage
from felice.metadata.store import BadVersion as BadVersion
from felice.metadata.store import Check as Check
from felice.metadata.store import Create as Create
from felice.metadata.store import Delete as Delete
from felice.metadata.store import Event as Event
from felice.metadata.store import EventKind as EventKind
from felice.metadata.store import MetadataStore as MetadataStore
from felice.metadata.store import Node as Node
from felice.metadata.store import NodeExists as NodeExists
from felice.metadata.store import NoNode as NoNode
from felice.metadata.store import NotEmpty as NotEmpty
from felice.metadata.store import SessionExpired as SessionExpired
from felice.metadata.store import SessionState as SessionState
from felice.metadata.store import SetData as SetData
from felice.metadata.store import StoreError as StoreError
from felice.metadata.store import StoreUnavailable as StoreUnavailable
