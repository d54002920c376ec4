"""Delegation tokens of one broker: the limit, the end of expired tokens, and their credentials."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

import pytest

from felice.config import BrokerConfig
from felice.controller.token_changes import TokenChanges
from felice.env import Environment, SystemDisk, SystemNetwork
from felice.metadata import Create, MetadataStore, layout, token_nodes
from felice.metadata.memory import MemoryEnsemble
from felice.metadata.watcher import Watcher
from felice.protocol.errors import ApiError, ErrorCode
from felice.security.delegation_tokens import DelegationToken
from felice.security.principal import Principal
from felice.server.security.delegation_tokens import DelegationTokens

ALICE = Principal("User", "alice")


class Clock:
    def __init__(self) -> None:
        self.ms = 1_000_000

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return self.ms / 1000


class World:
    def __init__(
        self, store: MetadataStore, watcher: Watcher, clock: Clock, tokens: DelegationTokens
    ) -> None:
        self.store = store
        self.watcher = watcher
        self.clock = clock
        self.tokens = tokens

    async def create(self) -> DelegationToken:
        return await self.tokens.create(ALICE, ALICE, (), 0)


def run(scenario: Callable[[World], Awaitable[None]], **options: str) -> None:
    properties = {"delegation.token.secret.key": "key", **options}
    config, _ = BrokerConfig.parse(properties)

    async def whole() -> None:
        store = MemoryEnsemble().connect()
        await store.multi([Create(path) for path in layout.PERSISTENT_PATHS])
        watcher, clock = Watcher(store, lambda old, new: None), Clock()
        await watcher.start()
        env = Environment(clock, SystemDisk(), SystemNetwork(), Random(1))
        tokens = DelegationTokens(config, env, lambda: watcher.image, TokenChanges(store, watcher))
        await scenario(World(store, watcher, clock, tokens))
        await watcher.stop()

    asyncio.run(whole())


def test_a_further_token_than_allowed_is_refused() -> None:
    async def scenario(world: World) -> None:
        await world.create()
        await world.create()
        with pytest.raises(ApiError) as error:
            await world.create()
        assert error.value.code == ErrorCode.POLICY_VIOLATION

    run(scenario, **{"felice.delegation.tokens.max": "2"})


def test_one_owner_cannot_use_up_the_tokens_of_the_others() -> None:
    async def scenario(world: World) -> None:
        token = await world.create()
        with pytest.raises(ApiError) as error:
            await world.create()
        assert error.value.code == ErrorCode.POLICY_VIOLATION
        bob = Principal("User", "bob")
        assert (await world.tokens.create(bob, ALICE, (), 0)).owner == bob
        await world.tokens.expire(world.tokens.secret(token), ALICE, -1)
        assert (await world.create()).owner == ALICE

    run(scenario, **{"felice.delegation.tokens.per.owner.max": "1"})


def test_only_expired_tokens_are_deleted() -> None:
    async def scenario(world: World) -> None:
        old = await world.create()
        world.clock.ms += 60_001
        new = await world.create()
        await world.tokens.delete_expired()
        assert set(world.watcher.image.tokens) == {new.token_id}
        assert old.token_id != new.token_id

    run(scenario, **{"delegation.token.expiry.time.ms": "60000"})


def test_a_token_is_a_user_until_it_expires() -> None:
    async def scenario(world: World) -> None:
        token = await world.create()
        user = world.tokens.user(token.token_id, "SCRAM-SHA-512")
        assert user is not None
        assert (user.principal, user.expires_ms) == (
            Principal("User", "alice", token_authenticated=True),
            token.expires_ms,
        )
        again = world.tokens.user(token.token_id, "SCRAM-SHA-512")
        assert again is not None
        assert again.credential is user.credential
        world.clock.ms = token.expires_ms + 1
        assert world.tokens.user(token.token_id, "SCRAM-SHA-512") is None

    run(scenario)


def test_the_credentials_of_deleted_tokens_are_forgotten() -> None:
    async def scenario(world: World) -> None:
        token = await world.create()
        world.tokens.user(token.token_id, "SCRAM-SHA-256")
        await world.tokens.expire(world.tokens.secret(token), ALICE, -1)
        other = await world.create()
        world.tokens.user(other.token_id, "SCRAM-SHA-256")
        assert [token_id for token_id, _ in world.tokens._credentials] == [other.token_id]

    run(scenario)


def test_without_a_key_no_token_is_a_user() -> None:
    async def scenario(world: World) -> None:
        assert not world.tokens.is_enabled
        assert world.tokens.user("any", "SCRAM-SHA-256") is None

    run(scenario, **{"delegation.token.secret.key": ""})


def test_a_token_that_would_not_be_readable_or_takes_much_room_is_not_stored() -> None:
    async def scenario(world: World) -> None:
        kept = await world.create()
        many = tuple(Principal("User", f"renewer-{number:04}") for number in range(1000))
        for owner, renewers, code in (
            (ALICE, (Principal("User", ""),), ErrorCode.INVALID_REQUEST),
            (Principal("", "alice"), (), ErrorCode.INVALID_REQUEST),
            (Principal("A:B", "alice"), (), ErrorCode.INVALID_REQUEST),
            (ALICE, many, ErrorCode.POLICY_VIOLATION),
        ):
            with pytest.raises(ApiError) as error:
                await world.tokens.create(owner, ALICE, renewers, 0)
            assert error.value.code == code
        assert await world.store.children(token_nodes.TOKENS) == [kept.token_id]

    run(scenario)
