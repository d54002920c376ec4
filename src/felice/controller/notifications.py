"""Notification nodes: sequential nodes that tell Kafka's brokers and tools which node has changed.

Felice's own brokers watch the changed nodes themselves. The newest `_KEPT_NOTIFICATIONS` of each kind stay.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from felice.metadata import Create, MetadataStore, NodeExists, NoNode
from felice.metadata.store import Operation, parent_of

_KEPT_NOTIFICATIONS = 1000
# Old notifications are deleted at each write whose number is a multiple of this.
_NOTIFICATIONS_BETWEEN_DELETIONS = 100


async def write_with_notification(
    store: MetadataStore, write: Operation, prefix: str, content: bytes
) -> None:
    """Writes a change and its notification in one transaction. Raises the errors of the store.

    After `NoNode` the parents of both nodes exist, so that the write can be made again.
    """
    try:
        results = await store.multi([write, Create(prefix, content, sequential=True)])
    except NoNode:
        await _create_parents(store, [write.path, prefix])
        raise
    await _delete_old(store, parent_of(prefix), str(results[1]))


async def _create_parents(store: MetadataStore, paths: Sequence[str]) -> None:
    for path in paths:
        names = parent_of(path).split("/")[1:]
        for end in range(1, len(names) + 1):
            with contextlib.suppress(NodeExists):
                await store.create("/" + "/".join(names[:end]))


async def _delete_old(store: MetadataStore, directory: str, newest: str) -> None:
    if int(newest[-10:]) % _NOTIFICATIONS_BETWEEN_DELETIONS:
        return
    for name in (await store.children(directory))[:-_KEPT_NOTIFICATIONS]:
        with contextlib.suppress(NoNode):
            await store.delete(f"{directory}/{name}")
