"""Metadata stores of versions without features, and of a cluster with a level that this broker does not support."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from felice.client.admin import AdminClient, FeatureUpdate
from felice.env import Environment
from felice.metadata import layout
from felice.metadata.embedded import EmbeddedStore
from felice.server.process.embedded import EmbeddedBroker
from felice.server.startup import StartupError


def edit_store(data_dir: Path, features: bytes | None) -> None:
    """Writes these features into the store; None removes the node."""

    async def edit() -> None:
        store = EmbeddedStore.open(Environment.system().disk, data_dir / "metadata")
        if features is None:
            await store.delete(layout.FEATURES)
        else:
            await store.set(layout.FEATURES, features)
        await store.close()

    asyncio.run(edit())


def test_an_older_store_keeps_to_the_old_flow_until_it_is_upgraded(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path):
        pass
    edit_store(tmp_path, None)
    for _ in range(2):
        with (
            EmbeddedBroker(tmp_path) as broker,
            AdminClient({"bootstrap.servers": broker.bootstrap}) as admin,
        ):
            found = admin.describe_features().result(60)
            assert (found.finalized, found.epoch) == ({}, -1)
    with EmbeddedBroker(tmp_path) as broker, AdminClient({"bootstrap.servers": broker.bootstrap}) as admin:
        admin.update_features([FeatureUpdate("transaction.version", 2)]).result(60)
        found = admin.describe_features().result(60)
        assert (found.finalized, found.epoch) == ({"transaction.version": 2}, 0)


def test_a_cluster_beyond_this_broker_is_not_joined(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path):
        pass
    edit_store(tmp_path, layout.encode_features({"transaction.version": 3}))
    with pytest.raises(StartupError, match=r"feature transaction.version at level 3, and this broker only"):
        EmbeddedBroker(tmp_path)
