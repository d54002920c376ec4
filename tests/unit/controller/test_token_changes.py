"""Delegation tokens in the store: Kafka's znodes, compare-and-set, notifications, and the image that brokers read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from felice.controller.token_changes import TokenChanges
from felice.metadata import Create, Node, SetData, layout
from felice.metadata.memory import MemoryEnsemble, MemoryStore
from felice.metadata.token_nodes import decode_token, encode_token, token_path
from felice.metadata.watcher import Watcher
from felice.protocol.errors import ApiError, ErrorCode
from felice.security.delegation_tokens import DelegationToken
from felice.security.principal import Principal
from waiting import LIMIT_S

ALICE, BOB, ODD = Principal("User", "alice"), Principal("User", "bob"), Principal("User", "CN=a b,O=c/d")
TOKEN = DelegationToken("id-1", ALICE, BOB, (BOB, ODD), issued_ms=1, expires_ms=2, max_ms=3)


class Fixture:
    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.watcher = Watcher(store, lambda old, new: None)
        self.changes = TokenChanges(store, self.watcher)

    @property
    def tokens(self) -> dict[str, DelegationToken]:
        return dict(self.watcher.image.tokens)


def run(scenario: Callable[[Fixture], Awaitable[None]]) -> None:
    async def whole() -> None:
        store = MemoryEnsemble().connect()
        await store.multi([Create(path) for path in layout.PERSISTENT_PATHS])
        fixture = Fixture(store)
        await fixture.watcher.start()
        await scenario(fixture)
        await fixture.watcher.stop()

    asyncio.run(whole())


def test_a_node_has_kafkas_json_and_no_secret() -> None:
    assert json.loads(encode_token(TOKEN)) == {
        "version": 3,
        "owner": "User%3Aalice",
        "tokenRequester": "User%3Abob",
        "renewers": ["User%3Abob", "User%3ACN%3Da%20b%2CO%3Dc%2Fd"],
        "issueTimestamp": 1,
        "maxTimestamp": 3,
        "expiryTimestamp": 2,
        "tokenId": "id-1",
    }
    assert decode_token(encode_token(TOKEN)) == TOKEN


def test_the_owner_requested_a_token_of_an_older_kafka() -> None:
    node = json.loads(encode_token(TOKEN)) | {"version": 1}
    del node["tokenRequester"]
    assert decode_token(json.dumps(node).encode()).requester == ALICE


@pytest.mark.parametrize("version", [0, 4])
def test_a_node_of_an_unknown_version_is_refused(version: int) -> None:
    node = json.loads(encode_token(TOKEN)) | {"version": version}
    with pytest.raises(ValueError, match="version"):
        decode_token(json.dumps(node).encode())


def test_a_token_is_created_with_a_notification_and_shown() -> None:
    async def scenario(f: Fixture) -> None:
        await f.changes.create(TOKEN)
        assert f.tokens == {"id-1": TOKEN}
        assert (await f.store.get("/delegation_token/tokens/id-1")).data == encode_token(TOKEN)
        (name,) = await f.store.children("/delegation_token/token_changes")
        assert name == "token_change_0000000000"
        assert (await f.store.get(f"/delegation_token/token_changes/{name}")).data == b"id-1"

    run(scenario)


def test_a_change_is_decided_again_after_a_version_conflict(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(f: Fixture) -> None:
        await f.changes.create(TOKEN)
        seen: list[int] = []
        exists = f.store.exists

        async def exists_before_a_renewal(path: str) -> Node | None:
            node = await exists(path)
            if not seen:
                await f.store.multi([SetData(path, encode_token(replace(TOKEN, expires_ms=50)), 0)])
            return node

        def longer(token: DelegationToken) -> DelegationToken:
            seen.append(token.expires_ms)
            return replace(token, max_ms=9)

        monkeypatch.setattr(f.store, "exists", exists_before_a_renewal)
        assert await f.changes.change("id-1", longer) == replace(TOKEN, expires_ms=50, max_ms=9)
        assert f.tokens["id-1"].max_ms == 9
        assert seen == [2, 50]

    run(scenario)


def test_a_deleted_token_is_not_found() -> None:
    async def scenario(f: Fixture) -> None:
        await f.changes.create(TOKEN)
        assert await f.changes.change("id-1", lambda token: None) is None
        assert f.tokens == {}
        with pytest.raises(ApiError) as error:
            await f.changes.change("id-1", lambda token: token)
        assert error.value.code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND

    run(scenario)


@pytest.mark.parametrize("data", [b"", b"{", encode_token(replace(TOKEN, token_id="another"))])
def test_a_token_whose_node_cannot_be_read_does_not_exist(data: bytes) -> None:
    async def scenario(f: Fixture) -> None:
        await f.changes.create(TOKEN)
        await f.store.multi([SetData(token_path("id-1"), data, 0)])
        assert await f.watcher.wait_until(lambda image: not image.tokens, LIMIT_S)

    run(scenario)
