"""Client metrics (KIP-714): resources, subscriptions, pushes, and the page with what clients pushed.

Apache Kafka passes the tests of resources and of how often clients may ask. Without a plugin it has no pushed metrics.
"""

from __future__ import annotations

import subprocess
import time
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from conformance.targets import IS_APACHE, Target
from conformance.telemetry import (
    CUMULATIVE,
    ZERO,
    alter,
    ask,
    counter,
    described,
    gauge,
    metrics_data,
    push,
    subscribe_to,
)
from conformance.topics import create_topic_over, wait_until
from conformance.wire import Wire
from felice.cli.kafka_tools.client_metrics import kafka_client_metrics
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.api_versions import ApiVersionsRequest
from felice.protocol.messages.list_config_resources import ListConfigResourcesRequest
from felice.records.compression import Codec, compress
from peers.java import java_command, require_java

MAX_BYTES = 4096
only_felice = pytest.mark.skipif(IS_APACHE, reason="Apache Kafka needs a plugin")
THROTTLED = ErrorCode.THROTTLING_QUOTA_EXCEEDED


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    settings = {"telemetry.max.bytes": str(MAX_BYTES)}
    if not IS_APACHE:
        settings["felice.metrics.listener"] = "127.0.0.1:0"
    with Target(settings, tmp_path_factory.mktemp("telemetry") / "data") as found:
        yield found


@pytest.fixture
def wire(target: Target) -> Iterator[Wire]:
    with target.wire() as found:
        yield found
        for name in names(found):
            alter(found, name, metrics=None, interval_ms=None, match=None)
        wait_until(lambda: not names(found))


def names(wire: Wire) -> list[str]:
    return [row.resource_name for row in wire.ask(ListConfigResourcesRequest(), 0).config_resources]


def page(target: Target) -> str:
    """The page of pushed metrics, not older than this call."""
    monitoring = target._broker.broker.monitoring
    monitoring._pages.clients._made_s = float("-inf")
    with urllib.request.urlopen(f"http://127.0.0.1:{monitoring.port}/metrics/clients") as answer:
        return str(answer.read().decode())


def value_of(target: Target, name: str, **labels: str) -> list[float]:
    wanted = [f'{key}="{text}"' for key, text in labels.items()]
    return [
        float(line.rpartition(" ")[2])
        for line in page(target).splitlines()
        if line.startswith(f"{name}{{") and all(text in line for text in wanted)
    ]


# Resources


def test_a_resource_has_defaults_and_is_listed_while_it_has_configurations(wire: Wire) -> None:
    assert described(wire, "new") == {"metrics": "", "interval_ms": "300000", "match": ""}
    subscribe_to(wire, "a", metrics="org.apache.kafka.producer.,x", interval_ms="1000")
    assert described(wire, "a") == {
        "metrics": "org.apache.kafka.producer.,x",
        "interval_ms": "1000",
        "match": "",
    }
    assert names(wire) == ["a"]
    assert alter(wire, "a", metrics=None, interval_ms=None).error_code == 0
    wait_until(lambda: names(wire) == [])


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"interval_ms": "99"}, ErrorCode.INVALID_REQUEST),
        ({"interval_ms": "3600001"}, ErrorCode.INVALID_REQUEST),
        ({"interval_ms": "often"}, ErrorCode.INVALID_CONFIG),
        ({"match": "client_id"}, ErrorCode.INVALID_CONFIG),
        ({"match": "client_id=["}, ErrorCode.INVALID_CONFIG),
        ({"match": "colour=red"}, ErrorCode.INVALID_CONFIG),
        ({"unknown": "1"}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_wrong_configurations_are_refused(wire: Wire, changes: dict[str, str], code: int) -> None:
    assert alter(wire, "wrong", **changes).error_code == code
    assert names(wire) == []


def test_a_resource_needs_a_name(wire: Wire) -> None:
    assert alter(wire, "", metrics="*").error_code == ErrorCode.INVALID_REQUEST


# Subscriptions


def offered(wire: Wire) -> set[int]:
    return {row.api_key for row in wire.ask(ApiVersionsRequest(), 2).api_keys}


@only_felice
def test_telemetry_is_offered_by_a_broker_that_serves_metrics(wire: Wire) -> None:
    assert {71, 72} <= offered(wire)


def test_telemetry_is_not_offered_where_nothing_reads_the_metrics(tmp_path: Path) -> None:
    with Target(None, tmp_path / "data") as target, target.wire() as wire:
        assert offered(wire).isdisjoint({71, 72})


@only_felice
def test_a_client_is_told_its_id_and_that_nothing_is_wanted(wire: Wire) -> None:
    answer = ask(wire)
    assert answer.error_code == 0
    assert answer.client_instance_id != ZERO
    assert answer.requested_metrics == []
    assert answer.push_interval_ms == 300_000
    assert answer.accepted_compression_types == [4, 3, 1, 2]
    assert answer.telemetry_max_bytes == MAX_BYTES
    assert answer.delta_temporality


@only_felice
def test_resources_that_match_are_joined(wire: Wire) -> None:
    subscribe_to(wire, "a", metrics="b.,a.", interval_ms="60000", match="client_id=ap.*")
    subscribe_to(wire, "b", metrics="c.", interval_ms="30000", match="client_source_address=127.0.0.1")
    subscribe_to(wire, "c", metrics="d.", interval_ms="100", match="client_id=ap")
    answer = ask(wire)
    assert (answer.requested_metrics, answer.push_interval_ms) == (["a.", "b.", "c."], 30_000)
    assert ask(wire, client_id="other").requested_metrics == ["c."]
    subscribe_to(wire, "b", metrics="*")
    assert ask(wire).requested_metrics == ["*"]


@only_felice
def test_clients_are_selected_by_their_software(wire: Wire) -> None:
    subscribe_to(wire, "a", metrics="a.", match="client_software_name=librdkafka,client_software_version=2.*")
    assert ask(wire).requested_metrics == []
    wire.ask(ApiVersionsRequest(client_software_name="librdkafka", client_software_version="2.1"))
    assert ask(wire).requested_metrics == ["a."]


@only_felice
def test_a_second_question_within_the_interval_is_throttled_unless_resources_changed(wire: Wire) -> None:
    subscribe_to(wire, "a", metrics="a.")
    first = ask(wire)
    assert ask(wire, first.client_instance_id).error_code == THROTTLED
    subscribe_to(wire, "a", metrics="b.")
    second = ask(wire, first.client_instance_id)
    assert second.error_code == 0
    assert second.client_instance_id == first.client_instance_id
    assert second.subscription_id != first.subscription_id


@pytest.mark.parametrize(
    ("changes", "is_throttled"),
    [
        ({"metrics": "a."}, True),
        ({"metrics": "b."}, False),
        ({"match": "client_id=nobody"}, False),
    ],
    ids=["written as it was", "changed", "does not concern the client"],
)
def test_only_a_change_of_resources_lets_a_client_ask_again(
    wire: Wire, changes: dict[str, str], is_throttled: bool
) -> None:
    subscribe_to(wire, "a", metrics="a.")
    first = ask(wire)
    assert first.error_code == 0
    subscribe_to(wire, "a" if "metrics" in changes else "b", **changes)
    time.sleep(0.5)  # a change that must not count has no visible effect to wait for
    again = ask(wire, first.client_instance_id)
    assert again.error_code == (THROTTLED if is_throttled else 0)
    assert bool(again.accepted_compression_types) == (not is_throttled)


def test_a_client_may_ask_again_once_after_an_unknown_subscription(wire: Wire) -> None:
    subscribe_to(wire, "a", metrics="a.")
    first = ask(wire)
    assert push(wire, first, subscription_id=7) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert ask(wire, first.client_instance_id).error_code == 0
    assert ask(wire, first.client_instance_id).error_code == THROTTLED


@only_felice
def test_a_client_that_asked_again_may_push_at_once(wire: Wire, subscription: Any) -> None:
    assert push(wire, subscription, subscription_id=7) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert ask(wire, subscription.client_instance_id).error_code == 0
    assert push(wire, subscription) == 0
    assert push(wire, subscription) == THROTTLED


# Pushes


@pytest.fixture
def subscription(wire: Wire) -> Any:
    subscribe_to(wire, "a", metrics="*")
    return ask(wire)


@only_felice
@pytest.mark.parametrize("number", [0, 1])
def test_reserved_ids_are_refused(wire: Wire, subscription: Any, number: int) -> None:
    code = push(wire, subscription, client_instance_id=uuid.UUID(int=number))
    assert code == ErrorCode.INVALID_REQUEST


@only_felice
@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"subscription_id": 7}, ErrorCode.UNKNOWN_SUBSCRIPTION_ID),
        ({"compression_type": 5}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"compression_type": -1}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"metrics": b"x" * (MAX_BYTES + 1)}, ErrorCode.TELEMETRY_TOO_LARGE),
        ({"metrics": b"\xff"}, ErrorCode.INVALID_RECORD),
        ({"metrics": b"\x0a\x05ab"}, ErrorCode.INVALID_RECORD),
        ({"metrics": b"no gzip", "compression_type": 1}, ErrorCode.INVALID_RECORD),
        (
            {"metrics": compress(Codec.ZSTD, bytes(32 * MAX_BYTES)), "compression_type": 4},
            ErrorCode.INVALID_RECORD,
        ),
    ],
)
def test_faults_of_a_push(wire: Wire, subscription: Any, fields: dict[str, Any], code: int) -> None:
    assert push(wire, subscription, **fields) == code


@only_felice
def test_a_client_may_ask_again_after_an_unknown_subscription(wire: Wire, subscription: Any) -> None:
    assert push(wire, subscription, subscription_id=7) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert ask(wire, subscription.client_instance_id).error_code == 0


@only_felice
def test_a_client_pushes_once_an_interval_and_once_at_its_end(wire: Wire, subscription: Any) -> None:
    assert push(wire, subscription) == 0
    assert push(wire, subscription) == THROTTLED
    assert push(wire, subscription, terminating=True) == 0
    assert push(wire, subscription, terminating=True) == ErrorCode.INVALID_REQUEST


@only_felice
def test_another_broker_accepts_the_push_of_an_unknown_client(
    wire: Wire, subscription: Any, tmp_path: Path
) -> None:
    """The subscription id depends on the resources and the client only."""
    with Target({}, tmp_path / "other") as other, other.wire() as elsewhere:
        subscribe_to(elsewhere, "another name", metrics="*")
        assert push(elsewhere, subscription) == 0


@only_felice
def test_values_are_on_the_page_with_the_clients_labels(target: Target, wire: Wire) -> None:
    subscribe_to(wire, "a", metrics="org.,my-", interval_ms="100")
    answer = ask(wire, client_id='say "hi"')
    labels = {"client_id": r"say \"hi\"", "group_id": "g", "topic": "t"}
    metrics = (
        counter("org.apache.kafka.producer.record.send.total", 5, topic="t"),
        counter("my-own.total", 7, CUMULATIVE, topic="t"),
        gauge("org.apache.kafka.producer.latency.avg", 1.5, topic="t"),
        gauge("not.requested", 1.0),
    )
    data = metrics_data(*metrics, attributes={"group.id": "g"})
    for codec in (Codec.NONE, Codec.GZIP):
        push_after_interval(wire, answer, bytes(compress(codec, data)), codec, 'say "hi"')
    assert value_of(target, "org_apache_kafka_producer_record_send_total", **labels) == [10.0]
    assert value_of(target, "my_own_total", **labels) == [7.0]
    assert value_of(target, "org_apache_kafka_producer_latency_avg", **labels) == [1.5]
    assert "not_requested" not in page(target)
    assert "# TYPE org_apache_kafka_producer_record_send_total counter" in page(target)


def push_after_interval(wire: Wire, answer: Any, data: bytes, codec: Codec, client_id: str = "app") -> None:
    """Pushes as often as the broker says that it is too early."""
    deadline = time.monotonic() + 120
    while (code := push(wire, answer, data, client_id, compression_type=int(codec))) == THROTTLED:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert code == 0


@only_felice
def test_librdkafka_pushes_its_metrics(target: Target, wire: Wire) -> None:
    create_topic_over(wire, "flights")
    subscribe_to(wire, "rdkafka", metrics="*", interval_ms="200", match="client_id=rdk")
    producer = Producer(
        {"bootstrap.servers": target.bootstrap, "client.id": "rdk", "enable.metrics.push": True}
    )
    producer.produce("flights", b"LH400")
    producer.flush(60)
    wait_until(
        lambda: (
            producer.poll(0.1) is not None
            and sum(value_of(target, "org_apache_kafka_producer_node_request_latency_max", client_id="rdk"))
            > 0
        )
    )


@only_felice
def test_javas_client_pushes_its_metrics(target: Target, wire: Wire) -> None:
    require_java()
    create_topic_over(wire, "java-flights")
    subscribe_to(wire, "java", metrics="*", interval_ms="200", match="client_software_name=apache-kafka-java")
    name = "org_apache_kafka_consumer_coordinator_assigned_partitions"
    found: list[float] = []
    for timeout_ms in ("4000", "60000"):
        consumer = java_command(
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            *("--bootstrap-server", target.bootstrap, "--topic", "java-flights", "--timeout-ms", timeout_ms),
        )
        subprocess.run(consumer, check=False, capture_output=True, timeout=300)
        found = value_of(target, name, client_software_name="apache-kafka-java")
        if found:
            break  # the machine was quick enough for a push before the timeout
    # A push before the consumer has joined its group lacks the label of the member, so its series is another.
    assert 1 <= len(found) <= 2


def kafka_tool(target: Target, *arguments: str) -> str:
    command = java_command(
        "org.apache.kafka.tools.ClientMetricsCommand", "--bootstrap-server", target.bootstrap, *arguments
    )
    return subprocess.run(command, check=True, capture_output=True, timeout=300, text=True).stdout


def own_tool(target: Target, *arguments: str) -> str:
    result = CliRunner().invoke(kafka_client_metrics, ["--bootstrap-server", target.bootstrap, *arguments])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.timeout(1800)  # it starts Java seven times
def test_the_tool_works_like_kafkas(target: Target, wire: Wire) -> None:
    require_java()
    settings = ("--metrics", "a.,b.", "--interval", "1000", "--match", "client_id=app.*,client_source_port=7")
    outputs = []
    for tool in (own_tool, kafka_tool):
        outputs.append(
            [
                tool(target, "--alter", "--name", "r", *settings),
                tool(target, "--list"),
                tool(target, "--describe", "--name", "r"),
                tool(target, "--alter", "--name", "r", "--interval", ""),
                tool(target, "--describe"),
                tool(target, "--delete", "--name", "r"),
                tool(target, "--list").strip(),
            ]
        )
    assert outputs[0] == outputs[1]


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--alter"],
        ["--delete"],
        ["--alter", "--list", "--name", "r"],
        ["--alter", "--name", "r", "--interval", "x"],
    ],
)
def test_the_tool_refuses_incomplete_commands(target: Target, arguments: list[str]) -> None:
    command = ["--bootstrap-server", target.bootstrap, *arguments]
    assert CliRunner().invoke(kafka_client_metrics, command).exit_code == 1
