"""The content types of the REST API, and the shape of its errors."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

from felice.web.errors import Errors, HttpError

V1 = "application/vnd.schemaregistry.v1+json"
OUT = (V1, "application/vnd.schemaregistry+json", "application/json")
IN = (*OUT, "application/octet-stream")


class RegistryErrors(Errors):
    """`{"error_code": 40401, "message": "…"}`, with Confluent's texts for the statuses of HTTP itself."""

    def __init__(self) -> None:
        super().__init__(V1)

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
