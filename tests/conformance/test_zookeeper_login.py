"""Brokers that log in at a real ZooKeeper with the user of a JAAS file, and nodes that only this user may change."""

from __future__ import annotations

import asyncio
import dataclasses
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from conformance.test_zookeeper_refusals import read_frame, served_by
from felice.ensemble import Ensemble
from felice.env import SystemClock
from felice.metadata.store import NotAllowed, SessionState, StoreError
from felice.metadata.zookeeper import JaasSettings, ZooKeeperSettings, ZooKeeperStore
from peers.zookeeper import require_ensemble_with_users, write_login

pytestmark = pytest.mark.felice_only

# As they stand between quotation marks in a JAAS file.
USERS = {"kafka": r"kafkas \"secret\", with = and ; in it", "other": "others-secret"}


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    with require_ensemble_with_users(tmp_path_factory.mktemp("zookeeper"), USERS) as ensemble:
        yield ensemble


def settings(connect: str, login: Path | None = None, *, sets_acl: bool = False) -> ZooKeeperSettings:
    jaas = JaasSettings(login) if login is not None else None
    return ZooKeeperSettings(
        (connect,),
        "/kafka",
        session_timeout_ms=60_000,
        connection_timeout_ms=60_000,
        sets_acl=sets_acl,
        jaas=jaas,
    )


async def opened(of: ZooKeeperSettings) -> ZooKeeperStore:
    return await ZooKeeperStore.open(of, SystemClock())


def test_nodes_belong_to_the_user_who_logged_in(ensemble: Ensemble, tmp_path: Path) -> None:
    kafka = write_login(tmp_path / "kafka.conf", "kafka", USERS["kafka"])
    other = write_login(tmp_path / "other.conf", "other", USERS["other"])

    async def scenario() -> None:
        owner = await opened(settings(ensemble.connect, kafka, sets_acl=True))
        await owner.create("/config", b"")
        await owner.create("/config/users", b"a secret")
        await owner.create("/topic", b"for all to read")
        for login in (None, other):
            stranger = await opened(settings(ensemble.connect, login))
            assert (await stranger.get("/topic")).data == b"for all to read"
            with pytest.raises(NotAllowed, match="java.security.auth.login.config"):
                await stranger.set("/topic", b"taken")
            with pytest.raises(NotAllowed, match="/config/users"):
                await stranger.get("/config/users")
            await stranger.close()
        again = await opened(settings(ensemble.connect, kafka))
        await again.set("/topic", b"changed")
        assert (await again.get("/config/users")).data == b"a secret"
        await again.close()
        await owner.close()

    asyncio.run(scenario())
    view = KazooClient(ensemble.connect, timeout=60)
    view.start(60)
    try:
        acls = view.get_acls("/kafka/topic")[0]
        assert {(acl.id.scheme, acl.id.id, acl.perms) for acl in acls} == {
            ("sasl", "kafka", 31),
            ("world", "anyone", 1),
        }
        with pytest.raises(NoAuthError):
            view.get("/kafka/config/users")
    finally:
        view.stop()
        view.close()


@pytest.mark.parametrize(("user", "password"), [("kafka", "wrong"), ("nobody", "kafkas-secret")])
def test_a_wrong_login_is_refused_at_once_in_one_line(
    ensemble: Ensemble, tmp_path: Path, user: str, password: str
) -> None:
    login = write_login(tmp_path / "login.conf", user, password)
    with pytest.raises(StoreError, match="refused the broker's user or password") as refused:
        asyncio.run(opened(settings(ensemble.connect, login)))
    assert password not in str(refused.value) and "\n" not in str(refused.value)


def test_a_session_logs_in_again_after_each_reconnection(tmp_path: Path) -> None:
    login = write_login(tmp_path / "kafka.conf", "kafka", "kafkas-secret")
    users = {"kafka": "kafkas-secret"}

    async def scenario(ensemble: Ensemble) -> None:
        # The session outlives a restart of ZooKeeper on a busy machine.
        of = settings(ensemble.connect, login, sets_acl=True)
        store = await opened(dataclasses.replace(of, session_timeout_ms=120_000))
        await store.create("/owned", b"1")
        session = store.session_id
        for turn in range(2):
            states: list[SessionState] = []
            stop = store.watch_session(states.append)
            await asyncio.to_thread(ensemble.nodes[0].kill)
            await asyncio.to_thread(ensemble.nodes[0].start)
            async with asyncio.timeout(100):
                while SessionState.CONNECTED not in states:
                    await asyncio.sleep(0.02)
            stop()
            await store.set("/owned", str(turn).encode())
        assert store.session_id == session
        await store.close()

    with require_ensemble_with_users(tmp_path, users, settings={"maxSessionTimeout": "120000"}) as ensemble:
        asyncio.run(scenario(ensemble))


def test_a_connection_that_breaks_during_the_login_is_tried_again(tmp_path: Path) -> None:
    login = write_login(tmp_path / "kafka.conf", "kafka", "kafkas-secret")
    attempts = 0

    async def breaks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal attempts
        await read_frame(reader)
        writer.write(new_session())
        await read_frame(reader)
        attempts += 1

    async def scenario(timeout_ms: int) -> None:
        async with served_by(breaks) as address:
            of = settings(address, login)
            with pytest.raises(
                StoreError, match=f"no ZooKeeper that serves was reached within {timeout_ms} ms"
            ):
                await opened(dataclasses.replace(of, connection_timeout_ms=timeout_ms))

    asyncio.run(scenario(1_500))
    if attempts < 2:  # as on a machine under heavy load
        asyncio.run(scenario(30_000))
    assert attempts > 1


def new_session(timeout_ms: int = 4_000) -> bytes:
    """A server's answer to a client that connects."""
    session = struct.pack("!iiqi", 0, timeout_ms, 77, 16) + bytes(16) + b"\0"
    return struct.pack("!i", len(session)) + session


def test_an_ensemble_that_requires_a_login_says_so(tmp_path: Path) -> None:
    required = {"sessionRequireClientSASLAuth": "true"}
    with require_ensemble_with_users(tmp_path, USERS, settings=required) as ensemble:
        with pytest.raises(StoreError, match="requires a login by SASL: set java.security.auth.login.config"):
            asyncio.run(opened(settings(ensemble.connect)))
        login = write_login(tmp_path / "kafka.conf", "kafka", USERS["kafka"])
        asyncio.run(_create_one(settings(ensemble.connect, login)))


async def _create_one(of: ZooKeeperSettings) -> None:
    store = await opened(of)
    await store.create("/one", b"")
    await store.close()
