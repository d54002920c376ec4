"""A store that one process of this machine keeps for others: `StoreServer` here, `ServedStore` there.

They talk over one local socket for each session. There is no way back to a keeper that is gone: whoever keeps the
store also keeps the processes that use it.
"""

from __future__ import annotations

from felice.metadata.served.client import ServedStore
from felice.metadata.served.server import StoreServer

__all__ = ["ServedStore", "StoreServer"]
