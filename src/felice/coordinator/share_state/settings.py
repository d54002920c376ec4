"""How often the share coordinator writes snapshots; the defaults are those of Kafka's `share.coordinator.*`."""

from __future__ import annotations

from felice.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class ShareStateSettings:
    """A state gets a snapshot after so many updates, or when it has updates and its last snapshot is so old."""

    updates_per_snapshot: int = 500
    snapshot_interval_ms: int = 300_000
