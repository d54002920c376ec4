"""Arguments of a compacted topic that are refused before anything is sent."""

from __future__ import annotations

from typing import Any

import pytest

from felice.client import KafkaError, KafkaException
from felice.client.compacted.topic import CompactedTopic

CONFIG = {"bootstrap.servers": "127.0.0.1:1"}


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"name": ""}, "needs a name"),
        ({"replication_factor": 0}, "replication factor 0: it must be at least 1"),
        ({"replication_factor": -2}, "replication factor -2"),
        ({"topic_configs": {"cleanup.policy": "delete"}}, "cleanup.policy of topic 't' is always compact"),
        ({"config": {}}, "bootstrap.servers"),
        ({"config": {**CONFIG, "acks": 1}}, '"acks" must be "all"'),
        ({"config": {**CONFIG, "no.such.key": 1}}, "no.such.key"),
        ({"fence": ""}, "transactional.id"),
        ({"config": {**CONFIG, "transactional.id": "x"}}, '"transactional.id" is not for the configuration'),
        (
            {"config": {**CONFIG, "delivery.timeout.ms": 1}},
            '"delivery.timeout.ms" is not for the configuration',
        ),
        ({"config": {**CONFIG, "isolation.level": "read_uncommitted"}}, '"isolation.level" is not for'),
    ],
)
def test_arguments_that_cannot_work_are_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(KafkaException, match=reason) as raised:
        CompactedTopic(**{"config": CONFIG, "name": "t", **options})
    assert raised.value.code == KafkaError._INVALID_ARG


def test_a_write_may_take_less_time_than_a_request() -> None:
    CompactedTopic({**CONFIG, "request.timeout.ms": 30_000}, "t", fence="f", write_timeout_s=0.02)


def test_the_default_replication_factor_of_brokers_may_be_chosen() -> None:
    CompactedTopic(CONFIG, "t", replication_factor=-1)
