"""Configs through the admin client: which broker gets which resource, and what entries come back."""

from __future__ import annotations

import pytest

from felice.client import KafkaError
from felice.client.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from felice.client.error import failure
from felice.protocol.errors import ErrorCode
from felice.protocol.messages import alter_configs as alter
from felice.protocol.messages import incremental_alter_configs as incremental
from felice.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from unit.client.admin.exchange import TIMEOUT_S, Exchange

TOPIC = ConfigResource(ResourceType.TOPIC, "t")
GROUP = ConfigResource("group", "g")
BROKER = ConfigResource(ResourceType.BROKER, "1")
ALL_BROKERS = ConfigResource(ResourceType.BROKER, "")
MISSING = ConfigResource(ResourceType.BROKER, "7")
DYNAMIC_TOPIC, DYNAMIC_BROKER, DEFAULT = 1, 2, 5


def question(*resources: tuple[int, str]) -> DescribeConfigsRequest:
    rows = [
        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
        for kind, name in resources
    ]
    return DescribeConfigsRequest(resources=rows, include_synonyms=True)


SET = ConfigResource("topic", "t", {"a": "1"})
SET.set_config("b", "2")
SET.set_config("a", "9", overwrite=False)
SET.set_config("b", "3", overwrite=True)

CHANGED = ConfigResource(
    "topic",
    "t",
    incremental_configs=[
        ConfigEntry("a", "1"),
        ConfigEntry("b", "2", incremental_operation=AlterConfigOpType.APPEND),
    ],
)
CHANGED.add_incremental_config(ConfigEntry("c", "3", incremental_operation=AlterConfigOpType.DELETE))
CHANGED.add_incremental_config(ConfigEntry("d", "4", incremental_operation=AlterConfigOpType.SUBTRACT))

SYNONYMS = [
    ("retention.ms", "5", DYNAMIC_TOPIC),
    ("log.retention.ms", "7", DYNAMIC_BROKER),
    ("log.retention.ms", "6", DEFAULT),
]
CONFIGS = [
    Exchange(
        "a broker's own configs come from that broker, all others from any",
        lambda admin: admin.describe_configs([TOPIC, BROKER, GROUP, MISSING, ALL_BROKERS], TIMEOUT_S),
        [question((2, "t"), (32, "g"), (4, "")), question((4, "1"))],
        [
            DescribeConfigsResponse(
                results=[
                    DescribeConfigsResult(
                        resource_type=2,
                        resource_name="t",
                        configs=[
                            DescribeConfigsResourceResult(
                                name="retention.ms",
                                value="5",
                                config_source=DYNAMIC_TOPIC,
                                synonyms=[
                                    DescribeConfigsSynonym(name=name, value=value, source=source)
                                    for name, value, source in SYNONYMS
                                ],
                            ),
                            DescribeConfigsResourceResult(
                                name="cleanup.policy", value="delete", config_source=DEFAULT, read_only=True
                            ),
                        ],
                    ),
                    DescribeConfigsResult(
                        resource_type=32,
                        resource_name="g",
                        error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED,
                        error_message="why",
                    ),
                    DescribeConfigsResult(resource_type=4, resource_name=""),
                ]
            ),
            DescribeConfigsResponse(
                results=[
                    DescribeConfigsResult(
                        resource_type=4,
                        resource_name="1",
                        configs=[
                            DescribeConfigsResourceResult(
                                name="ssl.key.password",
                                value=None,
                                config_source=DYNAMIC_BROKER,
                                is_sensitive=True,
                            )
                        ],
                    )
                ]
            ),
        ],
        {
            TOPIC: {
                "retention.ms": ConfigEntry(
                    "retention.ms",
                    "5",
                    DYNAMIC_TOPIC,
                    synonyms={
                        "retention.ms": ConfigEntry(*SYNONYMS[0], is_synonym=True),
                        "log.retention.ms": ConfigEntry(*SYNONYMS[2], is_synonym=True),
                    },
                    # One name has a value of a broker's own and one of all brokers.
                    all_synonyms=tuple(ConfigEntry(*synonym, is_synonym=True) for synonym in SYNONYMS),
                ),
                "cleanup.policy": ConfigEntry(
                    "cleanup.policy", "delete", DEFAULT, is_read_only=True, is_default=True
                ),
            },
            BROKER: {
                "ssl.key.password": ConfigEntry("ssl.key.password", None, DYNAMIC_BROKER, is_sensitive=True)
            },
            GROUP: failure(ErrorCode.GROUP_AUTHORIZATION_FAILED, "g: why"),
            MISSING: failure(KafkaError._UNKNOWN_BROKER, "there is no broker 7", retriable=False),
            ALL_BROKERS: {},
        },
    ),
    Exchange(
        "the whole set of configs is replaced",
        lambda admin: admin.alter_configs([SET], TIMEOUT_S),
        [
            alter.AlterConfigsRequest(
                resources=[
                    alter.AlterConfigsResource(
                        resource_type=2,
                        resource_name="t",
                        configs=[
                            alter.AlterableConfig(name="a", value="1"),
                            alter.AlterableConfig(name="b", value="3"),
                        ],
                    )
                ]
            )
        ],
        [
            alter.AlterConfigsResponse(
                responses=[
                    alter.AlterConfigsResourceResponse(
                        resource_type=2,
                        resource_name="t",
                        error_code=ErrorCode.INVALID_CONFIG,
                        error_message="why",
                    )
                ]
            )
        ],
        {TOPIC: failure(ErrorCode.INVALID_CONFIG, "t: why")},
    ),
    Exchange(
        "a whole set of configs is only validated",
        lambda admin: admin.alter_configs([BROKER], validate_only=True),
        [
            alter.AlterConfigsRequest(
                resources=[alter.AlterConfigsResource(resource_type=4, resource_name="1")], validate_only=True
            )
        ],
        [
            alter.AlterConfigsResponse(
                responses=[alter.AlterConfigsResourceResponse(resource_type=4, resource_name="1")]
            )
        ],
        {BROKER: None},
    ),
    Exchange(
        "each config is changed by its operation, which is to set it if none is given",
        lambda admin: admin.incremental_alter_configs([CHANGED], TIMEOUT_S),
        [
            incremental.IncrementalAlterConfigsRequest(
                resources=[
                    incremental.AlterConfigsResource(
                        resource_type=2,
                        resource_name="t",
                        configs=[
                            incremental.AlterableConfig(name="a", config_operation=0, value="1"),
                            incremental.AlterableConfig(name="b", config_operation=2, value="2"),
                            incremental.AlterableConfig(name="c", config_operation=1, value=None),
                            incremental.AlterableConfig(name="d", config_operation=3, value="4"),
                        ],
                    )
                ]
            )
        ],
        [
            incremental.IncrementalAlterConfigsResponse(
                responses=[incremental.AlterConfigsResourceResponse(resource_type=2, resource_name="t")]
            )
        ],
        {TOPIC: None},
    ),
    Exchange(
        "changes are only validated",
        lambda admin: admin.incremental_alter_configs([BROKER], validate_only=True),
        [
            incremental.IncrementalAlterConfigsRequest(
                resources=[incremental.AlterConfigsResource(resource_type=4, resource_name="1")],
                validate_only=True,
            )
        ],
        [
            incremental.IncrementalAlterConfigsResponse(
                responses=[
                    incremental.AlterConfigsResourceResponse(
                        resource_type=4, resource_name="1", error_code=ErrorCode.POLICY_VIOLATION
                    )
                ]
            )
        ],
        {BROKER: failure(ErrorCode.POLICY_VIOLATION, "1")},
    ),
    Exchange(
        "only topics, brokers and groups have configs",
        lambda admin: admin.describe_configs([ConfigResource("transactional_id", "x")]),
        [],
        [],
        {
            ConfigResource("transactional_id", "x"): failure(
                KafkaError._INVALID_ARG,
                "ConfigResource(ResourceType.TRANSACTIONAL_ID,x): only topics, brokers and groups have configs",
            )
        },
    ),
    Exchange(
        "a type without configs has no names",
        lambda admin: admin.list_config_resources(ResourceType.TRANSACTIONAL_ID),
        [],
        [],
        failure(
            KafkaError._INVALID_ARG,
            "ResourceType.TRANSACTIONAL_ID: only topics, brokers and groups have configs",
        ),
    ),
]


@pytest.mark.parametrize("exchange", CONFIGS, ids=str)
def test_configs(exchange: Exchange) -> None:
    assert exchange.perform() == exchange.expected


def test_resources_are_known_by_type_and_name() -> None:
    assert TOPIC == SET and hash(TOPIC) == hash(SET)
    assert ConfigResource("topic", "u") != TOPIC and ConfigResource("group", "t") != TOPIC
    assert TOPIC.key == (ResourceType.TOPIC, "t") and TOPIC != "t"
    assert sorted([BROKER, GROUP, TOPIC, ConfigResource("topic", "a")]) == [
        ConfigResource("topic", "a"),
        TOPIC,
        GROUP,
        BROKER,
    ]
    assert (len(SET), len(TOPIC)) == (2, 0)


def test_a_resource_keeps_what_it_was_given() -> None:
    given = {"a": ConfigEntry("a", "1")}
    error = KafkaError(ErrorCode.INVALID_CONFIG)
    resource = ConfigResource(2, "t", {"b": "2"}, given, error, [given["a"]])
    assert (resource.configs, resource.error, resource.incremental_configs) == (given, error, [given["a"]])
    assert resource.set_config_dict == {"b": "2"}


@pytest.mark.parametrize("restype", ["galaxy", 99])
def test_unknown_types_of_resources_are_refused(restype: str | int) -> None:
    with pytest.raises(ValueError, match=f"{restype!r} is not one of UNKNOWN, ANY, TOPIC"):
        ConfigResource(restype, "x")


def test_only_brokers_have_defaults_for_all() -> None:
    assert ALL_BROKERS.name == ""
    with pytest.raises(ValueError, match="needs a name"):
        ConfigResource("topic", "")


def test_a_closed_client_refuses_calls() -> None:
    admin = AdminClient({"bootstrap.servers": "127.0.0.1:1"})
    admin.close()
    with pytest.raises(RuntimeError, match="the admin client is closed"):
        admin.describe_configs([TOPIC])
