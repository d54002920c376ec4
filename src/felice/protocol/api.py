"""The table of APIs: key, request, response, versions.

Keeps true:  each API that can travel has one row. `versions` is what the declarations can carry; `advertised`
             is what a broker offers, which for two APIs is another range, for the reasons beside them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from felice.protocol.messages import (
    api_versions,
    fetch,
    list_offsets,
    metadata,
    produce,
)
from felice.protocol.schema import Versions, schema_of

API_VERSIONS_KEY = 18


@dataclass(frozen=True, slots=True)
class Api:
    """One API. `flexible_from` is None if it has no flexible version."""

    key: int
    name: str
    request: type[Any]
    response: type[Any]
    versions: Versions
    advertised: Versions
    flexible_from: int | None

    def is_flexible(self, version: int) -> bool:
        """Whether this version has compact types and tagged fields."""
        return self.flexible_from is not None and version >= self.flexible_from

    def request_header_version(self, version: int) -> int:
        """2 has a tag buffer."""
        return 2 if self.is_flexible(version) else 1

    def response_header_version(self, version: int) -> int:
        """1 has a tag buffer. ApiVersions never does, or a client could not read an answer in version 0."""
        return 1 if self.key != API_VERSIONS_KEY and self.is_flexible(version) else 0


def _api(request: type[Any], response: type[Any], advertised: str | None = None) -> Api:
    schema = schema_of(request)
    flexible = schema.flexible
    return Api(
        key=schema.api_key,
        name=schema.name.removesuffix("Request"),
        request=request,
        response=response,
        versions=schema.versions,
        advertised=schema.versions if advertised is None else Versions.parse(advertised),
        flexible_from=flexible.first if flexible.first <= flexible.last else None,
    )


class API:
    """Every API by name, and by key in `by_key`."""

    # KAFKA-18659: librdkafka before 2.11.1 sends uncompressed unless Produce v0 is offered.
    PRODUCE = _api(produce.ProduceRequest, produce.ProduceResponse, advertised="0-13")
    FETCH = _api(fetch.FetchRequest, fetch.FetchResponse)
    LIST_OFFSETS = _api(list_offsets.ListOffsetsRequest, list_offsets.ListOffsetsResponse)
    METADATA = _api(metadata.MetadataRequest, metadata.MetadataResponse)
    API_VERSIONS = _api(api_versions.ApiVersionsRequest, api_versions.ApiVersionsResponse)

    by_key: ClassVar[dict[int, Api]] = {}


API.by_key.update({row.key: row for row in vars(API).values() if isinstance(row, Api)})
