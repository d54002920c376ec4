"""The metadata store on a ZooKeeper ensemble, through kazoo.

`settings` has the address and credentials of an ensemble; `session` connects one session of ZooKeeper to the event
loop; `requests` are the two requests that kazoo lacks; `store` is the `MetadataStore`. No other package imports kazoo,
and only a broker whose configuration names an ensemble imports this package.
"""

from __future__ import annotations

from felice.metadata.zookeeper.settings import JaasSettings, TlsSettings, ZooKeeperSettings
from felice.metadata.zookeeper.store import ZooKeeperStore

__all__ = ["JaasSettings", "TlsSettings", "ZooKeeperSettings", "ZooKeeperStore"]
