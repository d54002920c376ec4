"""The limits of topics. A worker asks the brokers for them, and remembers them for a minute."""

from __future__ import annotations

import time

from felice.client.blocking import BlockingConfig
from felice.pipelines.limits import TopicLimits
from felice.pipelines.spark.connections import client_of
from felice.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

TOPIC_RESOURCE = 2
GOOD_FOR_S = 60.0
NAMES = [
    "cleanup.policy",
    "max.message.bytes",
    "message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms",
    "message.timestamp.type",
]
_known: dict[tuple[BlockingConfig, str], tuple[float, TopicLimits]] = {}


def topic_limits(config: BlockingConfig, topic: str) -> TopicLimits:
    """The limits of a topic; Kafka's defaults if the brokers do not tell them (no right to, no such topic)."""
    asked_at, limits = _known.get((config, topic), (0.0, TopicLimits()))
    now = time.monotonic()
    if (config, topic) not in _known or now - asked_at > GOOD_FOR_S:
        limits = _asked(config, topic)
        _known[config, topic] = now, limits
    return limits


def _asked(config: BlockingConfig, topic: str) -> TopicLimits:
    resource = DescribeConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name=topic, configuration_keys=NAMES
    )
    (result,) = client_of(config).ask_any(DescribeConfigsRequest(resources=[resource])).results
    return TopicLimits.of({one.name: one.value for one in result.configs or ()})
