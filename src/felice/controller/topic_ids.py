"""Restores topic ids that an older tool or an operator left out or changed.

Keeps true: a topic has one id as long as its node exists, and no two topics have the same.
How:        the topic-id node below the topic has the id (`metadata/identity.py`). If it is missing, the controller
            uses the id that it has seen; otherwise the topic gets a new one, as from Kafka's controller. The nodes with
            the id are read and written in one compare-and-set.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from uuid import UUID

from felice.controller.writing import LOST_RACE, write_guarded
from felice.metadata import Check, ClusterImage, MetadataStore, SetData, identity, layout
from felice.metadata.layout import TopicIdNode
from felice.metadata.store import NotEmpty, Operation

_log = logging.getLogger("felice.controller")


async def restore(
    store: MetadataStore, epoch_version: int, image: ClusterImage, topic: str, new_id: Callable[[], UUID]
) -> None:
    """Writes the topic's id into its node and its topic-id node. An operator must repair anything else.

    Raises `EpochPassed`, and `StoreError`.
    """
    node = await store.exists(layout.topic_path(topic))
    [found] = await store.children_many([layout.identity_path(topic)])
    if node is None:
        return
    try:
        value = layout.decode_topic(node.data)
        topic_id_nodes = _topic_id_nodes(found or ())
    except (ValueError, KeyError, TypeError, AttributeError):
        return
    if any(id_node.is_pending_deletion for id_node in topic_id_nodes):
        return
    topic_id = next(
        (id_node.topic_id for id_node in topic_id_nodes if _may_have(image, topic, id_node.topic_id)), None
    )
    operations: list[Operation] = []
    if topic_id is not None:
        operations.append(Check(layout.topic_id_path(topic, topic_id)))
    else:
        known = image.topics.get(topic)
        own = value.topic_id if _may_have(image, topic, value.topic_id) else None
        topic_id = own or (known.topic_id if known is not None else new_id())
        operations += identity.renewed(topic, topic_id, found)
    if value.topic_id == topic_id:
        return
    text = layout.encode_topic(replace(value, topic_id=topic_id))
    operations.append(SetData(layout.topic_path(topic), text, node.version))
    try:
        await write_guarded(store, epoch_version, operations)
    except (*LOST_RACE, NotEmpty) as error:
        _log.debug(
            "a topic's id was not written: another writer was first",
            extra={"topic": topic, "reason": str(error)},
        )
        return
    _log.warning(
        "the topic id in a topic's node was missing or wrong, and was written again",
        extra={"topic": topic, "id": topic_id, "instead_of": value.topic_id},
    )


def _topic_id_nodes(names: Sequence[str]) -> list[TopicIdNode]:
    return [layout.parse_topic_id_node(name) for name in names]


def _may_have(image: ClusterImage, topic: str, topic_id: UUID | None) -> bool:
    return topic_id is not None and image.topic_names.get(topic_id, topic) == topic
