"""A store that one process of this machine serves to others: `StoreServer` there, `ServedStore` here.

They use one local socket for each session. If the serving process ends, its clients do not reconnect: the process that
serves the store also runs the processes that use it.
"""

from __future__ import annotations

from felice.metadata.served.client import ServedStore
from felice.metadata.served.server import StoreServer

__all__ = ["ServedStore", "StoreServer"]
