"""Routes on the path as the client sent it, so that a segment may hold any character, `/` as `%2F` too.

Keeps true: a parameter `{name}` of a route is one segment of the path, decoded once. Segments are never divided or
            joined: `..`, `.` and empty segments in the middle stay what they are.
            A query that is not UTF-8 is refused, as a path is.
            Characters that need no encoding may be encoded (RFC 3986, 6.2.2.2), and one `/` at the end changes nothing.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote, unquote_to_bytes

from starlette.convertors import Convertor
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from felice.web.errors import Errors

_ENCODED = re.compile("%[0-9A-Fa-f]{2}")
_UNRESERVED = re.compile("[A-Za-z0-9._~-]")
_ABSOLUTE = re.compile("[A-Za-z][A-Za-z0-9+.-]*://[^/?]*")


class RawPaths:
    """The middleware: gives the routes the path that the client sent instead of the decoded path."""

    def __init__(self, app: ASGIApp, errors: Errors) -> None:
        self._app = app
        self._errors = errors

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one request."""
        if scope["type"] == "http" and "raw_path" in scope:
            scope["path"] = routed_path(scope["raw_path"].decode("latin-1"))
            try:
                unquote_to_bytes(scope["query_string"]).decode()
            except UnicodeDecodeError:
                raise self._errors.of_status(HTTPStatus.BAD_REQUEST, "the query is not UTF-8") from None
        await self._app(scope, receive, send)


def routed_path(raw: str) -> str:
    """The path that routes are compared with: that of the request line, without needless encodings."""
    path = _ENCODED.sub(_decoded_if_unreserved, _ABSOLUTE.sub("", raw, count=1))
    return (path if len(path) < 2 else path.removesuffix("/")) or "/"


def _decoded_if_unreserved(found: re.Match[str]) -> str:
    character = chr(int(found[0][1:], 16))
    return character if _UNRESERVED.fullmatch(character) else found[0]


def on_raw_paths(routes: Sequence[BaseRoute]) -> list[Route]:
    """Copies of the routes that decode parameters after the match. Raises `TypeError` for other kinds of routes."""
    return [_on_raw_path(route) for route in routes]


def _on_raw_path(route: BaseRoute) -> Route:
    if type(route) is not Route:
        raise TypeError(f"only routes of the class Route are supported, not {route!r}")
    copied = copy.copy(route)
    copied.param_convertors = {
        name: _Decoding(convertor) for name, convertor in route.param_convertors.items()
    }
    return copied


class _Decoding(Convertor[Any]):
    """Decodes a segment, and converts it then."""

    def __init__(self, convertor: Convertor[Any]) -> None:
        self._convertor = convertor

    def convert(self, value: str) -> Any:
        """The parameter for a segment. Raises `HTTPException` for text that is not UTF-8."""
        try:
            return self._convertor.convert(unquote(value, errors="strict"))
        except UnicodeDecodeError:
            raise HTTPException(HTTPStatus.BAD_REQUEST, f"{value} in the path is not UTF-8") from None

    def to_string(self, value: Any) -> str:
        """The text of a parameter in a path."""
        return str(self._convertor.to_string(value))
