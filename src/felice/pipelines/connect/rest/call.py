"""One request of the REST API: its parameters and body, and the herder that answers it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from felice.pipelines.connect.herder.errors import bad_request
from felice.pipelines.connect.herder.herder import Herder
from felice.web.media import JSON, json_body


class Call:
    """A request, and what answers it."""

    def __init__(self, request: Request, herder: Herder) -> None:
        self.request = request
        self.herder = herder

    @property
    def name(self) -> str:
        """The connector of the path."""
        return self.path("connector")

    def path(self, name: str) -> str:
        """A segment of the path, decoded."""
        return str(self.request.path_params[name])

    def flag(self, name: str, *, default: bool = False) -> bool:
        """A parameter of the query that is true or false."""
        value = self.request.query_params.get(name)
        return default if value is None else value.lower() == "true"

    async def document(self) -> dict[str, Any]:
        """The JSON object in the body. Raises `RequestError` (400)."""
        found = await json_body(self.request)
        if not isinstance(found, dict):
            raise bad_request(f"the body must be a JSON object, not {_kind_of(found)}")
        return found

    async def config(self) -> dict[str, str]:
        """A configuration in the body. Raises `RequestError` (400)."""
        return config_of(await self.document(), "the body")

    async def changes(self) -> dict[str, str | None]:
        """Options in the body, or null for those that shall go. Raises `RequestError` (400)."""
        return {
            name: None if value is None else _text(name, value)
            for name, value in (await self.document()).items()
        }

    def answer(self, content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
        """The answer with this JSON."""
        text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
        return Response(text.encode("utf-8", "replace"), status, headers, media_type=JSON)


def config_of(value: Any, what: str) -> dict[str, str]:
    """A configuration: texts, and numbers and truth values as their texts. Raises `RequestError` (400)."""
    if not isinstance(value, dict):
        raise bad_request(f"{what} must be a JSON object of options, not {_kind_of(value)}")
    return {name: _text(name, one) for name, one in value.items() if one is not None}


def _text(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, (bool, int, float)):
        return json.dumps(value)
    raise bad_request(f"the option {name} must be a text, not {_kind_of(value)}")


_KINDS = {dict: "an object", list: "a list", str: "a text", type(None): "null", bool: "true or false"}


def _kind_of(value: Any) -> str:
    return _KINDS.get(type(value), "a number")
