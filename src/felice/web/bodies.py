"""The limits of request bodies: of one body its size and its time, and of all together their memory.

Keeps true: a body that is too large is refused when its handler asks for it, before it is read if its size is declared.
            A body that does not end within its time is refused, no matter how its bytes come.
            When the bodies of all requests together are too large, the unfinished one that began first is refused.
            A handler that does not want the body never waits for it.
            A handler that reads a body for as long as it comes, and keeps no part of it (`use_long`), gets one without
            limits of size and time.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Final

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from felice.web.errors import Errors, HttpError
from felice.web.limits import Limits

USE_LONG: Final = "felice.use_long"
"""In the scope of a request of HTTP/2: a function that tells its connection of `use_long`. A request that is not
complete gives way to others; one whose body is read for as long as it comes does not.
"""
_BODY: Final = "felice.body"


def use_long(request: Request) -> bool:
    """States that the handler reads the body until the client ends it, and keeps no part of it.

    Call it when the request is known to be good: no limit of size or time ends it. Returns False, and changes nothing,
    in HTTP/1.1: most clients read nothing there before they have sent everything.
    """
    if (tell := request.scope.get(USE_LONG)) is None:
        return False
    request.scope[_BODY].let_go()
    tell()
    return True


class BodyLimits:
    """The middleware. It raises `HttpError` from `receive`, so that handlers need not know it."""

    def __init__(self, app: ASGIApp, limits: Limits, errors: Errors) -> None:
        self._app = app
        self._limits = limits
        self._errors = errors
        self._open: dict[_Body, None] = {}  # in the order in which they began

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body = _Body(self, Headers(scope=scope), receive)
        self._open[body] = None
        scope[_BODY] = body
        try:
            await self._app(scope, body.receive, send)
        finally:
            del self._open[body]

    def too_large(self) -> HttpError:
        """The error for a body above its limit."""
        limit = f"the body of a request may have {self._limits.body_bytes:,} bytes"
        return self._errors.of_status(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, limit)

    def too_late(self) -> HttpError:
        """The error for a body that did not end."""
        limit = f"the body of the request did not arrive in {self._limits.body_s:g} s"
        return self._errors.of_status(HTTPStatus.REQUEST_TIMEOUT, limit)

    def too_many(self) -> HttpError:
        """The error for a body that gives way."""
        limit = (
            f"the requests that are being read have more than {self._limits.bodies_bytes:,} bytes together"
        )
        return self._errors.of_status(
            HTTPStatus.SERVICE_UNAVAILABLE, limit, "try again", {"Retry-After": "1"}
        )

    def make_room(self, newest: _Body) -> None:
        """Refuses unfinished bodies if all together are too large: the first, and if there is no other, `newest`."""
        while sum(body.size for body in self._open) > self._limits.bodies_bytes:
            first = next((body for body in self._open if body.is_open), newest)
            first.give_way()
            if first is newest:
                return

    @property
    def limits(self) -> Limits:
        """The limits of the server."""
        return self._limits


class _Body:
    def __init__(self, all_bodies: BodyLimits, headers: Headers, receive: Receive) -> None:
        self._all = all_bodies
        self._receive = receive
        self._declared = _declared_bytes(headers)
        self._deadline = asyncio.get_running_loop().time() + all_bodies.limits.body_s
        self._wait: asyncio.Timeout | None = None
        self._gives_way = False
        self.size = 0
        self.is_open = True

    async def receive(self) -> Message:
        """The next part of the body. Raises `HttpError`."""
        if self._gives_way:
            raise self._all.too_many()
        if not self.is_open:
            return await self._receive()
        if self._declared > self._all.limits.body_bytes:
            raise self._all.too_large()
        message = await self._next_part()
        self.is_open = bool(message.get("more_body"))
        self._hold(len(message.get("body", b"")))
        return message

    async def _next_part(self) -> Message:
        try:
            async with asyncio.timeout_at(self._deadline) as self._wait:
                return await self._receive()
        except TimeoutError:
            raise self._all.too_many() if self._gives_way else self._all.too_late() from None
        finally:
            self._wait = None

    def _hold(self, size: int) -> None:
        self.size += size
        if self.size > self._all.limits.body_bytes:
            raise self._all.too_large()
        self._all.make_room(self)
        if self._gives_way:
            raise self._all.too_many()

    def give_way(self) -> None:
        """Ends the wait for this body with an error."""
        self._gives_way, self.is_open, self.size = True, False, 0
        if self._wait is not None:
            self._wait.reschedule(0)

    def let_go(self) -> None:
        """The rest has no limits."""
        self.is_open, self.size = False, 0


def _declared_bytes(headers: Headers) -> int:
    text = headers.get("content-length", "0")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0
