"""A worker behind its REST API, to be served: the web server starts and stops it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from starlette.applications import Starlette
from starlette.types import Scope

from felice.env.listening import ServerTls
from felice.pipelines.connect.configuration.worker_options import USERS_FILE, WorkerConfig
from felice.pipelines.connect.herder.worker import Address, Worker
from felice.pipelines.connect.model.errors import ConfigError
from felice.pipelines.connect.rest.routes import routes
from felice.web.application import application
from felice.web.errors import PlainErrors
from felice.web.login import Login
from felice.web.serving import WebServer
from felice.web.users import BadUsersFile, FileUsers

AfterStart = Callable[[Worker], Awaitable[None]]
_OF_WORKERS = re.compile(rb"POST /connectors/[^/]+/tasks|PUT /connectors/[^/]+/fence")
"""What workers ask of each other: these requests have a signature, and no user."""


def is_of_workers(scope: Scope) -> bool:
    """Whether a request is one that workers sign. The handler checks that."""
    return _OF_WORKERS.fullmatch(scope["method"].encode() + b" " + scope["raw_path"]) is not None


def login_of(config: WorkerConfig) -> Login | None:
    """How users log in at the REST API; None if nobody does. Raises `ConfigError` for a file that cannot be read."""
    file: str | None = config.values[USERS_FILE]
    try:
        return Login(FileUsers(Path(file))) if file else None
    except BadUsersFile as error:
        raise ConfigError(f"{USERS_FILE}: {error}") from None


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
        routes(worker.herder, worker.others),
        errors=PlainErrors(),
        login=login,
        is_open=is_of_workers,
        lifespan=lifespan,
    )
    server = WebServer(app, address.host, address.port, tls=tls)
    return server
