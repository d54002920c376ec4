"""The table of APIs."""

from felice.protocol.api import API
from felice.protocol.codec import decode, encode
from felice.protocol.errors import ErrorCode
from felice.protocol.schema import Versions, schema_of


def test_request_and_response_of_an_api_belong_together() -> None:
    for key, api in API.by_key.items():
        request, response = schema_of(api.request), schema_of(api.response)
        assert request.api_key == response.api_key == api.key == key
        assert (request.kind, response.kind) == ("request", "response")
        assert request.versions == response.versions == api.versions
        assert request.flexible == response.flexible
        assert list(api.flexible) == list(range(request.flexible.min, request.flexible.max + 1))
        assert (request.name, response.name) == (f"{api.name}Request", f"{api.name}Response")


def test_advertised_and_declared_versions_differ_for_two_apis_only() -> None:
    different = {api.name: api.advertised for api in API.by_key.values() if api.advertised != api.versions}
    assert different == {
        "Produce": Versions(0, 13),
        "InitProducerId": Versions(0, 5),
    }


def test_only_versions_both_advertised_and_declared_are_accepted() -> None:
    assert API.PRODUCE.accepted == range(3, 14)
    assert API.INIT_PRODUCER_ID.accepted == range(6)


def test_each_version_with_an_error_of_its_own_can_be_refused() -> None:
    for api in API.by_key.values():
        for version in filter(api.has_error, api.accepted):
            refused = decode(
                api.response, encode(api.refusal(ErrorCode.ILLEGAL_SASL_STATE), version), version
            )
            assert refused.error_code == ErrorCode.ILLEGAL_SASL_STATE, (api, version)


def test_api_without_flexible_versions_has_old_headers() -> None:
    assert not API.OFFSET_DELETE.flexible
    assert API.OFFSET_DELETE.request_header_version(0) == 1
    assert API.OFFSET_DELETE.response_header_version(0) == 0
