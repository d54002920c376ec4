"""Errors of HTTP requests, and the JSON that clients get for them.

Keeps true: every error, of the application, the routing and the protocol, has the one shape that `Errors` decides.
            An unexpected exception is logged with its traceback, and the client gets only the status.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus

from starlette.responses import Response
from starlette.types import Scope

_LOGGED = "the log of the server says why"


class HttpError(Exception):
    """The error that a client gets instead of an answer.

    `error_code` is a number of the API, `message` says what is wrong, and `hint` what to do about it.
    """

    def __init__(
        self,
        status: int,
        error_code: int,
        message: str,
        hint: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.error_code = error_code
        self.message = message
        self.hint = hint
        self.headers = dict(headers or {})


class Errors:
    """Decides the JSON of errors: `{"error_code": 404, "message": "…", "hint": "…"}`, without `hint` if there is none.

    An API with another shape overrides `document`, and with codes of its own `of_status`.
    """

    def __init__(self, media_type: str = "application/json") -> None:
        self.media_type = media_type

    def of_status(
        self,
        status: int,
        message: str | None = None,
        hint: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> HttpError:
        """The error for a status that the web stack itself decided, such as 404, 413 or 500."""
        if status == HTTPStatus.INTERNAL_SERVER_ERROR:
            hint = hint or _LOGGED
        return HttpError(status, status, message or HTTPStatus(status).phrase, hint, headers)

    def document(self, error: HttpError) -> Mapping[str, object]:
        """The members of the JSON object."""
        document: dict[str, object] = {"error_code": error.error_code, "message": error.message}
        return document if error.hint is None else {**document, "hint": error.hint}

    def media_type_for(self, scope: Scope | None) -> str:
        """The content type of the answer to a request; `scope` is None if no request was understood."""
        return self.media_type

    def response(self, error: HttpError, scope: Scope | None = None) -> Response:
        """The whole answer."""
        content = json.dumps(self.document(error), separators=(",", ":"), ensure_ascii=False)
        return Response(
            content.encode("utf-8", "replace"),
            status_code=error.status,
            headers=error.headers,
            media_type=self.media_type_for(scope),
        )


class PlainErrors(Errors):
    """Errors as servers of Confluent and Kafka tell them: `{"error_code": 404, "message": "HTTP 404 Not Found"}`."""

    def of_status(
        self,
        status: int,
        message: str | None = None,
        hint: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> HttpError:
        """The error for a status that the web stack decided."""
        if message is None:
            message = f"HTTP {status} {HTTPStatus(status).phrase}"
        return HttpError(status, status, message, None, headers)

    def document(self, error: HttpError) -> Mapping[str, object]:
        """The members of the JSON object."""
        return {"error_code": error.error_code, "message": error.message}
