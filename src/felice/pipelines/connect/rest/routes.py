"""The routes of the REST API as a table, and how a request passes through.

Keeps true:  a request that another worker must carry out is forwarded to it, once.
             A request that is not done after `REQUEST_S` gets 500; its work goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from felice.pipelines.connect.herder.errors import NotHere, RequestError
from felice.pipelines.connect.herder.group import Others
from felice.pipelines.connect.herder.herder import Herder
from felice.pipelines.connect.model.errors import ConnectError
from felice.pipelines.connect.rest import connectors, internal, loggers, plugins
from felice.pipelines.connect.rest.call import Call
from felice.web.errors import HttpError
from felice.web.forwarding import FORWARD_HEADER, ForwardingFailed, LeaderAway

Handler = Callable[[Call], Awaitable[Response]]


_CONFLICT = "Cannot complete request because of a conflicting operation (e.g. worker rebalance)"
REQUEST_S = 90.0
_ONE, _TASK, _PLUGIN, _LOGGER = (
    "/connectors/{connector}",
    "/connectors/{connector}/tasks/{task}",
    "/connector-plugins/{plugin}",
    "/admin/loggers/{logger}",
)

RESOURCES: tuple[tuple[str, str, Handler], ...] = (
    ("GET", "/", plugins.get_root),
    ("GET", "/health", plugins.get_health),
    ("GET", "/connectors", connectors.list_connectors),
    ("POST", "/connectors", connectors.create),
    ("GET", _ONE, connectors.get),
    ("DELETE", _ONE, connectors.delete),
    ("GET", f"{_ONE}/config", connectors.get_config),
    ("PUT", f"{_ONE}/config", connectors.put_config),
    ("PATCH", f"{_ONE}/config", connectors.patch_config),
    ("GET", f"{_ONE}/status", connectors.get_status),
    ("POST", f"{_ONE}/restart", connectors.restart),
    ("PUT", f"{_ONE}/pause", connectors.pause),
    ("PUT", f"{_ONE}/resume", connectors.resume),
    ("PUT", f"{_ONE}/stop", connectors.stop),
    ("GET", f"{_ONE}/tasks", connectors.get_tasks),
    ("POST", f"{_ONE}/tasks", internal.put_tasks),
    ("PUT", f"{_ONE}/fence", internal.fence),
    ("GET", f"{_TASK}/status", connectors.get_task_status),
    ("GET", f"{_TASK}/progress", connectors.get_task_progress),
    ("GET", f"{_TASK}/logs", connectors.get_task_logs),
    ("POST", f"{_TASK}/restart", connectors.restart_task),
    ("GET", f"{_ONE}/topics", connectors.get_topics),
    ("PUT", f"{_ONE}/topics/reset", connectors.reset_topics),
    ("GET", f"{_ONE}/offsets", connectors.get_offsets),
    ("PATCH", f"{_ONE}/offsets", connectors.alter_offsets),
    ("DELETE", f"{_ONE}/offsets", connectors.reset_offsets),
    ("GET", "/connector-plugins", plugins.list_plugins),
    ("GET", f"{_PLUGIN}/config", plugins.get_plugin_config),
    ("PUT", f"{_PLUGIN}/config/validate", plugins.validate),
    ("GET", "/admin/loggers", loggers.list_loggers),
    ("GET", _LOGGER, loggers.get_logger),
    ("PUT", _LOGGER, loggers.set_level),
)


def routes(herder: Herder, others: Others | None) -> list[Route]:
    """The routes for an application of `felice.web`."""
    return [
        Route(path, _endpoint(handler, herder, others), methods=[method])
        for method, path, handler in RESOURCES
    ]


def _endpoint(
    handler: Handler, herder: Herder, others: Others | None
) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        try:
            return await _once(handler, herder, others, request)
        except _NoOwner as error:
            if others is not None:
                await others.wait(error.url)
        try:
            return await _once(handler, herder, others, request)
        except _NoOwner:
            raise HttpError(409, 409, _CONFLICT) from None

    return endpoint


def _note(work: asyncio.Future[Response]) -> None:
    """Takes the error of work whose client has its answer already."""
    if not work.cancelled():
        work.exception()


class _NoOwner(Exception):
    """The worker that must carry out the request is not known, or nothing listens at its address."""

    def __init__(self, url: str | None) -> None:
        super().__init__(url)
        self.url = url


async def _once(handler: Handler, herder: Herder, others: Others | None, request: Request) -> Response:
    try:
        # The work goes on when the client's patience ends: half a change would be worse.
        work = asyncio.ensure_future(handler(Call(request, herder)))
        work.add_done_callback(_note)
        async with asyncio.timeout(REQUEST_S):
            return await asyncio.shield(work)
    except NotHere as error:
        url = error.url
    except TimeoutError:
        raise HttpError(500, 500, "Request timed out") from None
    except RequestError as error:
        raise HttpError(error.status, error.status, str(error)) from error
    except ConnectError as error:
        raise HttpError(500, 500, str(error)) from error
    if url is None or others is None:
        raise _NoOwner(None)
    if FORWARD_HEADER in request.headers:
        raise HttpError(409, 409, _CONFLICT)
    try:
        return await others.pass_on(request, url)
    except LeaderAway:
        raise _NoOwner(url) from None
    except ForwardingFailed as error:
        raise HttpError(500, 500, str(error)) from error
