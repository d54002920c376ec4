"""Removes the records of deleted topics, when the brokers that they name have deleted their logs.

Keeps true: C12 a record stays until the broker that it names has nothing of the topic left, and that is on disk. So a
            broker that was away finds the record whenever it returns.
            The store has at most `MAX_RECORDS` of them. Without its record a log is set aside instead of deleted.
How:        `confirm` runs periodically, and repeats what failed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from uuid import UUID

from felice.metadata import ClusterImage, Delete, MetadataStore, NoNode, StoreError, layout
from felice.metadata.layout import MAX_STATES_PER_TRANSACTION
from felice.server.services import Services

_log = logging.getLogger("felice.server")

# Brokers that never return leave their records. The oldest of these are removed when there are more.
MAX_RECORDS = 10_000


class DeletedTopics:
    """The part of one broker in the deletion of topics, after their nodes are gone."""

    def __init__(self, services: Services, store: MetadataStore) -> None:
        self._broker_id = services.broker_id
        self._watcher = services.watcher
        self._image_follower = services.image_follower
        self._partitions = services.partitions
        self._directories = services.disks.directories
        self._store = store

    async def confirm(self) -> None:
        """Deletes what is left here of deleted topics, and then the records that name this broker."""
        image = self._watcher.image
        if not image.deleted_topics or not self._image_follower.is_following:
            return
        mine = [topic_id for topic_id, brokers in image.deleted_topics.items() if self._broker_id in brokers]
        async with self._image_follower.making_logs:
            is_clean = self._partitions.delete_requested(image.deleted_topics.keys())
        if mine and is_clean and await self._sync_names():
            await self._remove([layout.deletion_record_path(topic_id, self._broker_id) for topic_id in mine])
        if image.controller_id == self._broker_id:
            await self._remove(_surplus(image))

    async def _sync_names(self) -> bool:
        """Brings the renamed directories to disk: after a power failure the logs must not be back without a record."""
        for directory in self._directories:
            try:
                await asyncio.get_running_loop().run_in_executor(None, directory.sync_names)
            except OSError as error:
                directory.on_io_error(error)
                return False
        return True

    async def _remove(self, paths: Sequence[str]) -> None:
        try:
            for start in range(0, len(paths), MAX_STATES_PER_TRANSACTION):
                some = paths[start : start + MAX_STATES_PER_TRANSACTION]
                try:
                    await self._store.multi([Delete(path) for path in some])
                except NoNode as gone:
                    # Another broker or an operator was first; the others follow the next time.
                    _log.debug("a record was removed already", extra={"path": gone.path})
        except StoreError as error:
            _log.info("records of deleted topics stay for now", extra={"reason": str(error)})


def _surplus(image: ClusterImage) -> list[str]:
    """The oldest records above the limit, of brokers that are not alive."""
    records = [
        (zxid, topic_id, broker)
        for topic_id, brokers in image.deleted_topics.items()
        for broker, zxid in brokers.items()
    ]
    waiting: list[tuple[int, UUID, int]] = sorted(row for row in records if row[2] not in image.brokers)
    return [
        layout.deletion_record_path(row[1], row[2]) for row in waiting[: max(0, len(records) - MAX_RECORDS)]
    ]
