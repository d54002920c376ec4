"""The written OpenAPI document describes exactly the routes."""

from __future__ import annotations

import copy
import json
import re
from typing import Any

from starlette.routing import Route

from felice.registry.records import LEVELS
from felice.registry.rest.openapi import openapi_document
from felice.registry.rest.routes import CONTEXT, RESOURCES, routes
from felice.web.forwarding import Forwarder
from felice.web.openapi import differences
from registry_rest import Rest


def all_routes() -> list[Route]:
    return routes(Rest().registry, Forwarder(), None)


def plain(path: str) -> str:
    """The path without the context before it."""
    return path.removeprefix(CONTEXT) or path


async def test_every_route_is_documented_and_every_path_is_served() -> None:
    document = openapi_document()
    of_contexts = [route for route in all_routes() if route.path.startswith(CONTEXT + "/")]
    others = [route for route in all_routes() if route not in of_contexts]
    assert (
        differences(document, [route for route in others if not route.path.startswith(CONTEXT + "/")]) == []
    )
    documented = set(document["paths"])
    assert {plain(route.path) for route in of_contexts} <= documented
    assert len(of_contexts) == sum(resource.in_contexts for resource in RESOURCES)


def test_every_parameter_of_a_path_is_described_and_every_reference_leads_somewhere() -> None:
    document = openapi_document()
    for path, item in document["paths"].items():
        for method, operation in item.items():
            named = [found["name"] for found in operation.get("parameters", ()) if found["in"] == "path"]
            assert named == re.findall(r"{(\w+)}", path), (method, path)
            assert operation["summary"].endswith(".")
    for name in re.findall(r'"#/components/schemas/(\w+)"', json.dumps(document)):
        assert name in document["components"]["schemas"]
    assert document["components"]["schemas"]["Level"]["enum"] == list(LEVELS)


async def test_an_answer_has_only_documented_members() -> None:
    document: Any = copy.deepcopy(openapi_document())
    schemas = document["components"]["schemas"]
    rest = Rest()
    metadata = {"tags": {"a": ["T"]}, "properties": {"p": "1"}, "sensitive": ["p"]}
    rules = {"domainRules": [{"name": "r", "mode": "WRITE"}]}
    registered = await rest.call(
        "POST",
        "/subjects/s/versions",
        {"schema": "x", "schemaType": "JSON", "metadata": metadata, "ruleSet": rules},
    )
    assert set(registered) <= set(schemas["Registered"]["properties"])
    assert set(await rest.call("GET", "/subjects/s/versions/1")) <= set(schemas["Schema"]["properties"])
    by_id = await rest.call("GET", "/schemas/ids/1?fetchMaxId=true")
    assert set(by_id) <= set(schemas["SchemaOfId"]["properties"])
