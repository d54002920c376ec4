"""The configuration of a blocking client."""

from __future__ import annotations

from felice.client.consume.isolation import READ_UNCOMMITTED
from felice.client.security import SecuritySettings
from felice.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class BlockingConfig:
    """The configuration of a `BlockingClient`: plain values, so that it can be sent to an executor."""

    bootstrap_servers: str
    client_id: str = "felice"
    connect_timeout_ms: int = 10_000
    request_timeout_ms: int = 30_000
    retry_timeout_ms: int = 60_000
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 50 * 1024 * 1024
    partition_max_bytes: int = 8 * 1024 * 1024
    isolation_level: int = READ_UNCOMMITTED
    prefetch: bool = True
    client_rack: str = ""
    metadata_max_age_ms: int = 300_000
    security: SecuritySettings = SecuritySettings()
