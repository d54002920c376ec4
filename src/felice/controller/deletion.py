"""Deletes the nodes of topics: in one transaction, or step by step where they are too many for that.

Keeps true: a topic exists or is deleted, for every broker at once. The first write of a stepwise deletion replaces the
            topic-id node by one that says that deletion is pending. The topic's own node is deleted last.
            With the topic's nodes go its records (`recorded`): a broker deletes a log only with such a record, because
            nodes also disappear when an operator removes them, or restores an older state of the store.
            Any controller finishes a deletion that the image shows as pending. The name is free only afterwards, so
            nothing of another topic is deleted.
"""

from __future__ import annotations

from uuid import UUID

from felice.controller.writing import write_guarded
from felice.metadata import Check, Create, Delete, MetadataStore, SetData, TopicImage, identity, layout
from felice.metadata.layout import MAX_STATES_PER_TRANSACTION, TopicNode
from felice.metadata.store import Operation


def recorded(topic: TopicImage) -> list[Operation]:
    """Operations that record the request to delete a topic, for each broker that may have logs of it."""
    brokers = {replica for partition in topic.partitions for replica in partition.replicas}
    data = layout.encode_deletion_record(topic.name)
    return [Create(layout.deletion_record_path(topic.topic_id, broker), data) for broker in sorted(brokers)]


def whole(topic: TopicImage) -> list[Operation]:
    """Operations that delete a topic in one transaction."""
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
        *recorded(topic),
    ]


def begun(topic: TopicImage) -> list[Operation]:
    """Operations that begin a stepwise deletion. The topic is gone once they are written; the controller then calls
    `finish`.
    """
    node = layout.encode_topic(TopicNode(topic.topic_id, {}, {}, {}))
    return [
        *identity.pending_deletion(topic.name, topic.topic_id),
        SetData(layout.topic_path(topic.name), node, topic.version),
        *recorded(topic),
    ]


async def finish(store: MetadataStore, epoch_version: int, topic: str, topic_id: UUID) -> None:
    """Deletes the remaining nodes of a topic whose deletion is pending. Raises `EpochPassed`, and `StoreError`."""
    doom = Check(layout.pending_deletion_path(topic, topic_id))
    if await store.exists(doom.path) is None:
        return  # finished by another controller; the next image shows it
    parent = layout.partitions_path(topic)
    [found] = await store.children_many([parent])
    names = found or []
    for at in range(0, len(names), MAX_STATES_PER_TRANSACTION):
        paths = [f"{parent}/{name}" for name in names[at : at + MAX_STATES_PER_TRANSACTION]]
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
