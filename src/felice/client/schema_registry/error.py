"""The errors of a schema registry and of schemas, at confluent_kafka's names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from felice.late_names import late_names

if TYPE_CHECKING:
    from fastavro.schema import SchemaParseException, UnknownType

__all__ = ["SchemaParseException", "SchemaRegistryError", "UnknownType"]

if not TYPE_CHECKING:
    # fastavro is an extra, and only programs that use Avro have it.
    __getattr__, __dir__, _ = late_names(__name__, {"fastavro.schema": "SchemaParseException UnknownType"})


class SchemaRegistryError(Exception):
    """The registry refused a request, or answered with something that is no answer of a registry.

    `error_code` is the registry's own code, such as 40401 (subject not found), or -1 if its answer has none.
    """

    UNKNOWN = -1

    def __init__(self, http_status_code: int, error_code: int | None, error_message: str | None) -> None:
        super().__init__(http_status_code, error_code, error_message)
        self.http_status_code = http_status_code
        self.error_code = error_code
        self.error_message = error_message

    def __str__(self) -> str:
        return f"{self.error_message} (HTTP status code {self.http_status_code}, SR code {self.error_code})"

    __repr__ = __str__
