"""Makes an application from routes: errors in one shape, limits of bodies, log in, and an access log.

Keeps true: a request that fails in any way gets an answer in the shape of `errors`, if the client still listens.
            A request is authenticated before its path is looked up. Its body is read only if its handler asks for it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Lifespan, Message, Receive, Scope, Send

from felice.web.basic import BasicLogin, IsOpen
from felice.web.bodies import BodyLimits
from felice.web.errors import Errors, HttpError
from felice.web.hosts import KnownHosts
from felice.web.limits import Limits
from felice.web.login import Login
from felice.web.paths import RawPaths, on_raw_paths

_log = logging.getLogger("felice.web")
_access_log = logging.getLogger("felice.web.access")


def application(
    routes: Sequence[BaseRoute],
    *,
    errors: Errors | None = None,
    limits: Limits | None = None,
    login: Login | None = None,
    is_open: IsOpen = lambda scope: False,
    access_log: bool = True,
    lifespan: Lifespan[Starlette] | None = None,
    on_stop: Callable[[], None] = lambda: None,
) -> Starlette:
    """An application with these routes of Starlette (`Route`), to be served by `felice.web.serving`.

    Parameters of paths are one segment each, decoded (`felice.web.paths`). Handlers raise `HttpError`, or Starlette's
    `HTTPException` for a status without a code of its own. With `login` a request without a valid user gets 401; the
    name is `request.user.display_name`. A request that `is_open` accepts needs no user. `lifespan` begins before the
    first request and ends after the last one. `on_stop` is called when the server begins to stop: it ends answers
    that have no end, so that the server does not wait for them.
    """
    errors, limits = errors or Errors(), limits or Limits()

    async def on_http_exception(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return errors.response(_of_starlette(request, error, errors), request.scope)

    made = Starlette(
        routes=on_raw_paths(routes),
        middleware=[
            *([Middleware(AccessLog)] if access_log else []),
            Middleware(Failures, errors=errors),
            Middleware(KnownHosts, errors=errors),
            Middleware(RawPaths, errors=errors),
            *(
                [Middleware(BasicLogin, login=login, errors=errors, is_open=is_open)]
                if login is not None
                else []
            ),
            Middleware(BodyLimits, limits=limits, errors=errors),
        ],
        exception_handlers={HTTPException: on_http_exception},
        lifespan=lifespan,
    )
    made.router.redirect_slashes = False  # the client's own `Host` would be in the redirect
    made.state.errors, made.state.limits, made.state.login = errors, limits, login
    made.state.on_stop = on_stop
    return made


def _of_starlette(request: Request, error: HTTPException, errors: Errors) -> HttpError:
    headers = dict(error.headers or {})
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        headers["Allow"] = ", ".join(_allowed_methods(request))
    told = error.detail if error.detail != HTTPStatus(error.status_code).phrase else None
    return errors.of_status(error.status_code, told, headers=headers)


def _allowed_methods(request: Request) -> list[str]:
    """The methods of all routes of this path. Starlette names those of the first."""
    matching = [route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE]
    return sorted({method for route in matching for method in route.methods or ()})


class Failures:
    """Turns every exception into an answer. An answer that has begun cannot be replaced: its connection is closed."""

    def __init__(self, app: ASGIApp, errors: Errors) -> None:
        self._app = app
        self._errors = errors

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        has_begun = False

        async def send_noting(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self._app(scope, receive, send_noting)
        except ClientDisconnect:
            return
        except Exception as error:
            answer = self._answer(scope, error)
            if has_begun:
                raise
            await answer(scope, receive, send)

    def _answer(self, scope: Scope, error: Exception) -> Response:
        if not isinstance(error, HttpError):
            _log.error(
                "a request failed", exc_info=error, extra={"method": scope["method"], "path": scope["path"]}
            )
            error = self._errors.of_status(HTTPStatus.INTERNAL_SERVER_ERROR)
        return self._errors.response(error, scope)


class AccessLog:
    """One line for each request: who asked for what, and what they got, in how many milliseconds."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one request."""
        if scope["type"] != "http" or not _access_log.isEnabledFor(logging.INFO):
            await self._app(scope, receive, send)
            return
        began, status, path = time.monotonic(), 0, _path_of(scope)

        async def send_noting(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await self._app(scope, receive, send_noting)
        finally:
            facts: dict[str, Any] = {"method": scope["method"], "path": path, "status": status}
            facts |= {"ms": round((time.monotonic() - began) * 1000, 1), "client": _client_of(scope)}
            if (user := scope.get("user")) is not None:
                facts["user"] = user.display_name
            _access_log.info("request", extra=facts)


def _path_of(scope: Scope) -> str:
    return str(scope.get("raw_path", scope["path"].encode()).decode("latin-1"))


def _client_of(scope: Scope) -> str:
    client = scope.get("client")
    return "" if client is None else str(client[0])
