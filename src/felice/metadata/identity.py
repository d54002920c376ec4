"""Binds a write to one topic, not to its name, by a topic-id node: a node below the topic's, named by the topic id.

Keeps true: C1 also where a topic is deleted and recreated while a decision is under way. The versions of the new
            topic's nodes start at 0 again and may equal those that the decision was based on. But the store also
            checks that a node exists, and no two topics have the same id.
How:        `/brokers/topics/T/topic_id/ID` is created and deleted with the topic. Kafka and its tools ignore it, and
            delete it with the rest of the topic. A topic created without it (by an operator, or by Kafka) gets it from
            the first write that misses it. If it differs from the id in the topic's node, the topic-id node counts:
            no program changes the id of a topic, so an operator must have edited the topic's node.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from felice.metadata import layout
from felice.metadata.store import (
    BadVersion,
    Check,
    Create,
    Delete,
    MetadataStore,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
)


def bound(topic: str, topic_id: UUID) -> Check:
    """A check that fails with `NoNode` of this path unless the topic of this name has this id."""
    return Check(layout.topic_id_path(topic, topic_id))


def made(topic: str, topic_id: UUID) -> list[Operation]:
    """Creates the topic-id node, after the topic's node."""
    return [Create(layout.identity_path(topic)), Create(layout.topic_id_path(topic, topic_id))]


def unmade(topic: str, topic_id: UUID) -> list[Operation]:
    """Deletes the topic-id node, before the topic's node; also checks the id."""
    return [Delete(layout.topic_id_path(topic, topic_id)), Delete(layout.identity_path(topic))]


def pending_deletion(topic: str, topic_id: UUID) -> list[Operation]:
    """Replaces the topic-id node: from now on only the deletion may write to the topic. Also checks the id.

    Must be the first operation of the transaction: a watcher that reads a topic without partitions and without this
    node reports it as faulty.
    """
    return [
        Create(layout.pending_deletion_path(topic, topic_id)),
        Delete(layout.topic_id_path(topic, topic_id)),
    ]


def renewed(topic: str, topic_id: UUID, found: Sequence[str] | None) -> list[Operation]:
    """As `made`, replacing the nodes that were `found` there (None: not even their parent exists)."""
    parent = layout.identity_path(topic)
    gone = [] if found is None else [*(Delete(f"{parent}/{name}") for name in found), Delete(parent)]
    return [*gone, *made(topic, topic_id)]


async def adopt(store: MetadataStore, topic: str, topic_id: UUID) -> bool:
    """Creates the topic-id node of an existing topic that lacks it; returns whether writes may now be bound to it."""
    id_node = layout.topic_id_path(topic, topic_id)
    if await store.exists(id_node) is not None:
        return True
    node = await store.exists(layout.topic_path(topic))
    [found] = await store.children_many([layout.identity_path(topic)])
    if node is None or found or _id_in(node.data) != topic_id:
        return False
    try:
        # If another broker creates a topic of this name meanwhile, it creates these nodes too, and this write fails:
        # they exist, or are not empty.
        await store.multi([Check(layout.topic_path(topic), node.version), *renewed(topic, topic_id, found)])
    except (BadVersion, NoNode, NodeExists, NotEmpty):
        return await store.exists(id_node) is not None
    return True


def _id_in(data: bytes) -> UUID | None:
    try:
        return layout.decode_topic(data).topic_id
    except (ValueError, KeyError, TypeError, AttributeError):
        return None  # not readable: the image reports it
