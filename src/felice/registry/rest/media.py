"""The content types of the REST API, and the shape of its errors."""

from __future__ import annotations

from felice.web.errors import PlainErrors

V1 = "application/vnd.schemaregistry.v1+json"
OUT = (V1, "application/vnd.schemaregistry+json", "application/json")
IN = (*OUT, "application/octet-stream")


class RegistryErrors(PlainErrors):
    """`{"error_code": 40401, "message": "…"}`, with Confluent's texts for the statuses of HTTP itself."""

    def __init__(self) -> None:
        super().__init__(V1)
