"""A worker behind its REST API, to be served: the web server starts and stops it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response

from felice.env.listening import ServerTls
from felice.pipelines.connect.herder.distributed import DistributedWorker
from felice.pipelines.connect.herder.worker import Address, Worker
from felice.pipelines.connect.rest.routes import Others, routes
from felice.web.application import application
from felice.web.errors import PlainErrors
from felice.web.forwarding import passed_on
from felice.web.login import Login
from felice.web.serving import WebServer

LEADER_WAIT_S = 5.0
"""How long a request waits for a leader, or for another one than that which is away."""

AfterStart = Callable[[Worker], Awaitable[None]]


def worker_server(
    worker: Worker,
    address: Address,
    *,
    others: Others | None = None,
    after_start: AfterStart | None = None,
    tls: ServerTls | None = None,
    login: Login | None = None,
) -> WebServer:
    """The server of a worker, to be started. Its start raises `ConnectError`, too. `others` are workers of a group."""

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

    app = application(routes(worker.herder, others), errors=PlainErrors(), login=login, lifespan=lifespan)
    server = WebServer(app, address.host, address.port, tls=tls)
    return server


def distributed_server(worker: DistributedWorker, address: Address, **more: Any) -> WebServer:
    """As `worker_server`, for a worker of a group."""
    return worker_server(worker, address, others=_Group(worker), **more)


class _Group:
    """The other workers of a group (`Others`)."""

    def __init__(self, worker: DistributedWorker) -> None:
        self._worker = worker

    async def wait(self, url: str | None) -> None:
        await self._worker.wait_other_leader(url, LEADER_WAIT_S)

    async def pass_on(self, request: Request, url: str) -> Response:
        return await passed_on(request, self._worker.forwarder, url.rstrip("/"))
