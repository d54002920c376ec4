"""HTTP Basic log in (RFC 7617).

Keeps true: a request without valid user and password gets 401, with the same words for an unknown user and a wrong
            password, before anything else is known about the request.
Leaves:     the check, and what slows guesses, to `login`.
"""

from __future__ import annotations

import base64
import binascii
import logging
import math
from collections.abc import Callable
from http import HTTPStatus

from starlette.authentication import SimpleUser
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from felice.web.errors import Errors, HttpError
from felice.web.login import CannotCheck, Login, TooManyFailures, WrongLogin

_log = logging.getLogger("felice.web")

IsOpen = Callable[[Scope], bool]
"""Whether a request needs no user, because its handler checks something else, such as a signature."""

_CHALLENGE = {"WWW-Authenticate": 'Basic realm="felice", charset="UTF-8"'}


class BasicLogin:
    """The middleware. The user's name is `request.user.display_name`."""

    def __init__(
        self, app: ASGIApp, login: Login, errors: Errors, is_open: IsOpen = lambda scope: False
    ) -> None:
        self._app = app
        self._login = login
        self._errors = errors
        self._is_open = is_open

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one request. Raises `HttpError`: 401, 429 after too many failures, 503 if it cannot check."""
        if scope["type"] == "http" and not self._is_open(scope):
            scope["user"] = SimpleUser(await self._user(scope))
        await self._app(scope, receive, send)

    async def _user(self, scope: Scope) -> str:
        found = credentials_of(Headers(scope=scope).get("authorization", ""))
        if found is None:
            raise self._unauthorized("this server needs a user and a password")
        client = scope.get("client")
        try:
            await self._login.check(*found, "" if client is None else str(client[0]))
        except WrongLogin:
            raise self._unauthorized("wrong user or password") from None
        except TooManyFailures as error:
            retry = {"Retry-After": str(math.ceil(error.wait_s))}
            raise self._errors.of_status(HTTPStatus.TOO_MANY_REQUESTS, str(error), headers=retry) from None
        except CannotCheck as error:
            _log.warning("users cannot be checked", extra={"reason": str(error)})
            raise self._errors.of_status(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "users cannot be checked now",
                "the log of the server says why",
            ) from None
        return found[0]

    def _unauthorized(self, message: str) -> HttpError:
        return self._errors.of_status(HTTPStatus.UNAUTHORIZED, message, headers=_CHALLENGE)


def credentials_of(header: str) -> tuple[str, str] | None:
    """User and password of an `Authorization` header; None if it has none in HTTP Basic."""
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        text = base64.b64decode(encoded.strip(), validate=True).decode()
    except (binascii.Error, ValueError):
        return None
    user, has_colon, password = text.partition(":")
    return (user, password) if has_colon else None
