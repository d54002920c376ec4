"""A worker behind its REST API, to be served: the web server starts and stops it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from starlette.applications import Starlette

from felice.env.listening import ServerTls
from felice.pipelines.connect.herder.worker import Address, Worker
from felice.pipelines.connect.rest.routes import routes
from felice.web.application import application
from felice.web.errors import PlainErrors
from felice.web.login import Login
from felice.web.serving import WebServer

AfterStart = Callable[[Worker], Awaitable[None]]


def worker_server(
    worker: Worker,
    address: Address,
    *,
    after_start: AfterStart | None = None,
    tls: ServerTls | None = None,
    login: Login | None = None,
) -> WebServer:
    """The server of a worker, to be started. Its start raises `ConnectError`, too."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        address.port = server.port
        worker.states.worker_id = address.worker_id
        try:
            await worker.start()
            if after_start is not None:
                await after_start(worker)
            yield
        finally:
            await worker.stop()

    app = application(
        routes(worker.herder, worker.others), errors=PlainErrors(), login=login, lifespan=lifespan
    )
    server = WebServer(app, address.host, address.port, tls=tls)
    return server
