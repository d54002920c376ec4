"""Version negotiation on a connection: which versions both sides know, and which one a request uses.

Keeps true:  A request is sent in the highest version that both sides know and the caller allows. Without such a version
             it is not sent, and the error names the API and both ranges. A broker that does not know our version of
             ApiVersions is asked again in a version that it knows (KIP-511).
The asyncio connection and the blocking one both use this module. Framing is in `protocol.connection`.
"""

from __future__ import annotations

from collections.abc import Callable

from felice.client.error import KafkaError, failure
from felice.dataclass import dataclass
from felice.protocol.api import API, Api
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from felice.protocol.schema import schema_of

API_VERSIONS_KEY = 18
SOFTWARE_NAME = "felice"
SOFTWARE_VERSION = "0.1.0"

# A larger frame size is an error: the peer does not speak Kafka's protocol, or the framing is out of step.
MAX_FRAME_BYTES = 1 << 30


def api_of(request_type: type) -> Api:
    """Return the API of a request class."""
    return API.by_key[schema_of(request_type).api_key]


@dataclass(frozen=True, slots=True)
class ByVersion:
    """A request whose content depends on its version: `build` gets the version, which is at most `cap`."""

    request_type: type
    build: Callable[[int], object]
    cap: int | None = None


# The first words of the APIs that change nothing, or nothing that matters if it happens twice.
_QUESTIONS = ("ApiVersions", "Describe", "Find", "InitProducerId", "List", "Metadata")


def changes_nothing(request: object) -> bool:
    """True if a request, or a `ByVersion`, may reach several brokers without harm."""
    kind = request.request_type if isinstance(request, ByVersion) else type(request)
    return api_of(kind).name.startswith(_QUESTIONS)


class BrokerVersions:
    """The version ranges that a broker offers, and the finalized features of its cluster."""

    def __init__(self, response: ApiVersionsResponse | None = None) -> None:
        rows = response.api_keys if response is not None else []
        self.ranges = {row.api_key: (row.min_version, row.max_version) for row in rows}
        settled = response is not None and response.finalized_features_epoch >= 0
        features = response.finalized_features if response is not None and settled else []
        self.features = {row.name: row.max_version_level for row in features}

    def choose(self, api: Api, cap: int | None = None) -> int:
        """Return the highest version that both sides know, at most `cap`; raises if there is none."""
        ours = api.versions
        low, high = ours.min, ours.max if cap is None else min(ours.max, cap)
        theirs = self.ranges.get(api.key)
        if theirs is None:
            raise failure(KafkaError._UNSUPPORTED_FEATURE, f"the broker does not offer {api.name}")
        version = min(high, theirs[1])
        if version < max(low, theirs[0]):
            raise failure(
                KafkaError._UNSUPPORTED_FEATURE,
                f"{api.name}: this client can speak versions {low}-{high}, the broker {theirs[0]}-{theirs[1]}",
            )
        return version

    def fit(self, request: object) -> tuple[object, int]:
        """Return the request to send and its version, for a plain request or a `ByVersion`."""
        if not isinstance(request, ByVersion):
            return request, self.choose(api_of(type(request)))
        version = self.choose(api_of(request.request_type), request.cap)
        return request.build(version), version

    def supports(self, request_type: type, version: int) -> bool:
        """True if this client and the broker both support `version` of this API."""
        low, high = self.ranges.get(api_of(request_type).key, (0, -1))
        return low <= version <= high and version in api_of(request_type).versions


def api_versions_request() -> ApiVersionsRequest:
    """An ApiVersions request that names this client."""
    return ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=SOFTWARE_VERSION)


def version_to_retry(response: ApiVersionsResponse, tried: int) -> int | None:
    """Return the version of ApiVersions to try next after a refusal; None if `response` is the answer."""
    if response.error_code == ErrorCode.NONE:
        return None
    if response.error_code != ErrorCode.UNSUPPORTED_VERSION or tried == 0:
        raise failure(response.error_code, "the broker refused ApiVersions")
    offered = [row.max_version for row in response.api_keys if row.api_key == API_VERSIONS_KEY]
    return min(offered[0], tried - 1) if offered else 0
