"""A worker process's connections: one client for each configuration, kept from task to task."""

from __future__ import annotations

from functools import lru_cache

from felice.client.blocking import BlockingClient, BlockingConfig

# A worker serves few queries at a time; beyond this many configurations the oldest configuration connects again.
CLIENTS_KEPT = 8


@lru_cache(maxsize=CLIENTS_KEPT)
def client_of(config: BlockingConfig) -> BlockingClient:
    """Returns the client of this process for `config`. Tasks that run later in the process share it."""
    return BlockingClient(config)
