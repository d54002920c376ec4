"""An OpenAPI document that was written by hand, and the comparison with the routes that it describes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

PATH = "/openapi.json"
_METHODS = frozenset(("get", "put", "post", "delete", "patch"))


def openapi_route(document: Mapping[str, Any]) -> Route:
    """A route that serves the document at `/openapi.json`."""

    async def openapi(request: Request) -> Response:
        return JSONResponse(document)

    return Route(PATH, openapi)


def differences(document: Mapping[str, Any], routes: Sequence[BaseRoute]) -> list[str]:
    """What the document and the routes do not have in common, for a test: `GET /subjects is not documented`.

    Names of parameters may differ; the route of the document itself, HEAD and OPTIONS do not count.
    """
    documented = {
        (method.upper(), _shape(path))
        for path, item in document["paths"].items()
        for method in item
        if method in _METHODS
    }
    served = {
        (method, _shape(route.path_format))
        for route in routes
        if isinstance(route, Route) and route.path != PATH
        for method in route.methods or ()
        if method.lower() in _METHODS
    }
    missing = [f"{method} {path} is not documented" for method, path in sorted(served - documented)]
    return missing + [f"{method} {path} is not served" for method, path in sorted(documented - served)]


def _shape(path: str) -> str:
    """The path with every parameter replaced by `{}`."""
    return "/".join("{}" if part.startswith("{") and part.endswith("}") else part for part in path.split("/"))
