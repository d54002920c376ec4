"""The metadata store on a ZooKeeper ensemble, through kazoo.

`settings` is what is needed to find an ensemble and be let in; `session` is one session of
ZooKeeper bridged onto the event loop; `requests` are the two requests that kazoo does not
have; `store` is the `MetadataStore`. Nothing else imports kazoo, and this package is
imported only by a broker whose configuration names an ensemble.
"""

from __future__ import annotations

from felice.metadata.zookeeper.settings import TlsSettings, ZooKeeperSettings
from felice.metadata.zookeeper.store import ZooKeeperStore

__all__ = ["TlsSettings", "ZooKeeperSettings", "ZooKeeperStore"]
