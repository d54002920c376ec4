from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from felice.pipelines.spark import kafka_options
from felice.pipelines.spark.kafka_options import SINK_KEYS, SOURCE_KEYS, kafka_settings
from felice.pipelines.spark.mistakes import OptionError
from felice.pipelines.spark.options import (
    AtOffsets,
    AtTimestamp,
    AtTimestamps,
    Earliest,
    Latest,
    SinkOptions,
    SourceOptions,
)

BASE = {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "flights"}


def source(**more: str) -> SourceOptions:
    return SourceOptions.parse(BASE | more)


def test_names_come_in_any_case() -> None:
    assert SourceOptions.parse({"KAFKA.Bootstrap.Servers": "h:1", "SUBSCRIBE": "a"}).subscription.topics == (
        "a",
    )


OF_A_TABLE = {
    "provider": "felice",
    "owner": "root",
    "comment": "flights of today",
    "team": "a property of the user",
    "option.kafka.bootstrap.servers": "h:1",
    "option.subscribe": "a",
}


@pytest.mark.parametrize(
    "twice",
    [
        {},
        {"kafka.bootstrap.servers": "h:1", "subscribe": "a"},
        {"startingOffsets": "earliest", "failOnDataLoss": "false"},
    ],
)
def test_the_options_of_create_table_are_taken_and_its_properties_left(twice: dict[str, str]) -> None:
    found = SourceOptions.parse(OF_A_TABLE | twice)
    assert (found.subscription.topics, found.client.bootstrap_servers) == (("a",), "h:1")
    assert found.fail_on_data_loss == ("failOnDataLoss" not in twice)
    sink = {
        "provider": "felice",
        "owner": "root",
        "option.kafka.bootstrap.servers": "h:1",
        "option.topic": "out",
    }
    assert SinkOptions.parse(sink).topic == "out"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"option.subscripe": "a", "subscripe": "a"}, "'subscripe': unknown; did you mean subscribe"),
        ({"location": "/tmp/x", "option.path": "/tmp/x"}, "'location': topics have no path"),
        ({"option.startingOffsets": "first"}, "'startingOffsets'"),
    ],
)
def test_a_wrong_option_of_create_table_is_refused_by_its_name(more: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        SourceOptions.parse(OF_A_TABLE | more)


@pytest.mark.parametrize("parse", [SourceOptions.parse, SinkOptions.parse])
def test_no_options_at_all_may_be_those_of_a_table(parse: Any) -> None:
    with pytest.raises(OptionError, match="CREATE TEMPORARY VIEW name USING felice") as raised:
        parse({})
    assert "\n" not in str(raised.value)


def test_provider_alone_is_no_table() -> None:
    with pytest.raises(OptionError, match="'provider': unknown"):
        source(provider="felice")


def test_several_topics_are_subscribed_once_each() -> None:
    assert source(subscribe="b, a,b").subscription.topics == ("b", "a")


@pytest.mark.parametrize(
    ("pattern", "found", "not_found"),
    [
        ("fl.*s", ["flights", "my-flights", "flights-2"], ["flight", "Flights"]),
        ("^fl", ["flights"], ["my-flights"]),
        ("s$", ["my-flights"], ["flights-2"]),
        ("^flights$", ["flights"], ["my-flights", "flights-2"]),
        ("a|b", ["xa", "bx"], ["c"]),
        ("(?i)FL", ["my-flights"], ["x"]),
        ("^(?!my)", ["flights"], ["my-flights"]),
        (r"(.)\1", ["aab", "xbb"], ["abab"]),
    ],
)
def test_a_pattern_is_found_anywhere_in_a_name(pattern: str, found: list[str], not_found: list[str]) -> None:
    given = {"kafka.bootstrap.servers": "h:1", "subscribePattern": pattern}
    subscription = SourceOptions.parse(given).subscription
    assert all(map(subscription.matches, found))
    assert not any(map(subscription.matches, not_found))


def test_assigned_partitions_are_subscribed() -> None:
    given = {"kafka.bootstrap.servers": "h:1", "assign": '{"a":[1,0]}'}
    assert SourceOptions.parse(given).subscription.partitions == (("a", 0), ("a", 1))


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"subscribe": "a", "assign": '{"a":[0]}'},
        {"subscribe": "a", "subscribePattern": "a"},
    ],
)
def test_exactly_one_way_to_name_topics(given: dict[str, str]) -> None:
    with pytest.raises(OptionError, match="exactly one of"):
        SourceOptions.parse({"kafka.bootstrap.servers": "h:1"} | given)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("subscribed", "a", "did you mean subscribe"),
        ("path", "/tmp", "topics have no path"),
        ("colour", "red", "unknown; known are"),
        ("startingOffsets", "first", "not JSON"),
        ("startingOffsets", "", "is empty"),
        ("startingTimestamp", "noon", "whole number"),
        ("startingOffsetsByTimestampStrategy", "guess", "one of error, latest"),
        ("maxOffsetsPerTrigger", "0", "at least 1"),
        ("maxOffsetsPerTrigger", "many", "whole number"),
        ("minPartitions", "-1", "at least 1"),
        ("maxTriggerDelay", "soon", "duration"),
        ("failOnDataLoss", "perhaps", "one of true, false"),
        ("kafka.auto.offset.reset", "latest", "use startingOffsets"),
        ("kafka.enable.auto.commit", "true", "checkpoint"),
        ("kafka.key.deserializer", "x", "always bytes"),
        ("kafka.fetch.min.byte", "1", "did you mean kafka.fetch.min.bytes"),
        ("kafka.colour", "red", "unknown to Kafka's clients"),
        ("kafka.acks", "all", "belongs to Kafka's producer"),
        ("kafka.sasl.mechanism", "GSSAPI", "expected one of PLAIN"),
        ("kafka.sasl.kerberos.service.name", "x", "not supported by this client"),
        ("kafka.security.protocol", "SASL_SSL", "sasl.mechanism"),
        ("kafka.exclude.internal.topics", "false", "by name"),
        ("kafka.fetch.max.wait.ms", "soon", "option 'kafka.fetch.max.wait.ms': expected a whole number"),
        ("kafka.bootstrap.servers", "h:x", "option 'kafka.bootstrap.servers': 'h:x' is not host:port"),
        ("maxTriggerDelay", "5s", "no effect without minOffsetsPerTrigger"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(name: str, value: str, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        source(**{name: value})


def test_a_broker_is_required() -> None:
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers"):
        SourceOptions.parse({"subscribe": "a"})


def test_a_pattern_that_is_none_is_refused() -> None:
    with pytest.raises(OptionError, match="not a regular expression"):
        SourceOptions.parse({"kafka.bootstrap.servers": "h:1", "subscribePattern": "("})


def test_a_batch_reads_everything_unless_told_otherwise() -> None:
    assert source().for_batch() == (Earliest(), Latest())


def test_a_stream_starts_at_the_end_by_default() -> None:
    assert source().for_stream() == Latest()


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("startingOffsets", "Earliest", Earliest()),
        ("startingOffsets", '{"flights":{"0":3,"1":-2}}', AtOffsets({("flights", 0): 3, ("flights", 1): -2})),
        ("startingTimestamp", "1000", AtTimestamp(1000)),
        ("startingOffsetsByTimestamp", '{"flights":{"0":1000}}', AtTimestamps({("flights", 0): 1000})),
    ],
)
def test_where_a_query_starts(name: str, value: str, expected: object) -> None:
    assert source(**{name: value}).for_batch()[0] == expected
    assert source(**{name: value}).for_stream() == expected


def test_a_timestamp_for_all_beats_offsets_by_timestamp_beats_offsets() -> None:
    by_partition = {"startingOffsetsByTimestamp": '{"flights":{"0":1000}}', "startingOffsets": "earliest"}
    assert source(**by_partition).for_stream() == AtTimestamps({("flights", 0): 1000})
    assert source(**by_partition, startingTimestamp="7").for_stream() == AtTimestamp(7)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("startingOffsets", "latest"),
        ("startingOffsets", '{"flights":{"0":-1}}'),
        ("endingOffsets", "earliest"),
        ("endingOffsets", '{"flights":{"0":-2}}'),
        ("maxOffsetsPerTrigger", "5"),
        ("minOffsetsPerTrigger", "5"),
    ],
)
def test_a_batch_refuses_what_only_a_stream_can(name: str, value: str) -> None:
    with pytest.raises(OptionError, match=name):
        source(**{name: value}).for_batch()


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_refuses_an_end(name: str) -> None:
    value = {"endingOffsets": "latest", "endingTimestamp": "5"}.get(name, '{"flights":{"0":5}}')
    with pytest.raises(OptionError, match="has no end"):
        source(**{name: value}).for_stream()


@pytest.mark.parametrize(
    ("text", "milliseconds"), [("15m", 900_000), ("2 h", 7_200_000), ("250ms", 250), ("7", 7), ("3s", 3000)]
)
def test_durations_as_spark_writes_them(text: str, milliseconds: int) -> None:
    assert source(maxTriggerDelay=text, minOffsetsPerTrigger="9").max_trigger_delay_ms == milliseconds


def test_the_least_of_a_batch_may_not_exceed_the_most() -> None:
    with pytest.raises(OptionError, match="more than maxOffsetsPerTrigger"):
        source(minOffsetsPerTrigger="6", maxOffsetsPerTrigger="5")


@pytest.mark.parametrize(
    ("given", "client_id"),
    [
        ({}, "felice-spark-source"),
        ({"groupIdPrefix": "team-a"}, "team-a-source"),
        ({"kafka.group.id": "team-b"}, "team-b"),
        ({"kafka.client.id": "mine", "kafka.group.id": "team-b"}, "mine"),
    ],
)
def test_a_group_name_is_what_brokers_see_of_a_reader(given: dict[str, str], client_id: str) -> None:
    assert source(**given).client.client_id == client_id


def test_two_group_names_are_one_too_many() -> None:
    with pytest.raises(OptionError, match="one of the two"):
        source(**{"groupIdPrefix": "a", "kafka.group.id": "b"})


def test_a_reader_sees_uncommitted_records_unless_told_otherwise_as_javas_do() -> None:
    assert source().client.isolation_level == 0
    assert source(**{"kafka.isolation.level": "read_committed"}).client.isolation_level == 1


def test_what_the_client_is_told_reaches_it() -> None:
    options = source(
        **{
            "kafka.request.timeout.ms": "7000",
            "kafka.fetch.max.bytes": "1000",
            "kafka.max.partition.fetch.bytes": "500",
            "kafka.fetch.max.wait.ms": "20",
            "kafka.metadata.max.age.ms": "1500",
            "kafka.client.rack": "r1",
            "kafkaConsumer.pollTimeoutMs": "9000",
        }
    )
    client = options.client
    assert (client.request_timeout_ms, client.fetch_max_bytes, client.partition_max_bytes) == (
        7000,
        1000,
        500,
    )
    assert (client.fetch_max_wait_ms, client.client_rack, client.retry_timeout_ms) == (20, "r1", 9000)
    assert (options.topics_good_for_s, client.metadata_max_age_ms) == (1.5, 1500)


def test_a_batch_refuses_the_delay_of_a_stream() -> None:
    with pytest.raises(OptionError, match="maxTriggerDelay"):
        replace(source(), max_trigger_delay_ms=5).for_batch()


@pytest.mark.parametrize(
    "name", ["kafka.session.timeout.ms", "kafka.max.poll.records", "kafka.retry.backoff.ms"]
)
def test_a_key_that_only_tunes_javas_clients_is_accepted_with_one_warning(
    name: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_options, "_warned", set())
    assert source(**{name: "5"}) == source() == source(**{name: "x"})
    assert [record.getMessage() for record in caplog.records] == [
        f"option '{name}' is accepted, but has no effect here"
    ]


def test_no_key_is_both_honoured_and_something_else() -> None:
    for keys in (SOURCE_KEYS, SINK_KEYS):
        assert not keys.honoured & keys.without_effect
        assert not keys.refused.keys() & (keys.honoured | keys.without_effect)


def test_every_honoured_key_is_the_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {
        "bootstrap.servers": "h:1",
        "isolation.level": "read_committed",
        "security.protocol": "PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.mechanisms": "PLAIN",
        "ssl.endpoint.identification.algorithm": "none",
        "enable.ssl.certificate.verification": "false",
    }
    values |= {
        "compression.type": "lz4",
        "compression.codec": "lz4",
        "acks": "1",
        "request.required.acks": "1",
    }
    for keys in (SOURCE_KEYS, SINK_KEYS):
        for name in keys.honoured:
            given = {"bootstrap.servers": "h:1", name: values.get(name, "7")}
            assert kafka_settings(given, keys).bootstrap_servers == "h:1"


def test_the_sink_takes_a_topic_and_what_the_producer_takes() -> None:
    options = SinkOptions.parse(
        {
            "kafka.bootstrap.servers": "h:1",
            "topic": "out",
            "kafka.acks": "1",
            "kafka.compression.type": "zstd",
            "kafka.compression.level": "3",
            "kafka.batch.size": "5000",
            "kafka.delivery.timeout.ms": "2500",
            "checkpointLocation": "/tmp/c",
            "queryName": "q",
        }
    )
    assert (options.topic, options.acks, options.batch_bytes) == ("out", 1, 5000)
    assert (options.codec.name, options.compression_level) == ("ZSTD", 3)
    assert options.client.retry_timeout_ms == 2500


def test_the_sink_waits_for_all_replicas_unless_told_otherwise() -> None:
    assert SinkOptions.parse({"kafka.bootstrap.servers": "h:1"}).acks == -1


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("subscribe", "unknown"),
        ("topics", "did you mean topic"),
        ("kafka.value.serializer", "always bytes"),
        ("kafka.transactional.id", "each task"),
        ("kafka.group.id", "belongs to Kafka's consumer"),
        ("kafka.partitioner.class", "column 'partition'"),
    ],
)
def test_the_sink_refuses_by_name_too(name: str, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        SinkOptions.parse({"kafka.bootstrap.servers": "h:1", name: "x"})
