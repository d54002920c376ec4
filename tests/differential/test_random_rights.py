"""Random ACLs on Felice and on Apache Kafka: the client may do the same operations, also where nothing has an ACL."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conformance.group_calls import find_coordinator
from conformance.secured import ANONYMOUS, Rule, Secured, secured_felice, secured_kafka
from conformance.topics import create_topic_over
from conformance.transaction_calls import until_settled
from felice.protocol.messages.describe_cluster import DescribeClusterRequest
from felice.protocol.messages.describe_groups import DescribeGroupsRequest
from felice.protocol.messages.init_producer_id import InitProducerIdRequest
from felice.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from felice.security.acl import (
    CLUSTER_NAME,
    SUPPORTED_OPERATIONS,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)

ROUNDS = 60
TOPICS = ("a", "ab", "abc", "b")
# Not `hardcode`: Kafka asks about a topic of this name to learn whether there is a right on any topic.
NAMES = (*TOPICS, "*", "a")
PRINCIPALS = (ANONYMOUS, ANONYMOUS, "User:*", "User:other", "user:ANONYMOUS")
HOSTS = ("*", "*", "127.0.0.1", "10.0.0.1")
KINDS = (ResourceType.TOPIC, ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER)


def rule(source: random.Random) -> Rule:
    kind = source.choice(KINDS)
    is_cluster = kind is ResourceType.CLUSTER
    return Rule(
        kind,
        CLUSTER_NAME if is_cluster else source.choice(NAMES),
        source.choice((*SUPPORTED_OPERATIONS[kind], Operation.ALL)),
        source.choice((Permission.ALLOW, Permission.ALLOW, Permission.DENY)),
        source.choice(PRINCIPALS),
        source.choice(HOSTS),
        PatternType.LITERAL if is_cluster else source.choice((PatternType.LITERAL, PatternType.PREFIXED)),
    )


def rights(broker: Secured) -> dict[str, Any]:
    """What the client may do, as the broker tells."""
    client, producer = broker.client, InitProducerIdRequest(transactional_id=None)
    named = [MetadataRequestTopic(name=name) for name in (*TOPICS, "missing")]
    topics = client.ask(
        MetadataRequest(
            topics=named, allow_auto_topic_creation=False, include_topic_authorized_operations=True
        ),
        12,
    ).topics
    listed = client.ask(MetadataRequest(topics=None), 12).topics
    groups = client.ask(
        DescribeGroupsRequest(groups=["a", "b"], include_authorized_operations=True), 5
    ).groups
    cluster = client.ask(DescribeClusterRequest(include_cluster_authorized_operations=True))
    return {
        "topics": {row.name: (row.error_code, row.topic_authorized_operations) for row in topics},
        "listed": {row.name for row in listed} & set(TOPICS),
        "groups": {row.group_id: (row.error_code, row.authorized_operations) for row in groups},
        "cluster": cluster.cluster_authorized_operations,
        # Kafka has no producer ids for some milliseconds after its start.
        "idempotent": until_settled(lambda: client.ask(producer, 4).error_code),
    }


@pytest.fixture(scope="module", params=["false", "true"], ids=["deny by default", "allow by default"])
def sides(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Secured, Secured]]:
    directory: Path = tmp_path_factory.mktemp("random")
    settings = {"allow.everyone.if.no.acl.found": request.param}
    with (
        secured_felice(directory / "felice", settings) as ours,
        secured_kafka(directory / "kafka", settings) as theirs,
    ):
        for side in (ours, theirs):
            for name in TOPICS:
                create_topic_over(side.admin, name)
            find_coordinator(side.admin, "a")
            find_coordinator(side.admin, "b")
        yield ours, theirs


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_random_acls_give_the_same_rights(seed: int, sides: tuple[Secured, Secured]) -> None:
    source = random.Random(seed)
    rules = [rule(source) for _ in range(source.randint(0, 7))]
    found = []
    for side in sides:
        side.only(*rules)
        found.append(rights(side))
    ours, theirs = found
    assert ours == theirs, rules
