"""Serves an application with HTTP/1.1 and HTTP/2 from this process, on an event loop of asyncio.

Keeps true: the address is bound before the application starts, so an address in use costs nothing else. Requests are
            accepted only while the application runs. A stop lets the requests that are being answered end, within
            `stop_s`.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable
from contextlib import AsyncExitStack
from email.utils import formatdate
from typing import Any, Protocol, Self

from starlette.applications import Starlette
from uvicorn.config import Config
from uvicorn.server import ServerState

from felice.env import event_loop
from felice.env.descriptors import raise_limit
from felice.env.listening import ListeningServer, ServerTls, bound_sockets
from felice.env.network import why_not_listening
from felice.env.service_manager import ServiceManager
from felice.web.connection import Connection, connections_of
from felice.web.crowd import BURST, Crowd
from felice.web.hosts import is_loopback, known_hosts
from felice.web.http2.turns import Turns
from felice.web.limits import Limits
from felice.web.shared import Shared

_log = logging.getLogger("felice.web")

_DATE_INTERVAL_S = 1.0
_EVERYWHERE = ("", "0.0.0.0", "::")
_STOP_POLL_S = 0.01


class CannotListen(Exception):
    """The address of a server cannot be used. The text names it and the reason."""


class WebServer:
    """Serves an application of `felice.web.application`. Call `start` and `stop`, or use it in an `async with`.

    Port 0 selects a free port. With `tls` it speaks HTTPS.
    """

    def __init__(self, app: Starlette, host: str, port: int, *, tls: ServerTls | None = None) -> None:
        self._app = app
        self._limits: Limits = app.state.limits
        self.host = host
        self.port = port
        self._tls = tls
        self._state = ServerState()
        self._crowd: Crowd | None = None
        self._closing = AsyncExitStack()

    @property
    def url(self) -> str:
        """The address for clients on this machine, such as `http://127.0.0.1:8081`."""
        name = "localhost" if self.host in _EVERYWHERE else self.host
        host = f"[{name}]" if ":" in name else name
        return f"{'http' if self._tls is None else 'https'}://{host}:{self.port}"

    async def start(self) -> None:
        """Starts the application, and serves it. Raises `CannotListen`, and the errors of the application's start."""
        loop = asyncio.get_running_loop()
        try:
            sockets = await bound_sockets(asyncio.Protocol, self.host, self.port, loop)
        except OSError as error:
            raise self._cannot_listen(error) from None
        self.port = sockets[0].getsockname()[1]
        async with AsyncExitStack() as opened:
            for bound in sockets:
                opened.callback(bound.close)
            state = await opened.enter_async_context(self._app.router.lifespan_context(self._app))
            crowd = self._crowd = Crowd(self._limits, loop.time, loop.call_later)
            factory = connections_of(self._shared(crowd, dict(state or {})))
            self._warn()
            server = ListeningServer(sockets, factory, BURST, self._tls, None, loop)
            opened.callback(server.close)
            try:
                server.start()
            except OSError as error:
                raise self._cannot_listen(error) from None
            opened.push_async_callback(self._end_connections, server, crowd)
            self._follow_date(loop, opened)
            self._closing = opened.pop_all()

    async def stop(self) -> None:
        """Stops listening, lets running requests end within `stop_s`, and stops the application."""
        await self._closing.aclose()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: object, error: object, traceback: object) -> None:
        await self.stop()

    def _warn(self) -> None:
        if is_loopback(self.host):
            return
        if self._app.state.login is None:
            _log.warning("everyone who reaches this address may use the server", extra={"url": self.url})
        elif self._tls is None:
            _log.warning(
                "passwords cross the network readable, because there is no TLS", extra={"url": self.url}
            )

    def _cannot_listen(self, error: OSError) -> CannotListen:
        return CannotListen(f"cannot listen at {self.host}:{self.port}: {why_not_listening(error)}")

    def _shared(self, crowd: Crowd, app_state: dict[str, Any]) -> Shared:
        self._app.state.hosts = known_hosts(self.host, has_login=self._app.state.login is not None)
        config = Config(
            self._app,
            http=Connection,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            proxy_headers=False,
            server_header=False,
            h11_max_incomplete_event_size=self._limits.head_bytes,
            timeout_keep_alive=self._limits.idle_s,  # type: ignore[arg-type]
        )
        config.load()
        loop = asyncio.get_running_loop()
        turns = Turns(loop.time, loop.call_soon)
        return Shared(crowd, self._limits, self._app.state.errors, config, self._state, app_state, turns)

    def _follow_date(self, loop: asyncio.AbstractEventLoop, opened: AsyncExitStack) -> None:
        """Keeps the header `Date` of all answers current."""
        timer: asyncio.TimerHandle | None = None

        def renew() -> None:
            nonlocal timer
            self._state.default_headers = [(b"date", formatdate(usegmt=True).encode())]
            timer = loop.call_later(_DATE_INTERVAL_S, renew)

        def stop() -> None:
            if timer is not None:
                timer.cancel()

        renew()
        opened.callback(stop)

    async def _end_connections(self, server: ListeningServer, crowd: Crowd) -> None:
        server.close()
        # A connection that was accepted just now is set up first, or nothing would ever close it.
        await server.wait_closed()
        for connection in list(self._state.connections):
            connection.shutdown()
        self._app.state.on_stop()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._limits.stop_s
        while self._state.connections and loop.time() < deadline:
            await asyncio.sleep(_STOP_POLL_S)
        for task in list(self._state.tasks):
            task.cancel()
        for connection in list(self._state.connections):
            connection.transport.abort()
        await asyncio.sleep(0)  # the connections end in the next turn


def run(
    app: Starlette,
    host: str,
    port: int,
    *,
    tls: ServerTls | None = None,
    on_ready: Callable[[str], None] | None = None,
) -> None:
    """Serves an application until SIGTERM or SIGINT. `on_ready` gets the URL. Raises as `WebServer.start` does."""
    server = WebServer(app, host, port, tls=tls)
    event_loop.run(serve(server, lambda: None if on_ready is None else on_ready(server.url)))


class Service(Protocol):
    """What starts and stops on an event loop, such as a `WebServer`."""

    async def start(self) -> None:
        """Returns when it is ready."""

    async def stop(self) -> None:
        """Ends it, after a start that returned."""


async def serve(server: Service, on_ready: Callable[[], None]) -> None:
    """Runs a service until SIGTERM or SIGINT, on the running event loop. A signal ends also a long start.

    Raises the errors of its start.
    """
    raise_limit()
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    if not await _is_started(server, stopping):
        return
    manager = ServiceManager()
    try:
        on_ready()
        manager.ready("serving")
        await stopping.wait()
        manager.stopping()
    finally:
        await server.stop()
        manager.stopped()


async def _is_started(server: Service, stopping: asyncio.Event) -> bool:
    """Starts the server. False if a signal came first. Raises as `WebServer.start` does."""
    starting = asyncio.ensure_future(server.start())
    asked = asyncio.ensure_future(stopping.wait())
    await asyncio.wait((starting, asked), return_when=asyncio.FIRST_COMPLETED)
    asked.cancel()
    if not starting.done():
        starting.cancel()
        await asyncio.wait((starting,))
    if starting.cancelled():
        return False
    starting.result()
    return True
