"""The comparison of a document with the routes, and its route."""

from __future__ import annotations

import asyncio
import json

from starlette.routing import Route

from felice.web.application import application
from felice.web.openapi import differences, openapi_route
from felice.web.serving import WebServer
from unit.web.serving_app import Serving, hello, request_of

DOCUMENT = {
    "openapi": "3.1.0",
    "paths": {"/subjects/{subject}": {"parameters": [], "get": {}, "delete": {}}, "/count": {"post": {}}},
}
ROUTES = [
    openapi_route(DOCUMENT),
    Route("/subjects/{name}", hello),
    Route("/subjects/{name}", hello, methods=["DELETE"]),
    Route("/count", hello, methods=["POST"]),
]


def test_a_document_with_all_routes_has_no_differences() -> None:
    assert differences(DOCUMENT, ROUTES) == []
    assert differences(DOCUMENT, application(ROUTES).routes) == []


def test_what_is_missing_on_either_side_is_named() -> None:
    more = [*ROUTES[:3], Route("/versions/{number:int}", hello, methods=["PUT"])]
    assert differences(DOCUMENT, more) == [
        "PUT /versions/{} is not documented",
        "POST /count is not served",
    ]


def test_the_document_is_served() -> None:
    async def scenario() -> None:
        async with WebServer(application(ROUTES), "127.0.0.1", 0) as server:
            status, headers, body = await Serving(server).ask(request_of("GET", "/openapi.json"))
            assert (status, headers["content-type"]) == (200, "application/json")
            assert json.loads(body) == DOCUMENT

    asyncio.run(scenario())
