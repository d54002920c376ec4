"""Binds a write to one topic, not to its name: a node below the topic's, whose own name is the topic id.

Keeps true: C1 also where a topic is deleted and another made under its name while a decision is under way. The
            versions of the new topic's nodes begin at 0 again and may be just those that were looked at; but the
            store compares a node's existence, too, and no two topics have one id.
How:        `/brokers/topics/T/topic_id/ID` is made with the topic and goes with it. Kafka and its tools ignore it, and
            delete it with the rest of the topic. A topic that was made without it (by hand, or by Kafka) gets it from
            the first write that misses it. Where it and the topic's text say different ids, it holds: nobody's program
            changes the id of a topic, so a person edited the text.
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
    """Holds while the topic of this name has this id; otherwise `NoNode` of this path."""
    return Check(layout.mark_path(topic, topic_id))


def made(topic: str, topic_id: UUID) -> list[Operation]:
    """With the topic's node before them."""
    return [Create(layout.identity_path(topic)), Create(layout.mark_path(topic, topic_id))]


def unmade(topic: str, topic_id: UUID) -> list[Operation]:
    """With the topic's node after them; they bind, too."""
    return [Delete(layout.mark_path(topic, topic_id)), Delete(layout.identity_path(topic))]


def pending_deletion(topic: str, topic_id: UUID) -> list[Operation]:
    """From now on nothing is bound to the topic but what deletes it; they bind, too.

    Before anything else is done to it, for whoever watches: without them a topic of no partitions is a fault.
    """
    return [Create(layout.doom_path(topic, topic_id)), Delete(layout.mark_path(topic, topic_id))]


def renewed(topic: str, topic_id: UUID, found: Sequence[str] | None) -> list[Operation]:
    """As `made`, in the place of the nodes that were `found` there (None: not even their parent)."""
    parent = layout.identity_path(topic)
    gone = [] if found is None else [*(Delete(f"{parent}/{name}") for name in found), Delete(parent)]
    return [*gone, *made(topic, topic_id)]


async def adopt(store: MetadataStore, topic: str, topic_id: UUID) -> bool:
    """Whether writes may be bound to the topic, after making that so if it is there and has no mark."""
    mark = layout.mark_path(topic, topic_id)
    if await store.exists(mark) is not None:
        return True
    node = await store.exists(layout.topic_path(topic))
    [found] = await store.children_many([layout.identity_path(topic)])
    if node is None or found or _id_in(node.data) != topic_id:
        return False
    try:
        # Whoever makes a topic of this name meanwhile makes these nodes with it, and outruns us: they are there, or
        # are not empty.
        await store.multi([Check(layout.topic_path(topic), node.version), *renewed(topic, topic_id, found)])
    except (BadVersion, NoNode, NodeExists, NotEmpty):
        return await store.exists(mark) is not None
    return True


def _id_in(data: bytes) -> UUID | None:
    try:
        return layout.decode_topic(data).topic_id
    except (ValueError, KeyError, TypeError, AttributeError):
        return None  # means nothing: the image says so
