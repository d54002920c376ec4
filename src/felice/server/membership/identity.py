"""Determines the cluster of this broker, and its id in that cluster.

Keeps true: a log directory of one cluster is never used for another. A broker whose directories belong to a cluster
            does not create a new cluster if the store has none: its options point to the wrong store.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

from felice.config import BrokerConfig
from felice.controller import features
from felice.env import Disk
from felice.log import meta_properties
from felice.log.errors import LogDirectoryError
from felice.log.meta_properties import MetaProperties
from felice.metadata import Create, MetadataStore, NodeExists, layout
from felice.protocol.uuids import format_uuid
from felice.server.startup import StartupError

_log = logging.getLogger("felice.server")


async def prepare_store(
    store: MetadataStore,
    new_uuid: Callable[[], uuid.UUID],
    disk: Disk,
    log_directories: Sequence[Path],
    where: str | None,
) -> str:
    """Creates the nodes that every broker expects, unless they exist. Returns the cluster id.

    `where` is the option that selects the store, None if no option does. Raises `StartupError` if the store has no
    cluster although the log directories belong to one.
    """
    cluster_id = layout.encode_cluster_id(format_uuid(new_uuid()))
    wanted = [(path, b"") for path in layout.PERSISTENT_PATHS]
    wanted += [(layout.CONTROLLER_EPOCH, b"0"), (layout.CLUSTER_ID, cluster_id)]
    while True:
        found = await store.get_many([path for path, _ in wanted])
        missing = [Create(*row) for row, node in zip(wanted, found, strict=True) if node is None]
        is_new = any(one.path == layout.CLUSTER_ID for one in missing)
        if is_new:
            check_may_begin(disk, log_directories, where)
            await _check_has_no_topics(store)
            # Only for a new cluster: an existing one keeps its finalized features, even if there are none.
            missing.append(Create(layout.FEATURES, layout.encode_features(features.FIRST_LEVELS)))
        try:
            await store.multi(missing)
        except NodeExists:
            continue  # another broker starts at the same time
        name = layout.decode_cluster_id((await store.get(layout.CLUSTER_ID)).data)
        if is_new:
            # Logged once per cluster. If a mistake in an option points to the wrong store, this is its only sign.
            level = logging.INFO if where is None else logging.WARNING
            _log.log(
                level,
                "there was no cluster: a NEW one begins",
                extra={"cluster": name, "at": where or "here"},
            )
        return name


async def _check_has_no_topics(store: MetadataStore) -> None:
    """Raises `StartupError` if a store without a cluster id has topics: a new id would stop their brokers."""
    [topics] = await store.children_many([layout.TOPICS])
    if topics:
        raise StartupError(
            f"the metadata store has {len(topics)} topics but no cluster id; restore its node {layout.CLUSTER_ID} "
            "with the cluster.id of the brokers' meta.properties"
        )


def check_may_begin(disk: Disk, log_directories: Sequence[Path], where: str | None) -> None:
    """Raises `StartupError` if a log directory belongs to a cluster.

    A store without a cluster is then the wrong store.
    """
    for path in log_directories:
        with contextlib.suppress(OSError):  # locking the directory later reports this error
            if (meta := _stored(disk, path)) is not None:
                reason = (
                    "whose metadata is gone; choose another log.dirs"
                    if where is None
                    else f"and there is none at {where}; see that its hosts and the chroot behind them are right"
                )
                raise StartupError(f"log directory {path} belongs to cluster {meta.cluster_id}, {reason}")


def other_cluster(own: str, found: str) -> str:
    """Why a broker stops whose store has another cluster than its log directories."""
    return (
        f"the metadata store has cluster {found}, but this broker and its log directories belong to cluster {own}; "
        "nothing was deleted: restore the store, or give the broker the store of its cluster"
    )


async def broker_id_of(config: BrokerConfig, disk: Disk, store: MetadataStore, *, stands_alone: bool) -> int:
    """Returns the configured id; for -1 the id in the log directories, or the next id that the store generates.

    Without a configured id a broker of a cluster has -1, as in Kafka, and a broker that stands alone has 0. Raises
    `StartupError` if no id can be determined.
    """
    is_set = stands_alone or "node.id" in config.originals or "broker.id" in config.originals
    if is_set and config.node_id >= 0:
        return config.node_id
    if not config.broker_id_generation_enable:
        raise StartupError("node.id is not set, and broker.id.generation.enable is false; set node.id")
    unreadable = None
    for path in config.log_directories:
        try:
            found = _stored(disk, path)
        except OSError as error:
            unreadable = StartupError(f"{path} cannot be used: {error.strerror or error}; set node.id")
            continue
        if found is not None:
            return found.node_id
    if unreadable is not None:
        raise unreadable  # it may contain the id of this broker
    return config.reserved_broker_max_id + await _next_in_sequence(store)


def _stored(disk: Disk, path: Path) -> MetaProperties | None:
    try:
        return meta_properties.read(disk, path)
    except LogDirectoryError as error:
        raise StartupError(str(error)) from error


async def _next_in_sequence(store: MetadataStore) -> int:
    """Generates ids as Kafka does: the id is the version of a node after a write of empty data."""
    if await store.exists(layout.BROKER_SEQUENCE) is None:
        with contextlib.suppress(NodeExists):  # another broker starts at the same time
            await store.create(layout.BROKER_SEQUENCE)
    return await store.set(layout.BROKER_SEQUENCE, b"")
