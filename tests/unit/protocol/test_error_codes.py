"""Counts of the error codes in responses."""

from __future__ import annotations

from collections import defaultdict

from felice.protocol.api import API
from felice.protocol.codec import encode_element
from felice.protocol.error_codes import compile_error_counter
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from felice.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from felice.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)


def counted(response: object) -> dict[int, int]:
    found: dict[int, int] = defaultdict(int)
    compile_error_counter(type(response))(response, found)
    return dict(found)


def topic(*codes: int) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE, partitions=[MetadataResponsePartition(error_code=code) for code in codes]
    )


def test_every_level_counts() -> None:
    # NONE: the response, two topics, one partition.
    assert counted(MetadataResponse(topics=[topic(0, 5), topic(5)])) == {0: 4, 5: 2}


def test_a_row_that_was_encoded_in_advance_is_skipped() -> None:
    encoded = encode_element(topic(5), MetadataResponse, 5)
    assert counted(MetadataResponse(topics=[encoded, topic()])) == {0: 2}


def test_errors_of_partitions_count_where_they_have_a_name_of_their_own() -> None:
    partition = AddPartitionsToTxnPartitionResult(partition_error_code=ErrorCode.INVALID_TXN_STATE)
    topics = [AddPartitionsToTxnTopicResult(name="t", results_by_partition=[partition])]
    of_transaction = AddPartitionsToTxnResult(transactional_id="x", topic_results=topics)
    found = counted(AddPartitionsToTxnResponse(results_by_transaction=[of_transaction]))
    assert found[ErrorCode.INVALID_TXN_STATE] == 1


def test_the_error_of_a_topics_configuration_does_not_count_as_in_kafka() -> None:
    row = CreatableTopicResult(name="t", error_code=0, topic_config_error_code=29, configs=None)
    assert counted(CreateTopicsResponse(topics=[row])) == {0: 1}


def test_every_response_can_be_counted() -> None:
    for api in API.by_key.values():
        assert isinstance(counted(api.response()), dict)
