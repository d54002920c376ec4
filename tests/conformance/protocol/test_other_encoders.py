"""Compares our bytes with those of kafka-python and aiokafka, in both directions."""

import importlib
import io
import pkgutil
from functools import cache
from typing import Any

import pytest

from felice.protocol.api import API
from felice.protocol.codec import decode, encode, encode_data
from felice.protocol.frames import (
    decode_correlation_id,
    decode_request_header,
    encode_request,
    encode_response,
)
from felice.protocol.messages.consumer_protocol import (
    AssignedTopic,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from felice.protocol.schema import FIRST_OWN_TAG, Field, schema_of
from properties.protocol.catalogue import API_CLASSES, DATA_CLASSES, name_of, sample

kafka_protocol = pytest.importorskip("kafka.protocol", reason="kafka-python is not installed")
aiokafka_protocol = pytest.importorskip("aiokafka.protocol", reason="aiokafka is not installed")

BIT_FIELD = "authorized_operations"
"""What kafka-python calls every such field that it shows as a set of bits."""

UNKNOWN_TO_KAFKA_PYTHON = {
    "AlterShareGroupOffsets",
    "ConsumerGroupDescribe",
    "ConsumerGroupHeartbeat",
    "CreateDelegationToken",
    "DeleteShareGroupOffsets",
    "DeleteShareGroupState",
    "DescribeDelegationToken",
    "DescribeShareGroupOffsets",
    "ExpireDelegationToken",
    "GetTelemetrySubscriptions",
    "InitializeShareGroupState",
    "PushTelemetry",
    "ReadShareGroupState",
    "ReadShareGroupStateSummary",
    "RenewDelegationToken",
    "ShareAcknowledge",
    "ShareFetch",
    "ShareGroupDescribe",
    "ShareGroupHeartbeat",
    "StreamsGroupDescribe",
    "StreamsGroupHeartbeat",
    "WriteShareGroupState",
}
APIS_OF_KAFKA_PYTHON = [api for api in API.by_key.values() if api.name not in UNKNOWN_TO_KAFKA_PYTHON]


@cache
def kafka_python_classes() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for module in pkgutil.walk_packages(kafka_protocol.__path__, "kafka.protocol."):
        if ".old" not in module.name and "generate" not in module.name:
            found |= vars(importlib.import_module(module.name))
    return found


def theirs(cls: Any, message: Any, version: int) -> Any:
    """The same message as an object of kafka-python."""
    values = {}
    for field in schema_of(type(message)).fields:
        if version in field.versions and not _is_own(field):
            name = field.name if field.name in cls.fields else BIT_FIELD
            values[name] = _their_value(cls.fields[name], getattr(message, field.name), name, version)
    return cls(version=version, **values)


def _is_own(field: Field) -> bool:
    return field.tag is not None and field.tag >= FIRST_OWN_TAG


def shared_sample(cls: type[Any], version: int) -> Any:
    """A sample without the tagged fields that Kafka does not define."""
    return _without_own(sample(cls, version))


def _without_own(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_own(item) for item in value]
    if not hasattr(value, "__schema__"):
        return value
    fields = schema_of(type(value)).fields
    kept = {field.name: _without_own(getattr(value, field.name)) for field in fields if not _is_own(field)}
    return type(value)(**kept)


def _their_value(field: Any, value: Any, name: str, version: int) -> Any:
    if name == BIT_FIELD:
        return {bit for bit in range(32) if value >> bit & 1}
    if isinstance(value, list):
        return [_their_value(field, item, name, version) for item in value]
    return theirs(field.data_class, value, version) if hasattr(value, "__schema__") else value


def pairs() -> list[tuple[type[Any], int]]:
    known = kafka_python_classes()
    return [
        (cls, version)
        for cls in API_CLASSES + DATA_CLASSES
        if cls.__name__ in known
        for version in schema_of(cls).versions
        if version <= known[cls.__name__].max_version
    ]


def test_kafka_python_knows_most_of_our_apis() -> None:
    known = kafka_python_classes()
    assert {
        api.name for api in API.by_key.values() if api.request.__name__ not in known
    } == UNKNOWN_TO_KAFKA_PYTHON
    assert len(pairs()) > 300


@pytest.mark.parametrize(("cls", "version"), pairs(), ids=name_of)
def test_kafka_python_writes_the_same_bytes_and_we_read_them(cls: type[Any], version: int) -> None:
    message = shared_sample(cls, version)
    other = theirs(kafka_python_classes()[cls.__name__], message, version)
    options = {"header": False} if cls in DATA_CLASSES else {}
    written = other.encode(version=version, **options)
    assert encode(message, version) == written
    assert decode(cls, written, version) == message


@pytest.mark.parametrize("api", APIS_OF_KAFKA_PYTHON, ids=lambda api: api.name)
def test_kafka_python_writes_the_same_headers(api: Any) -> None:
    known = kafka_python_classes()
    # A version that is not offered is not read past its header.
    for version in api.versions & api.advertised:
        message = shared_sample(api.request, version)
        other = theirs(known[api.request.__name__], message, version)
        other.with_header(correlation_id=77, client_id="wer ißt")
        frame = other.encode(version=version, header=True, framed=True)
        assert encode_request(api.key, version, 77, "wer ißt", message) == frame
        header, position = decode_request_header(frame[4:])
        assert (header.api_key, header.api_version, header.correlation_id) == (api.key, version, 77)
        assert header.client_id == "wer ißt"
        assert decode(api.request, frame[4:], version, position) == message


@pytest.mark.parametrize("api", APIS_OF_KAFKA_PYTHON, ids=lambda api: api.name)
def test_kafka_python_writes_the_same_response_headers(api: Any) -> None:
    known = kafka_python_classes()
    for version in api.versions:
        message = shared_sample(api.response, version)
        other = theirs(known[api.response.__name__], message, version)
        other.with_header(correlation_id=78)
        frame = other.encode(header=True, framed=True)
        assert encode_response(api.key, version, 78, message) == frame
        assert decode_correlation_id(frame[4:]) == 78


def aiokafka_requests() -> list[tuple[str, int, tuple[Any, ...], Any]]:
    """Requests of aiokafka with the messages that they mean: (class, version, arguments, our message)."""
    from felice.protocol.messages import fetch, join_group, list_offsets, metadata, produce

    return [
        (
            "metadata.MetadataRequest",
            1,
            (["a", "b"],),
            metadata.MetadataRequest(
                topics=[metadata.MetadataRequestTopic(name="a"), metadata.MetadataRequestTopic(name="b")]
            ),
        ),
        (
            "metadata.MetadataRequest",
            5,
            (None, False),
            metadata.MetadataRequest(topics=None, allow_auto_topic_creation=False),
        ),
        (
            "produce.ProduceRequest",
            7,
            (None, -1, 500, [("t", [(3, b"batch")])]),
            produce.ProduceRequest(
                acks=-1,
                timeout_ms=500,
                topic_data=[
                    produce.TopicProduceData(
                        name="t", partition_data=[produce.PartitionProduceData(index=3, records=b"batch")]
                    )
                ],
            ),
        ),
        (
            "fetch.FetchRequest",
            4,
            (-1, 500, 1, 9000, 1, [("t", [(0, 77, 1000)])]),
            fetch.FetchRequest(
                max_wait_ms=500,
                min_bytes=1,
                max_bytes=9000,
                isolation_level=1,
                topics=[
                    fetch.FetchTopic(
                        topic="t",
                        partitions=[fetch.FetchPartition(fetch_offset=77, partition_max_bytes=1000)],
                    )
                ],
            ),
        ),
        (
            "offset.OffsetRequest",
            3,
            (-1, 0, [("t", [(2, -1)])]),
            list_offsets.ListOffsetsRequest(
                replica_id=-1,
                topics=[
                    list_offsets.ListOffsetsTopic(
                        name="t",
                        partitions=[list_offsets.ListOffsetsPartition(partition_index=2, timestamp=-1)],
                    )
                ],
            ),
        ),
        (
            "group.JoinGroupRequest",
            2,
            ("g", 10, 20, "m", "consumer", [("range", b"s")]),
            join_group.JoinGroupRequest(
                group_id="g",
                session_timeout_ms=10,
                rebalance_timeout_ms=20,
                member_id="m",
                protocol_type="consumer",
                protocols=[join_group.JoinGroupRequestProtocol(name="range", metadata=b"s")],
            ),
        ),
    ]


@pytest.mark.parametrize(("path", "version", "arguments", "ours"), aiokafka_requests(), ids=name_of)
def test_aiokafka_requests_are_read(path: str, version: int, arguments: tuple[Any, ...], ours: Any) -> None:
    module, name = path.split(".")
    cls = getattr(importlib.import_module(f"aiokafka.protocol.{module}"), f"{name}_v{version}")
    written = cls(*arguments).encode()
    assert decode(type(ours), written, version) == ours
    assert encode(ours, version) == written


def test_aiokafka_reads_our_consumer_protocol() -> None:
    from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata

    subscription = encode_data(ConsumerProtocolSubscription(topics=["a", "b"], user_data=b"u"), 0)
    assert ConsumerProtocolMemberMetadata.decode(io.BytesIO(subscription)).subscription == ["a", "b"]
    assigned = [AssignedTopic(topic="a", partitions=[1, 2])]
    assignment = encode_data(ConsumerProtocolAssignment(assigned_partitions=assigned), 0)
    assert ConsumerProtocolMemberAssignment.decode(io.BytesIO(assignment)).assignment == [("a", [1, 2])]
