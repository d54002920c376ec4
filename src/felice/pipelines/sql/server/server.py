"""Puts the SQL server together: statements, persistent queries, and the web server in front of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from starlette.applications import Starlette

from felice.env.listening import ServerTls
from felice.pipelines.sql.server.failures import SqlErrors
from felice.pipelines.sql.server.on_spark import SparkQueries
from felice.pipelines.sql.server.rest import routes
from felice.pipelines.sql.server.service import Deployment, SqlService
from felice.web.application import application
from felice.web.login import Login
from felice.web.serving import WebServer

DEFAULT_PORT = 8088
START_TIMEOUT_S = 60.0


def sql_server(
    deployment: Deployment,
    queries: SparkQueries,
    *,
    host: str = "127.0.0.1",
    port: int = DEFAULT_PORT,
    tls: ServerTls | None = None,
    login: Login | None = None,
) -> WebServer:
    """The server, to be started. Its start raises the errors of the command topic (`KafkaException`), too."""
    service = SqlService(deployment, queries)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with AsyncExitStack() as running:
            running.push_async_callback(asyncio.to_thread, queries.stop)
            queries.start()
            running.push_async_callback(service.close)
            await service.start(START_TIMEOUT_S)
            yield

    app = application(routes(service), errors=SqlErrors(), login=login, lifespan=lifespan)
    app.state.service = service
    return WebServer(app, host, port, tls=tls)
