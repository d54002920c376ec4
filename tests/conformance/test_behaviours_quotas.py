"""Client quotas: how they are set, and how clients notice them. Apache Kafka passes this module, too."""

import time
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest

from conformance.targets import Target
from conformance.topics import REQUEST_TIMEOUT_MS, new_topic, wait_until
from conformance.wire import Wire, unique_name
from felice.protocol.errors import ErrorCode
from felice.protocol.messages import alter_client_quotas
from felice.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, OpData
from felice.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from felice.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from felice.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from felice.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    EntityData,
    MatchType,
)
from felice.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from felice.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from felice.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from felice.records.builder import BatchBuilder

INVALID, UNSUPPORTED, EXCEEDED = (
    ErrorCode.INVALID_REQUEST,
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
)
DEFAULT = None
Name = str | None


def alter(wire: Wire, *entity: tuple[str, Name], validate_only: bool = False, **changes: float | None) -> Any:
    """Sets quotas, and removes those that are None; returns the result."""
    parts = [EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
    ops = [
        OpData(key=key, value=0.0 if value is None else value, remove=value is None)
        for key, value in changes.items()
    ]
    entry = alter_client_quotas.EntryData(entity=parts, ops=ops)
    asked = AlterClientQuotasRequest(entries=[entry], validate_only=validate_only)
    (row,) = wire.ask(asked).entries
    return row


def describe(wire: Wire, *components: tuple[str, int, Name], strict: bool = False) -> Any:
    parts = [ComponentData(entity_type=kind, match_type=how, match=name) for kind, how, name in components]
    return wire.ask(DescribeClientQuotasRequest(components=parts, strict=strict))


def quotas(response: Any) -> dict[frozenset[tuple[str, Name]], dict[str, float]]:
    return {
        frozenset((part.entity_type, part.entity_name) for part in entry.entity): {
            value.key: value.value for value in entry.values
        }
        for entry in response.entries
    }


class Limited:
    """A client id with its own quotas, which are removed at the end."""

    def __init__(self, broker: Target, wire: Wire) -> None:
        self._broker = broker
        self._wire = wire
        self._set: list[tuple[str, tuple[str, ...]]] = []

    def client(self, **limits: float) -> str:
        name = unique_name("limited")
        assert alter(self._wire, ("client-id", name), **limits).error_code == 0
        self._set.append((name, tuple(limits)))
        wait_until(
            lambda: (
                frozenset({("client-id", name)})
                in quotas(describe(self._wire, ("client-id", MatchType.EXACT, name)))
            )
        )
        time.sleep(0.5)  # Apache Kafka applies a quota a moment after it shows it
        return name

    def close(self) -> None:
        for name, limits in self._set:
            alter(self._wire, ("client-id", name), **dict.fromkeys(limits))


@pytest.fixture
def limited(broker: Target, wire: Wire) -> Iterator[Limited]:
    made = Limited(broker, wire)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("entity", "changes"),
    [
        ((("user", "a"),), {"producer_byte_rate": 0.0}),
        ((("user", "a"),), {"producer_byte_rate": -1.0}),
        ((("user", "a"),), {"producer_byte_rate": 1.5}),
        ((("user", "a"),), {"producer_byte_rate": 1e300}),
        ((("user", "a"),), {"request_percentage": 0.0}),
        ((("user", "a"),), {"no_such_quota": 1.0}),
        ((("user", "a"),), {"connection_creation_rate": 1.0}),
        ((("ip", "127.0.0.1"),), {"producer_byte_rate": 1.0}),
        ((("ip", "127.0.0.1"),), {"connection_creation_rate": 1.5}),
        ((("ip", "127.0.0.1"),), {"connection_creation_rate": 3e9}),
        ((("ip", "not an address"),), {"connection_creation_rate": 1.0}),
        ((("ip", "127.0.0.1"), ("user", "a")), {"connection_creation_rate": 1.0}),
        ((), {"producer_byte_rate": 1.0}),
        ((("user", ""),), {"producer_byte_rate": 1.0}),
        ((("", "a"),), {"producer_byte_rate": 1.0}),
        ((("group", "a"),), {"producer_byte_rate": 1.0}),
    ],
)
def test_quotas_that_mean_nothing_are_refused(wire: Wire, entity: Any, changes: Any) -> None:
    row = alter(wire, *entity, **changes)
    assert row.error_code == INVALID
    assert row.error_message


def test_quotas_are_set_described_and_removed(wire: Wire) -> None:
    user, client = unique_name("user"), unique_name("client") + " *"
    entity = (("user", user), ("client-id", client))
    assert alter(wire, *entity, producer_byte_rate=1024.0, request_percentage=12.5).error_code == 0
    key = frozenset(entity)
    wait_until(lambda: key in quotas(describe(wire, ("user", MatchType.EXACT, user))))
    found = quotas(describe(wire, ("user", MatchType.EXACT, user)))
    assert found == {key: {"producer_byte_rate": 1024.0, "request_percentage": 12.5}}
    assert alter(wire, *entity, producer_byte_rate=None).error_code == 0
    wait_until(lambda: quotas(describe(wire))[key] == {"request_percentage": 12.5})
    assert alter(wire, *entity, request_percentage=None, no_such_quota=None).error_code == 0
    wait_until(lambda: key not in quotas(describe(wire)))


def test_validate_only_makes_no_change(wire: Wire) -> None:
    user = unique_name("user")
    assert alter(wire, ("user", user), validate_only=True, producer_byte_rate=1.0).error_code == 0
    assert alter(wire, ("user", user), validate_only=True, no_such_quota=1.0).error_code == INVALID
    time.sleep(0.5)
    assert frozenset({("user", user)}) not in quotas(describe(wire))


def test_filters_choose_by_type_name_and_default(wire: Wire) -> None:
    user = unique_name("user")
    pair, alone, default = (
        (("user", user), ("client-id", DEFAULT)),
        (("user", user),),
        (("client-id", DEFAULT),),
    )
    for entity in (pair, alone, default):
        assert alter(wire, *entity, consumer_byte_rate=1e9).error_code == 0
    wait_until(
        lambda: {frozenset(pair), frozenset(alone), frozenset(default)} <= quotas(describe(wire)).keys()
    )
    exact = ("user", MatchType.EXACT, user)
    assert quotas(describe(wire, exact)).keys() == {frozenset(pair), frozenset(alone)}
    assert quotas(describe(wire, exact, strict=True)).keys() == {frozenset(alone)}
    with_default = describe(wire, exact, ("client-id", MatchType.DEFAULT, None))
    assert quotas(with_default).keys() == {frozenset(pair)}
    any_client = quotas(describe(wire, ("client-id", MatchType.SPECIFIED, None), strict=True)).keys()
    assert frozenset(default) in any_client
    assert frozenset(pair) not in any_client
    assert quotas(describe(wire, ("client-id", MatchType.EXACT, ""))) == {}
    assert quotas(describe(wire, strict=True)) == {}
    for entity in (pair, alone, default):
        alter(wire, *entity, consumer_byte_rate=None)


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("user", MatchType.EXACT, None)], INVALID),
        ([("user", MatchType.DEFAULT, "x")], INVALID),
        ([("user", MatchType.SPECIFIED, "x")], INVALID),
        ([("user", 7, None)], INVALID),
        ([("", MatchType.EXACT, "a")], INVALID),
        ([("group", MatchType.EXACT, "a")], UNSUPPORTED),
        ([("user", MatchType.EXACT, "a"), ("user", MatchType.EXACT, "b")], INVALID),
        ([("user", MatchType.EXACT, "a"), ("ip", MatchType.EXACT, "b")], INVALID),
    ],
)
def test_filters_that_mean_nothing_are_refused(wire: Wire, components: Any, code: ErrorCode) -> None:
    found = describe(wire, *components)
    assert found.error_code == code
    assert found.entries is None


def produced(wire: Wire, topic: str, size: int, client: str, acks: int = 1) -> Any:
    builder = BatchBuilder()
    builder.append(int(time.time() * 1000), None, bytes(size))
    data = PartitionProduceData(index=0, records=builder.build())
    asked = ProduceRequest(
        acks=acks,
        timeout_ms=REQUEST_TIMEOUT_MS,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )
    wire.send(asked, 9, client)
    return None if acks == 0 else wire.receive(asked, 9)


def silence_s(wire: Wire, client: str, began_s: float) -> float:
    """How many seconds after `began_s` the broker answers the next request of the connection.

    If `began_s` is before the request that is throttled, no delay of this machine makes the result too small.
    """
    asked = MetadataRequest(topics=[])
    wire.send(asked, 9, client)
    wire.receive(asked, 9)
    return time.monotonic() - began_s


Act: TypeAlias = Callable[[Wire, str], float]


def over_quota(broker: Target, limited: Limited, within_s: float, act: Act, **limits: float) -> str:
    """Runs `act` with a new connection and a new client with these quotas; returns the client.

    `act` returns for how many seconds the broker must be silent then, at least from the beginning of `act`. On a
    machine under heavy load a quota may be free again before `act` uses it up: an error later than `within_s` repeats
    everything.
    """
    for attempt in range(10):
        client = limited.client(**limits)
        with broker.wire() as own:
            began_s = time.monotonic()
            try:
                throttle_s = act(own, client)
            except AssertionError:
                if attempt == 9 or time.monotonic() - began_s < within_s:
                    raise
                continue
            if throttle_s:
                assert silence_s(own, client, began_s) > throttle_s - 0.1
            return client
    raise AssertionError("not reached")


def test_a_producer_over_its_quota_is_told_at_once_and_then_silenced(
    broker: Target, wire: Wire, limited: Limited
) -> None:
    """14: the reply comes first, and then the broker leaves the connection unread (KIP-219)."""
    topic = new_topic(wire)

    def act(own: Wire, client: str) -> float:
        first = produced(own, topic, 60_000, client)
        assert first.throttle_time_ms == 0  # ten seconds' allowance may be used at once
        began_s = time.monotonic()
        second = produced(own, topic, 90_000, client)
        throttle_s = float(second.throttle_time_ms) / 1000
        assert time.monotonic() - began_s < throttle_s
        assert second.responses[0].partition_responses[0].error_code == 0
        assert 2 < throttle_s < 6.5
        return throttle_s

    over_quota(broker, limited, 2, act, producer_byte_rate=10_000.0)


def test_the_quota_counts_without_acknowledgements(broker: Target, wire: Wire, limited: Limited) -> None:
    topic, client = new_topic(wire), limited.client(producer_byte_rate=10_000.0)
    with broker.wire() as own:
        began_s = time.monotonic()
        produced(own, topic, 115_000, client, acks=0)
        assert silence_s(own, client, began_s) > 0.9


def test_other_clients_are_not_throttled(broker: Target, wire: Wire, limited: Limited) -> None:
    topic, client = new_topic(wire), limited.client(producer_byte_rate=1_000.0)
    with broker.wire() as own, broker.wire() as other:
        assert produced(own, topic, 60_000, client).throttle_time_ms > 10_000
        assert produced(other, topic, 60_000, "other").throttle_time_ms == 0
        assert silence_s(other, "other", time.monotonic()) < 40


def fetched(wire: Wire, topic: str, client: str, max_bytes: int = 1_000_000) -> Any:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=max_bytes)
    asked = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=max_bytes,
        topics=[FetchTopic(topic=topic, partitions=[partition])],
    )
    wire.send(asked, 11, client)
    return wire.receive(asked, 11)


def test_a_consumer_over_its_quota_gets_no_records_and_waits(
    broker: Target, wire: Wire, limited: Limited
) -> None:
    topic = new_topic(wire)
    for _ in range(10):
        produced(wire, topic, 10_000, "free")

    def act(own: Wire, client: str) -> float:
        first = fetched(own, topic, client, 40_000)
        assert first.throttle_time_ms == 0
        assert 0 < len(first.responses[0].partitions[0].records) <= 40_000
        second = fetched(own, topic, client)
        assert second.throttle_time_ms > 1_000
        assert second.responses == []
        return float(second.throttle_time_ms) / 1000

    over_quota(broker, limited, 1, act, consumer_byte_rate=5_000.0)


@pytest.mark.felice_only
def test_a_consumer_is_not_offered_more_than_it_may_have_at_once(
    broker: Target, wire: Wire, limited: Limited
) -> None:
    """Apache Kafka offers as much, counts the rest of the response too, and so lets the first fetch wait."""
    topic = new_topic(wire)
    for _ in range(10):
        produced(wire, topic, 10_000, "free")
    with broker.wire() as own:
        first = fetched(own, topic, limited.client(consumer_byte_rate=5_000.0))
        assert first.throttle_time_ms == 0
        assert 30_000 < len(first.responses[0].partitions[0].records) <= 50_000


def test_time_is_limited_for_all_requests(broker: Target, wire: Wire, limited: Limited) -> None:
    client = limited.client(request_percentage=0.000001)
    with broker.wire() as own:
        asked = MetadataRequest(topics=None)
        throttles = []
        for _ in range(3):
            own.send(asked, 9, client)
            throttles.append(own.receive(asked, 9).throttle_time_ms)
        assert 900 <= max(throttles) <= 1_000


def created(wire: Wire, client: str, version: int, *counts: int) -> Any:
    topics = [
        CreatableTopic(name=unique_name("mutated"), num_partitions=count, replication_factor=1)
        for count in counts
    ]
    asked = CreateTopicsRequest(topics=topics, timeout_ms=REQUEST_TIMEOUT_MS)
    wire.send(asked, version, client)
    return wire.receive(asked, version)


def test_changes_over_the_quota_are_refused(broker: Target, wire: Wire, limited: Limited) -> None:
    def act(own: Wire, client: str) -> float:
        # Eleven partitions may be made at once; the topic that overdraws is accepted.
        response = created(own, client, 6, 8, 8, 8)
        assert sorted(row.error_code for row in response.topics) == [0, 0, EXCEEDED]
        assert 2_000 < response.throttle_time_ms <= 5_000
        return float(response.throttle_time_ms) / 1000

    over_quota(broker, limited, 2, act, controller_mutation_rate=1.0)


def test_older_versions_wait_after_their_changes(broker: Target, wire: Wire, limited: Limited) -> None:
    def act(own: Wire, client: str) -> float:
        response = created(own, client, 5, 8, 8)
        assert [row.error_code for row in response.topics] == [0, 0]
        assert 2_000 < response.throttle_time_ms <= 5_000
        return 0

    over_quota(broker, limited, 2, act, controller_mutation_rate=1.0)


@pytest.mark.felice_only
def test_topics_that_metadata_creates_count_too(broker: Target, wire: Wire, limited: Limited) -> None:
    """They are created all the same, and the client waits after."""
    requests: list[MetadataRequest] = []

    def act(own: Wire, client: str) -> float:
        names = [MetadataRequestTopic(name=unique_name("asked")) for _ in range(14)]
        requests.append(MetadataRequest(topics=names, allow_auto_topic_creation=True))
        own.send(requests[-1], 12, client)
        response = own.receive(requests[-1], 12)
        assert 1_000 < response.throttle_time_ms <= 3_500
        return float(response.throttle_time_ms) / 1000

    client = over_quota(broker, limited, 1.5, act, controller_mutation_rate=1.0)
    asked = requests[-1]
    with broker.wire() as own:
        own.send(asked, 12, client)
        again = own.receive(asked, 12)
        assert [topic.error_code for topic in again.topics] == [0] * 14
        assert again.throttle_time_ms == 0


def test_partitions_and_deletions_count_too(broker: Target, wire: Wire, limited: Limited) -> None:
    def act(own: Wire, client: str) -> float:
        topic = new_topic(wire)
        more = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=topic, count=14, assignments=None)],
            timeout_ms=REQUEST_TIMEOUT_MS,
        )
        own.send(more, 3, client)
        assert own.receive(more, 3).results[0].error_code == 0
        gone = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=REQUEST_TIMEOUT_MS)
        own.send(gone, 6, client)
        response = own.receive(gone, 6)
        assert response.responses[0].error_code == EXCEEDED
        assert response.throttle_time_ms > 0
        return 0

    over_quota(broker, limited, 1.5, act, controller_mutation_rate=1.0)
