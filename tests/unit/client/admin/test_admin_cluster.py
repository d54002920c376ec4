"""Brokers, features and versions through the admin client, and how it retries and gives up."""

from __future__ import annotations

import concurrent.futures
import gc
import time
from collections.abc import Callable
from typing import Any

import pytest

from felice.client import KafkaError, KafkaException, TopicPartition
from felice.client.admin import (
    AclOperation,
    AdminClient,
    ConfigResource,
    DescribeClusterResult,
    ElectionType,
    FeatureMetadata,
    FeatureUpdate,
    NewPartitions,
    NewTopic,
    Node,
    OffsetSpec,
    UpgradeType,
)
from felice.client.aio import Admin
from felice.client.error import failure
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from felice.protocol.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from felice.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from felice.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from felice.protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker
from felice.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from unit.client.admin.exchange import TIMEOUT_MS, TIMEOUT_S, Exchange, broker_ranges, plain
from unit.client.fake_broker import Disconnect, FakeBroker, Hang
from waiting import wait_until

UPDATES = [
    FeatureUpdate("group.version", 1),
    FeatureUpdate("transaction.version", 0, UpgradeType.SAFE_DOWNGRADE),
    FeatureUpdate("share.version", 0, UpgradeType.UNSAFE_DOWNGRADE),
]
BROKERS = [
    MetadataResponseBroker(node_id=4, host="localhost", port=9093),
    MetadataResponseBroker(node_id=2, host="localhost", port=9092, rack="r"),
]
NODES = [Node(2, "localhost", 9092, "r"), Node(4, "localhost", 9093)]

CLUSTER = [
    Exchange(
        "the brokers are described in the order of their ids",
        lambda admin: admin.describe_cluster(request_timeout=TIMEOUT_S),
        [MetadataRequest(topics=[], allow_auto_topic_creation=False)],
        [MetadataResponse(brokers=BROKERS, cluster_id="c", controller_id=4)],
        DescribeClusterResult(NODES[1], NODES, "c", None),
    ),
    Exchange(
        "the cluster is described with the operations allowed on it, and perhaps without a controller",
        lambda admin: admin.describe_cluster(include_authorized_operations=True),
        [
            MetadataRequest(topics=[], allow_auto_topic_creation=False),
            DescribeClusterRequest(include_cluster_authorized_operations=True),
        ],
        [
            MetadataResponse(cluster_id="c", controller_id=9),
            DescribeClusterResponse(cluster_authorized_operations=1 << AclOperation.ALTER.value),
        ],
        DescribeClusterResult(None, [], "c", [AclOperation.ALTER]),
    ),
    Exchange(
        "the id of the cluster",
        lambda admin: admin.cluster_id(),
        [MetadataRequest(topics=[], allow_auto_topic_creation=False)],
        [MetadataResponse(cluster_id="c")],
        "c",
    ),
    Exchange(
        "feature levels are changed",
        lambda admin: admin.update_features(UPDATES, request_timeout=TIMEOUT_S),
        [
            UpdateFeaturesRequest(
                timeout_ms=TIMEOUT_MS,
                feature_updates=[
                    FeatureUpdateKey(feature="group.version", max_version_level=1, upgrade_type=1),
                    FeatureUpdateKey(feature="transaction.version", max_version_level=0, upgrade_type=2),
                    FeatureUpdateKey(feature="share.version", max_version_level=0, upgrade_type=3),
                ],
            )
        ],
        [UpdateFeaturesResponse()],
        None,
    ),
    Exchange(
        "version 0 of UpdateFeatures knows only whether a downgrade is allowed",
        lambda admin: admin.update_features(UPDATES[:2]),
        [
            UpdateFeaturesRequest(
                timeout_ms=60_000,
                feature_updates=[
                    FeatureUpdateKey(feature="group.version", max_version_level=1),
                    FeatureUpdateKey(
                        feature="transaction.version", max_version_level=0, allow_downgrade=True
                    ),
                ],
            )
        ],
        [
            UpdateFeaturesResponse(
                results=[
                    UpdatableFeatureResult(feature="group.version"),
                    UpdatableFeatureResult(
                        feature="transaction.version",
                        error_code=ErrorCode.FEATURE_UPDATE_FAILED,
                        error_message="in use",
                    ),
                ]
            )
        ],
        KafkaException(KafkaError(ErrorCode.FEATURE_UPDATE_FAILED, "in use")),
        ranges=broker_ranges({57: (0, 0)}),
    ),
    Exchange(
        "a refused change has the text of its code if the controller gave no other",
        lambda admin: admin.update_features(UPDATES[:1], validate_only=True),
        [
            UpdateFeaturesRequest(
                timeout_ms=60_000,
                feature_updates=[
                    FeatureUpdateKey(feature="group.version", max_version_level=1, upgrade_type=1)
                ],
                validate_only=True,
            )
        ],
        [UpdateFeaturesResponse(error_code=ErrorCode.INVALID_UPDATE_VERSION)],
        failure(ErrorCode.INVALID_UPDATE_VERSION),
    ),
]


@pytest.mark.parametrize("exchange", CLUSTER, ids=str)
def test_cluster(exchange: Exchange) -> None:
    assert exchange.perform() == exchange.expected


@pytest.mark.parametrize("epoch", [0, -1])
def test_features_are_finalized_from_epoch_zero_on(epoch: int) -> None:
    with FakeBroker() as broker, AdminClient({"bootstrap.servers": broker.bootstrap}) as admin:
        usual = broker.handlers[ApiVersionsRequest]
        told = ApiVersionsResponse(
            supported_features=[
                SupportedFeatureKey(name="group.version", min_version=1, max_version=2),
                SupportedFeatureKey(name="share.version", min_version=0, max_version=1),
            ],
            finalized_features=[
                FinalizedFeatureKey(name="group.version", max_version_level=2, min_version_level=1)
            ],
            finalized_features_epoch=epoch,
        )
        # The first request is the connection's own.
        broker.script(ApiVersionsRequest, usual, told)
        found = admin.describe_features().result(60)
    supported = {"group.version": (1, 2), "share.version": (0, 1)}
    assert found == FeatureMetadata(supported, {"group.version": 2} if epoch == 0 else {}, epoch)


def test_topics_are_listed_all_or_by_name() -> None:
    with (
        FakeBroker({"t": 2, "u": 1}) as broker,
        AdminClient({"bootstrap.servers": broker.bootstrap}) as admin,
    ):
        assert sorted(admin.list_topics().topics) == ["t", "u"]
        only = admin.list_topics("t", timeout=60)
        assert not admin.list_topics("", timeout=60).topics
        unknown = admin.list_topics("no").topics["no"].error
        assert broker.asked(MetadataRequest)[0].topics is None
    assert list(only.topics) == ["t"] and list(only.topics["t"].partitions) == [0, 1]
    assert unknown == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_list_of_topics_waits_no_longer_than_its_timeout() -> None:
    with FakeBroker() as broker, AdminClient({"bootstrap.servers": broker.bootstrap}) as admin:
        broker.script(MetadataRequest, Hang)
        with pytest.raises(KafkaException) as late:
            admin.list_topics(timeout=0.2)
        assert late.value.code == KafkaError._TRANSPORT and "no metadata in 0.2 s" in str(late.value)


# Retries

MOVING = ErrorCode.NOT_CONTROLLER


def created(**codes: int) -> CreateTopicsResponse:
    rows = [CreatableTopicResult(name=name, error_code=code) for name, code in codes.items()]
    return CreateTopicsResponse(topics=rows)


def test_only_items_with_a_passing_error_are_asked_again() -> None:
    with FakeBroker() as broker, AdminClient({"bootstrap.servers": broker.bootstrap}) as admin:
        broker.script(
            CreateTopicsRequest,
            created(a=0, b=MOVING, c=ErrorCode.POLICY_VIOLATION),
            created(b=MOVING),
            created(b=0),
        )
        futures = admin.create_topics([NewTopic(name) for name in "abc"])
        assert [plain(futures[name]) for name in "ab"] == [None, None]
        assert plain(futures["c"]) == plain(failure(ErrorCode.POLICY_VIOLATION, "c"))
        asked = [[row.name for row in request.topics] for request in broker.asked(CreateTopicsRequest)]
        assert asked == [["a", "b", "c"], ["b"], ["b"]]
        # The controller may have moved: each new attempt looks for it.
        assert len(broker.asked(MetadataRequest)) == 3


def check_end_at_the_limit(
    broker: FakeBroker, asked: type, call: Callable[[], Any], expected: KafkaException
) -> None:
    """A call with a limit of 3 s ends with the error after a few requests; on a slow machine, in one run of five.

    The limit may also pass while a request is on its way, which is another error.
    """
    took_s = []
    for _ in range(5):
        before, began = len(broker.asked(asked)), time.monotonic()
        outcome = plain(call())
        took_s.append(time.monotonic() - began)
        count = len(broker.asked(asked)) - before
        assert took_s[-1] < 25, "other limits are 30 s and a minute"
        assert count <= 9, "the wait grows from 100 ms"
        if outcome == plain(expected) and count >= 2:
            return
        assert outcome == plain(expected) or outcome[2][0] == KafkaError._TIMED_OUT
    assert min(took_s) > 4, "no run ended with the error"


def test_a_passing_error_of_an_item_is_its_result_after_the_time_limit() -> None:
    with FakeBroker() as broker, AdminClient({"bootstrap.servers": broker.bootstrap}) as admin:
        broker.handlers[CreateTopicsRequest] = lambda request, version: created(a=MOVING)
        check_end_at_the_limit(
            broker,
            CreateTopicsRequest,
            lambda: admin.create_topics([NewTopic("a")], request_timeout=3.0)["a"],
            failure(MOVING, "a"),
        )


def test_a_passing_error_of_a_whole_call_is_retried() -> None:
    with FakeBroker() as broker, AdminClient({"bootstrap.servers": broker.bootstrap}) as admin:
        broker.script(
            ElectLeadersRequest,
            ElectLeadersResponse(error_code=MOVING),
            ElectLeadersResponse(error_code=MOVING),
            ElectLeadersResponse(),
        )
        assert admin.elect_leaders(ElectionType.PREFERRED).result(60) == {}
        # One for the first attempt, and one before each attempt after the second.
        assert len(broker.asked(MetadataRequest)) == 2


def test_a_passing_error_of_a_whole_call_ends_it_after_the_time_limit() -> None:
    with FakeBroker() as broker, AdminClient({"bootstrap.servers": broker.bootstrap}) as admin:
        broker.handlers[ElectLeadersRequest] = lambda request, version: ElectLeadersResponse(
            error_code=MOVING
        )
        check_end_at_the_limit(
            broker,
            ElectLeadersRequest,
            lambda: admin.elect_leaders(ElectionType.PREFERRED, operation_timeout=3.0),
            failure(MOVING, "elections"),
        )


def test_a_lost_connection_is_retried() -> None:
    with FakeBroker() as broker, AdminClient({"bootstrap.servers": broker.bootstrap}) as admin:
        broker.script(CreateTopicsRequest, Disconnect, created(a=0))
        assert admin.create_topics([NewTopic("a")])["a"].result(60) is None


def test_no_broker_at_all_is_an_error_at_once() -> None:
    started = time.monotonic()
    with AdminClient({"bootstrap.servers": "127.0.0.1:1"}) as admin:
        error = admin.describe_cluster(request_timeout=600).exception(60)
    assert isinstance(error, KafkaException) and error.code == KafkaError._ALL_BROKERS_DOWN
    assert time.monotonic() - started < 60


def test_brokers_that_cannot_be_reached_are_asked_once() -> None:
    with FakeBroker() as broker, AdminClient({"bootstrap.servers": broker.bootstrap}) as admin:
        broker.script(MetadataRequest, *[Disconnect] * 10)
        error = admin.describe_cluster().exception(60)
        assert isinstance(error, KafkaException) and error.code == KafkaError._ALL_BROKERS_DOWN
        assert len(broker.asked(MetadataRequest)) == 1


# The client itself


def test_a_closed_client_cancels_what_is_under_way_and_refuses_more() -> None:
    with FakeBroker() as broker, AdminClient({"bootstrap.servers": broker.bootstrap}) as admin:
        broker.script(DescribeClusterRequest, Hang)
        future = admin.describe_cluster(include_authorized_operations=True)
        wait_until(lambda: broker.asked(DescribeClusterRequest))
        admin.close()
        failed = future.exception(60)
        assert isinstance(failed, KafkaException) and failed.code == KafkaError._DESTROY
        assert failed.error.str().endswith("the client was closed before the call ended")
        with pytest.raises(RuntimeError, match="the admin client is closed"):
            admin.describe_cluster()
        admin.close()


def test_a_closed_client_cancels_what_waits_for_its_next_attempt() -> None:
    with FakeBroker() as broker, AdminClient({"bootstrap.servers": broker.bootstrap}) as admin:
        broker.handlers[ElectLeadersRequest] = lambda request, version: ElectLeadersResponse(
            error_code=MOVING
        )
        future = admin.elect_leaders(ElectionType.PREFERRED)
        while len(broker.asked(ElectLeadersRequest)) < 2:
            time.sleep(0.01)
        admin.close()
        assert isinstance(future.exception(60), KafkaException)


def test_a_future_that_has_begun_cannot_be_cancelled() -> None:
    with FakeBroker({"t": 1}) as broker, AdminClient({"bootstrap.servers": broker.bootstrap}) as admin:
        one, [many] = admin.describe_cluster(), admin.describe_topics(["t"]).values()
        assert not one.cancel() and not many.cancel()
        assert concurrent.futures.wait([one, many], 60).not_done == set()


def test_every_item_of_a_failed_call_has_the_error() -> None:
    with AdminClient({"bootstrap.servers": "127.0.0.1:1"}) as admin:
        errors = [future.exception(60) for future in admin.delete_topics(["a", "b"], 5).values()]
    assert [getattr(error, "code", None) for error in errors] == [KafkaError._ALL_BROKERS_DOWN] * 2


def test_a_client_that_nothing_refers_to_answers_and_ends() -> None:
    with FakeBroker() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        thread, future = admin._thread, admin.describe_cluster()
        del admin
        gc.collect()
        assert future.result(60).cluster_id == "fake"
        del future
        deadline = time.monotonic() + 60
        while thread.alive and time.monotonic() < deadline:
            gc.collect()
            time.sleep(0.01)
        assert not thread.alive


def test_a_client_is_true_and_has_nothing_to_poll() -> None:
    with AdminClient(**{"bootstrap.servers": "127.0.0.1:1"}) as admin:
        assert (bool(admin), len(admin), admin.poll(1)) == (True, 0, 0)


@pytest.mark.parametrize(
    "call",
    [
        lambda admin, names: admin.create_topics([NewTopic(name) for name in names]),
        lambda admin, names: admin.create_partitions([NewPartitions(name, 2) for name in names]),
        lambda admin, names: admin.delete_topics(names),
        lambda admin, names: admin.describe_topics(names),
        lambda admin, names: admin.describe_consumer_groups(names),
        lambda admin, names: admin.delete_consumer_groups(names),
    ],
)
def test_wrong_names_are_refused_at_once(call: Callable[[AdminClient, list[Any]], Any]) -> None:
    with AdminClient({"bootstrap.servers": "127.0.0.1:1"}) as admin:
        with pytest.raises(ValueError, match="at least one (topic|group)$"):
            call(admin, [])
        with pytest.raises(KafkaException, match="the (topic|group) 'a' is named twice") as twice:
            call(admin, ["a", "a"])
        assert twice.value.code == KafkaError._INVALID_ARG
        with pytest.raises(
            TypeError,
            match="each (topic|group) as a string|expected str, not int|expected a list of str, not of int",
        ):
            call(admin, ["a", 5])


async def test_the_admin_of_coroutines_opens_its_connections_again_after_it_was_closed() -> None:
    with FakeBroker({"t": 1}) as broker:
        async with Admin({"bootstrap.servers": broker.bootstrap}) as admin:
            assert sorted((await admin.metadata()).topics) == ["t"]
            first = admin.cluster
            assert admin.cluster is first
        assert (await admin.describe_cluster()).cluster_id == "fake"
        assert admin.cluster is not first
        await admin.close()
        await admin.close()


def test_offsets_without_a_leader_are_asked_again() -> None:
    with FakeBroker({"t": 1}) as broker, AdminClient({"bootstrap.servers": broker.bootstrap}) as admin:
        usual = broker.handlers[MetadataRequest]

        def leaderless(request: MetadataRequest, version: int) -> MetadataResponse:
            response: MetadataResponse = usual(request, version)
            response.topics[0].partitions[0].leader_id = -1
            return response

        broker.script(MetadataRequest, leaderless)
        partition = TopicPartition("t", 0)
        assert admin.list_offsets({partition: OffsetSpec.latest()})[partition].result(60).offset == 0
        assert len(broker.asked(MetadataRequest)) >= 3


@pytest.mark.parametrize(
    ("limit", "kind"),
    [
        (-1, ValueError),
        (3600.5, ValueError),
        (float("nan"), ValueError),
        (float("inf"), ValueError),
        ("5", TypeError),
    ],
)
def test_a_time_limit_that_cannot_be_right_is_refused_at_once(limit: Any, kind: type[Exception]) -> None:
    with AdminClient({"bootstrap.servers": "127.0.0.1:1"}) as admin:
        for call in (
            lambda: admin.describe_cluster(request_timeout=limit),
            lambda: admin.create_topics([NewTopic("t", 1)], operation_timeout=limit),
            lambda: admin.list_consumer_groups(request_timeout=limit),
            lambda: admin.describe_transactions(["t"], request_timeout=limit),
            lambda: admin.describe_configs([ConfigResource("topic", "t")], limit),
        ):
            with pytest.raises(kind, match=r"(request|operation)_timeout: expected"):
                call()
