"""Values that applications create themselves equal confluent_kafka's values from the same calls."""

import uuid
from typing import Any

import confluent_kafka
import pytest

import felice.client
from felice.client import Message, Uuid

BOTH = pytest.mark.parametrize("kafka", [felice.client, confluent_kafka], ids=["felice", "confluent"])


def facts(message: Any) -> tuple[Any, ...]:
    return (
        message.topic(),
        message.partition(),
        message.offset(),
        message.key(),
        message.value(),
        message.headers(),
        message.timestamp(),
        message.error(),
        message.latency(),
        message.leader_epoch(),
        len(message),
    )


@BOTH
def test_message_without_arguments_is_empty(kafka: Any) -> None:
    assert facts(kafka.Message()) == (None, None, None, None, None, None, (0, 0), None, None, None, 0)


@BOTH
def test_message_has_its_constructor_arguments_and_set_values(kafka: Any) -> None:
    message = kafka.Message("t", 2, 0, b"k", b"value", [("h", b"x")], None, (1, 55), 0.5, 7)
    assert facts(message) == ("t", 2, 0, b"k", b"value", [("h", b"x")], (1, 55), None, 0.5, 7, 5)
    error = kafka.KafkaError(kafka.KafkaError._TIMED_OUT)
    message.set_topic("u")
    message.set_key(b"other")
    message.set_value("object")
    message.set_headers([("g", None)])
    message.set_error(error)
    assert (message.topic(), message.key(), message.value(), message.headers()) == (
        "u",
        b"other",
        "object",
        [("g", None)],
    )
    assert message.error() == error
    with pytest.raises(TypeError, match="timestamp"):
        kafka.Message("t", timestamp=5)


def test_set_topic_changes_one_message_only() -> None:
    message = Message("t", 0, 1)
    neighbour = Message("t", 0, 2)
    neighbour._origin = message._origin
    message.set_topic("u")
    assert neighbour.topic() == "t"


@BOTH
def test_ids_are_made_of_two_halves(kafka: Any) -> None:
    value = kafka.Uuid(1, -2)
    # librdkafka writes ids in plain base64, Java and its tools in URL-safe base64.
    assert str(value).replace("/", "_") == "AAAAAAAAAAH__________g"
    assert (value.get_most_significant_bits(), value.get_least_significant_bits()) == (1, -2)


def test_ids_are_written_as_kafkas_tools_write_them() -> None:
    assert str(Uuid(1, -2)) == repr(Uuid(1, -2)) == "AAAAAAAAAAH__________g"


def test_ids_are_equal_by_their_value() -> None:
    assert Uuid(1, -2) == Uuid(1, -2) != Uuid(1, 2) and len({Uuid(1, 2), Uuid(1, 2)}) == 1


def test_id_of_the_protocol_keeps_its_bytes() -> None:
    value = uuid.uuid4()
    assert Uuid.of(value).bytes == value.bytes


@BOTH
def test_hashes_give_a_key_its_partition(kafka: Any) -> None:
    keys = [b"", b"a", b"user_12345", bytes(range(256))]
    found = [(kafka.murmur2(key, 7), kafka.consistent(key, 7)) for key in keys]
    assert found == [(confluent_kafka.murmur2(key, 7), confluent_kafka.consistent(key, 7)) for key in keys]
    for function in (kafka.murmur2, kafka.consistent, kafka.fnv1a):
        with pytest.raises(ValueError):
            function(b"a", 0)
        with pytest.raises(TypeError):
            function("a", 1)
    assert kafka.fnv1a(b"user_12345", 7) == confluent_kafka.fnv1a(b"user_12345", 7)


@BOTH
def test_errors_compare_by_their_codes(kafka: Any) -> None:
    low, high = kafka.KafkaError(3), kafka.KafkaError(5)
    assert low < high and high > low and low <= 3 and low == 3 and high >= 4
    assert sorted([high, low]) == [low, high]
