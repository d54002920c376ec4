"""The nodes of users, clients and addresses, in Kafka's form."""

from __future__ import annotations

import asyncio
import random

import pytest

from felice.config import BrokerConfig
from felice.controller.cluster_admin import ClusterAdmin
from felice.metadata import Create, layout
from felice.metadata.client_entity import DEFAULT, ClientEntity
from felice.metadata.memory import MemoryEnsemble
from felice.metadata.watcher import Watcher

PATHS = {
    "users/alice": ClientEntity("alice"),
    "users/alice/clients/app": ClientEntity("alice", "app"),
    "users/%3Cdefault%3E/clients/<default>": ClientEntity("<default>", DEFAULT),
    "users/<default>": ClientEntity(DEFAULT),
    "clients/a%20b%2A": ClientEntity(client_id="a b*"),
    "clients/<default>": ClientEntity(client_id=DEFAULT),
    "ips/10.0.0.1": ClientEntity(ip="10.0.0.1"),
    "ips/<default>": ClientEntity(ip=DEFAULT),
}


@pytest.mark.parametrize("path", PATHS)
def test_an_entity_and_its_path(path: str) -> None:
    assert PATHS[path].path == path
    assert ClientEntity.of_path(path) == PATHS[path]


def test_nodes_between_entities_are_none() -> None:
    assert ClientEntity.of_path("users/alice/clients") is None
    assert ClientEntity.of_path("users") is None


def test_a_change_is_stored_as_kafka_stores_it_and_shows_in_the_image() -> None:
    async def scenario() -> None:
        store = MemoryEnsemble().connect()
        await store.multi([Create(path) for path in layout.PERSISTENT_PATHS])
        await store.create(layout.CONTROLLER_EPOCH, b"1")
        watcher = Watcher(store, lambda old, new: None)
        await watcher.start()
        admin = ClusterAdmin(store, watcher, random.Random(1), lambda: BrokerConfig())
        entity = ClientEntity("alice", DEFAULT)
        await admin.change_client_config(
            entity, lambda old: {**old, "producer_byte_rate": "5"}, validate_only=True
        )
        assert await store.children("/config/users") == []
        await admin.change_client_config(entity, lambda old: {**old, "producer_byte_rate": "5"})
        node = await store.get("/config/users/alice/clients/<default>")
        assert node.data == b'{"version":1,"config":{"producer_byte_rate":"5"}}'
        assert watcher.image.client_configs == {entity: {"producer_byte_rate": "5"}}
        await admin.change_client_config(ClientEntity("alice"), lambda old: {**old, "x": "1"})
        assert len(watcher.image.client_configs) == 2
        await admin.change_client_config(entity, lambda old: {})
        assert watcher.image.client_configs == {ClientEntity("alice"): {"x": "1"}}
        await watcher.stop()

    asyncio.run(scenario())
