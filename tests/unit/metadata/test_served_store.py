"""A store that one process serves to others: sessions when the server or the client is suspended."""

from __future__ import annotations

import asyncio
from pathlib import Path

from felice.env import SystemClock, SystemDisk
from felice.env.network import local_pair, open_local
from felice.metadata import Create, SessionState
from felice.metadata.embedded import EmbeddedStore
from felice.metadata.served import ServedStore
from felice.metadata.served.server import _Connection
from felice.metadata.served.wire import encode_operation, read_message, write_message
from waiting import LIMIT_S, until

TIMEOUT_S = 0.2


def test_a_client_that_is_suspended_while_it_reads_an_answer_loses_its_session(tmp_path: Path) -> None:
    """Otherwise no other broker could take its leaderships over."""

    async def scenario() -> None:
        store = EmbeddedStore.open(SystemDisk(), tmp_path)
        await store.create("/large", bytes(4_000_000))
        ours, theirs = local_pair()
        connection = _Connection(store, *await open_local(ours), LIMIT_S)
        serving = asyncio.create_task(connection.run())
        reader, writer = await open_local(theirs)
        await read_message(reader)
        write_message(writer, [1, "multi", [encode_operation(Create("/me", ephemeral=True))]])
        assert (await read_message(reader))[1] in ("done", "event")
        assert await store.exists("/me")
        # The client sends a request, and stops reading.
        connection._timeout_s = TIMEOUT_S  # only now: on a slow machine the session would end before
        write_message(writer, [2, "get", ["/large"]])
        async with asyncio.timeout(LIMIT_S):
            while await store.exists("/me"):
                await asyncio.sleep(0.01)
        writer.transport.abort()
        await serving
        await store.close()

    asyncio.run(scenario())


def test_a_client_notices_a_suspended_server_by_its_own_clock() -> None:
    async def scenario() -> None:
        ours, theirs = local_pair()
        _, keeper = await open_local(ours)
        write_message(keeper, [0, "session", 7, TIMEOUT_S])
        store = await ServedStore.open(*await open_local(theirs), SystemClock())
        states: list[SessionState] = []
        store.watch_session(states.append)
        await until(lambda: states)
        assert states == [SessionState.EXPIRED]
        await store.abandon()
        keeper.close()

    asyncio.run(scenario())
