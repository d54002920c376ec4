"""The OpenAPI document of the REST API, which `openapi.json` beside this module holds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import resources
from typing import Any

from felice import __version__


def openapi_document() -> Mapping[str, Any]:
    """The document, with the version of this registry."""
    text = resources.files(__package__).joinpath("openapi.json").read_text("utf-8")
    document: dict[str, Any] = json.loads(text)
    document["info"]["version"] = __version__
    return document
