"""ACLs in the store: Kafka's znodes, compare-and-set, notifications, and the image that brokers read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest

from felice.controller import notifications
from felice.controller.acl_changes import AclChanges
from felice.metadata import Create, layout
from felice.metadata.memory import MemoryEnsemble, MemoryStore
from felice.metadata.watcher import Watcher
from felice.security.acl import (
    Acl,
    AclBinding,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from waiting import LIMIT_S

FOO = ResourcePattern(ResourceType.TOPIC, "foo")
F = ResourcePattern(ResourceType.TOPIC, "f", PatternType.PREFIXED)
READ = Acl("User:a", "*", Operation.READ, Permission.ALLOW)
CONFIGS = Acl("User:b", "10.0.0.1", Operation.DESCRIBE_CONFIGS, Permission.DENY)


class Fixture:
    def __init__(self, ensemble: MemoryEnsemble, store: MemoryStore) -> None:
        self.ensemble = ensemble
        self.store = store
        self.watcher = Watcher(store, lambda old, new: None)
        self.changes = AclChanges(store, self.watcher)

    def acls(self) -> dict[ResourcePattern, tuple[Acl, ...]]:
        return dict(self.watcher.image.acls)


def run(scenario: Callable[[Fixture], Awaitable[None]]) -> None:
    async def whole() -> None:
        ensemble = MemoryEnsemble()
        store = ensemble.connect()
        await store.multi([Create(path) for path in layout.PERSISTENT_PATHS])
        fixture = Fixture(ensemble, store)
        await fixture.watcher.start()
        await scenario(fixture)
        await fixture.watcher.stop()

    asyncio.run(whole())


def test_acls_are_stored_in_kafkas_nodes_and_shown_by_the_image() -> None:
    async def scenario(f: Fixture) -> None:
        outcomes = await f.changes.create(
            [AclBinding(FOO, READ), AclBinding(FOO, CONFIGS), AclBinding(F, READ)]
        )
        assert outcomes == {FOO: None, F: None}
        assert f.acls() == {FOO: (READ, CONFIGS), F: (READ,)}
        stored = json.loads((await f.store.get("/kafka-acl/Topic/foo")).data)
        assert stored == {
            "version": 1,
            "acls": [
                {"principal": "User:a", "permissionType": "Allow", "operation": "Read", "host": "*"},
                {
                    "principal": "User:b",
                    "permissionType": "Deny",
                    "operation": "DescribeConfigs",
                    "host": "10.0.0.1",
                },
            ],
        }
        await f.store.get("/kafka-acl-extended/prefixed/Topic/f")
        (literal,) = await f.store.children("/kafka-acl-changes")
        assert literal == "acl_changes_0000000000"
        assert (await f.store.get(f"/kafka-acl-changes/{literal}")).data == b"TOPIC:foo"
        (prefixed,) = await f.store.children("/kafka-acl-extended-changes")
        assert json.loads((await f.store.get(f"/kafka-acl-extended-changes/{prefixed}")).data) == {
            "version": 1,
            "resourceType": "TOPIC",
            "name": "f",
            "patternType": "PREFIXED",
        }

    run(scenario)


def test_an_acl_that_exists_is_not_written_again() -> None:
    async def scenario(f: Fixture) -> None:
        await f.changes.create([AclBinding(FOO, READ), AclBinding(FOO, READ)])
        version = (await f.store.get("/kafka-acl/Topic/foo")).version
        await f.changes.create([AclBinding(FOO, READ)])
        assert f.acls() == {FOO: (READ,)}
        assert (await f.store.get("/kafka-acl/Topic/foo")).version == version

    run(scenario)


def test_the_node_is_deleted_with_its_last_acl() -> None:
    async def scenario(f: Fixture) -> None:
        await f.changes.create([AclBinding(FOO, READ), AclBinding(FOO, CONFIGS)])
        await f.changes.delete({FOO: [READ]})
        assert f.acls() == {FOO: (CONFIGS,)}
        assert f.changes.selected(AclFilter(ResourceType.TOPIC)) == {FOO: (CONFIGS,)}
        await f.changes.delete({FOO: [CONFIGS]})
        assert f.acls() == {}
        assert await f.store.exists("/kafka-acl/Topic/foo") is None
        await f.changes.delete({FOO: [CONFIGS]})

    run(scenario)


def test_changes_from_two_brokers_at_once_are_both_kept() -> None:
    async def scenario(f: Fixture) -> None:
        other_store = f.ensemble.connect()
        other = Watcher(other_store, lambda old, new: None)
        await other.start()
        changes = [f.changes, AclChanges(other_store, other)]
        rules = [Acl(f"User:{n}", "*", Operation.READ, Permission.ALLOW) for n in range(10)]
        await asyncio.gather(
            *(changes[n % 2].create([AclBinding(FOO, rule)]) for n, rule in enumerate(rules))
        )
        for watcher in (f.watcher, other):
            assert await watcher.wait_until(lambda image: set(image.acls.get(FOO, ())) == set(rules), LIMIT_S)
        await other.stop()

    run(scenario)


def test_acls_of_kafkas_own_tools_are_read() -> None:
    async def scenario(f: Fixture) -> None:
        for path in ("/kafka-acl", "/kafka-acl/TransactionalId"):
            await f.store.create(path)
        row = '{"principal":"User:x","permissionType":"Allow","operation":"All","host":"*"}'
        newer = row.replace('"All"', '"OfTomorrow"')
        await f.store.create(
            "/kafka-acl/TransactionalId/t", f'{{"version":1,"acls":[{row},{newer}]}}'.encode()
        )
        resource = ResourcePattern(ResourceType.TRANSACTIONAL_ID, "t")
        assert await f.watcher.wait_until(lambda image: resource in image.acls, LIMIT_S)
        assert [acl.operation for acl in f.acls()[resource]] == [Operation.ALL, Operation.UNKNOWN]

    run(scenario)


@pytest.mark.parametrize(
    "data", [b"{", b'{"version":1,"acls":[{}]}', b"[]", b'{"acls":[{"principal":"User:a"}]}']
)
def test_unreadable_acls_leave_the_acls_known_before_and_never_none(data: bytes) -> None:
    async def scenario(f: Fixture) -> None:
        await f.changes.create([AclBinding(FOO, READ), AclBinding(F, READ)])
        await f.store.set("/kafka-acl/Topic/foo", data)
        await f.store.create("/kafka-acl/Topic/bar", data)
        bar = ResourcePattern(ResourceType.TOPIC, "bar")
        assert await f.watcher.wait_until(lambda image: bar in image.acls, LIMIT_S)
        assert f.acls() == {FOO: (READ,), F: (READ,), bar: ()}
        # Writing a new ACL would silently drop the unreadable ones.
        error = (await f.changes.create([AclBinding(FOO, CONFIGS)]))[FOO]
        assert error is not None
        assert "cannot be read" in error.message

    run(scenario)


def test_old_notifications_are_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifications, "_KEPT_NOTIFICATIONS", 20)
    monkeypatch.setattr(notifications, "_NOTIFICATIONS_BETWEEN_DELETIONS", 10)

    async def scenario(f: Fixture) -> None:
        for _ in range(30):
            await f.changes.create([AclBinding(FOO, READ)])
            await f.changes.delete({FOO: [READ]})
            assert len(await f.store.children("/kafka-acl-changes")) <= 30
        assert (await f.store.children("/kafka-acl-changes"))[-1] == "acl_changes_0000000059"

    run(scenario)
