"""How a topic's nodes go: all at once, or where they are too many for one transaction, little by little.

Keeps true: a topic is there or gone, for everybody at once. A large one is gone with the write that begins its end:
            a node below its own says so then, in the place of its mark. Its own is the last one to go.
            Whoever is the controller finishes what the image shows as begun, wherever the last one stopped; the name
            is free afterwards, so nothing of another topic is there to be deleted.
"""

from __future__ import annotations

from uuid import UUID

from felice.controller.writing import STATES_A_TRANSACTION, write_guarded
from felice.metadata import Check, Delete, MetadataStore, SetData, TopicImage, identity, layout
from felice.metadata.layout import TopicNode
from felice.metadata.store import Operation


def whole(topic: TopicImage) -> list[Operation]:
    """The deletion of a topic that fits into one transaction."""
    operations: list[Operation] = []
    for partition in topic.partitions:
        if partition.partition_epoch >= 0:
            operations.append(Delete(layout.state_path(topic.name, partition.partition)))
        operations.append(Delete(layout.partition_path(topic.name, partition.partition)))
    return [
        *operations,
        Delete(layout.partitions_path(topic.name)),
        *identity.unmade(topic.name, topic.topic_id),
        Delete(layout.topic_path(topic.name)),
    ]


def begun(topic: TopicImage) -> list[Operation]:
    """The topic is gone when these are written; `finish` is the controller's duty from then on."""
    node = layout.encode_topic(TopicNode(topic.topic_id, {}, {}, {}))
    return [
        *identity.doomed(topic.name, topic.topic_id),
        SetData(layout.topic_path(topic.name), node, topic.version),
    ]


async def finish(store: MetadataStore, epoch_version: int, topic: str, topic_id: UUID) -> None:
    """Removes what is left of a topic whose end has begun. Raises `EpochPassed`, and `StoreError`."""
    doom = Check(layout.doom_path(topic, topic_id))
    if await store.exists(doom.path) is None:
        return  # somebody finished it, and the image will show that
    parent = layout.partitions_path(topic)
    [found] = await store.children_many([parent])
    names = found or []
    for at in range(0, len(names), STATES_A_TRANSACTION):
        paths = [f"{parent}/{name}" for name in names[at : at + STATES_A_TRANSACTION]]
        operations: list[Operation] = [doom]
        for path, below in zip(paths, await store.children_many(paths), strict=True):
            operations += [Delete(f"{path}/{name}") for name in below or ()]
            operations.append(Delete(path))
        await write_guarded(store, epoch_version, operations)
    last = [
        *([] if found is None else [Delete(parent)]),
        Delete(doom.path),
        Delete(layout.identity_path(topic)),
        Delete(layout.topic_path(topic)),
    ]
    await write_guarded(store, epoch_version, last)
