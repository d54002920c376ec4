"""Log directories for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

from felice.config import TopicConfig
from felice.env import SystemDisk
from felice.log.directory import LogDirectory
from unit.log.logs import ManualClock

TOPIC_ID = UUID("00112233-4455-6677-8899-aabbccddeeff")
DIRECTORY_ID = UUID("ffeeddcc-bbaa-9988-7766-554433221100")


def opened(
    path: Path, *, node_id: int = 1, cluster_id: str = "cluster", load: bool = True, **parts: Any
) -> LogDirectory:
    directory = LogDirectory(parts.get("disk") or SystemDisk(), parts.get("clock") or ManualClock(), path)
    directory.acquire(node_id=node_id, cluster_id=cluster_id, new_directory_id=DIRECTORY_ID)
    if load:
        directory.load(lambda topic: parts.get("config") or TopicConfig())
    return directory


def create(directory: LogDirectory, topic: str = "events", partition: int = 0, **config: Any) -> Any:
    return directory.create(topic, partition, TopicConfig(**config), TOPIC_ID)
