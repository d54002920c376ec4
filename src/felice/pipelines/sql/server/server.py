"""Puts the SQL server together: statements, persistent queries, and the web server in front of them."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from starlette.applications import Starlette

from felice.client.error import KafkaException
from felice.env import DiskLocked, Lock, SystemDisk
from felice.env.listening import ServerTls
from felice.pipelines.sql.server.failures import SqlErrors, StatementFailed, reason_of
from felice.pipelines.sql.server.leadership import Leadership
from felice.pipelines.sql.server.on_spark import SparkQueries
from felice.pipelines.sql.server.rest import AtLeader, routes
from felice.pipelines.sql.server.selects import MOST_QUERIES, Selects
from felice.pipelines.sql.server.service import MOST_INSERTS, Deployment, SqlService
from felice.web.application import application
from felice.web.forwarding import Forwarder
from felice.web.limits import Limits
from felice.web.login import Login
from felice.web.serving import WebServer

_log = logging.getLogger("felice.sql")

DEFAULT_PORT = 8088
RETRY_S = 1.0
START_TIMEOUT_S = 60.0
OTHER_REQUESTS = 100
"""Besides queries, which may run for ever: statements and checks of the server's health."""
OTHER_THREADS = 2 * MOST_INSERTS
"""Besides those of queries."""


class CannotStart(Exception):
    """The server cannot start. The text says why, and what to do."""


def sql_server(
    deployment: Deployment,
    queries: SparkQueries,
    *,
    host: str = "127.0.0.1",
    port: int = DEFAULT_PORT,
    advertised: str | None = None,
    tls: ServerTls | None = None,
    leader_tls: ssl.SSLContext | bool = True,
    login: Login | None = None,
) -> WebServer:
    """The server, to be started. Its start raises the errors of the command topic (`KafkaException`), too.

    `advertised` is the URL at which the other servers with this service id reach this one; without it, the address on
    which it listens.
    """
    service = SqlService(deployment, queries)

    forwarder = Forwarder(leader_tls)
    tasks: set[asyncio.Task[None]] = set()

    def begin(work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        leadership = app.state.leadership = Leadership(
            deployment.client,
            f"_confluent-ksql-{deployment.service_id}_servers",
            advertised or server.url,
            lambda: begin(_lead(service, lambda: leadership.is_mine)),
            service.follow,
        )
        # It takes no part in the cluster that may begin under this name.
        service.on_terminated = lambda: begin(leadership.stop())
        service.has_own_address = lambda: not leadership.is_shared
        # A registry that does not answer holds the threads of those who ask it; others must find one.
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(MOST_QUERIES + OTHER_THREADS))
        async with AsyncExitStack() as running:
            running.callback(_locked(deployment.data).release)
            running.push_async_callback(asyncio.to_thread, queries.stop)
            queries.start()
            running.push_async_callback(forwarder.close)
            running.push_async_callback(service.close)
            try:
                await service.start(START_TIMEOUT_S)
            except StatementFailed as error:
                raise CannotStart(error.message) from None
            if deployment.program is None:
                running.push_async_callback(leadership.stop)
                await leadership.start(START_TIMEOUT_S)
                if tasks:
                    await asyncio.wait(tasks)
            yield

    def leader() -> str | None:
        leadership: Leadership = app.state.leadership
        answers_itself = leadership.is_mine or leadership.is_shared or service.is_terminated
        return None if answers_itself else leadership.leader

    selects = Selects(service)
    made = routes(service, selects, AtLeader(forwarder, leader))
    limits = Limits(connections=MOST_QUERIES + OTHER_REQUESTS)
    app = application(
        made, errors=SqlErrors(), limits=limits, login=login, lifespan=lifespan, on_stop=selects.stop
    )
    app.state.service = service
    server = WebServer(app, host, port, tls=tls)
    return server


def _locked(data: Path) -> Lock:
    """The lock of a data directory. Raises `CannotStart` if another server has it: both would write the same files."""
    data.mkdir(parents=True, exist_ok=True)
    try:
        return SystemDisk().lock(data / "lock")
    except DiskLocked:
        raise CannotStart(
            f"another SQL server uses the directory {data}; give each one a --data of its own"
        ) from None


async def _lead(service: SqlService, is_mine: Callable[[], bool]) -> None:
    """Begin to lead; a broker that does not answer is asked again, as long as the role is this server's."""
    while is_mine():
        try:
            await service.lead()
        except KafkaException as error:
            _log.error("this server cannot lead yet", extra={"reason": reason_of(error)})
            await asyncio.sleep(RETRY_S)
        else:
            if not is_mine():
                service.follow()  # It was told so before it led.
            return
