"""The options that every connector has, and what a task's loop takes from them.

Keeps true:  names, types, defaults, groups, order and texts of errors are those of Kafka Connect 4.3;
             `tests/properties/pipelines/test_connect_options.py` compares them with Kafka's own.
Differs:     the options `*.plugin.version` (KIP-891) are refused: each plugin has one version here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from felice.pipelines.connect.configuration.definitions import (
    REQUIRED,
    ConfigDefinitions,
    Definition,
    Importance,
    Type,
    Validator,
    at_least,
    invalid,
    java_regex,
    non_empty,
    non_null,
    one_of,
    one_of_any_case,
)
from felice.pipelines.connect.model.errors import ConfigError

NAME, CONNECTOR_CLASS, TASKS_MAX = "name", "connector.class", "tasks.max"
KEY_CONVERTER, VALUE_CONVERTER, HEADER_CONVERTER = "key.converter", "value.converter", "header.converter"
TRANSFORMS, PREDICATES = "transforms", "predicates"
TOPICS, TOPICS_REGEX = "topics", "topics.regex"
DEAD_LETTER_TOPIC = "errors.deadletterqueue.topic.name"
TOPIC_GROUPS = "topic.creation.groups"
DEFAULT_GROUP = "default"
_COMMON, _ERRORS, _EXACTLY_ONCE = "Common", "Error Handling", "Exactly Once Support"
_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW


def _name(name: str, value: Any) -> None:
    """A text that is not empty and has no control characters."""
    non_null(name, value)
    if not value:
        raise invalid(name, value, "String may not be empty")
    found = [ord(letter) for letter in value if ord(letter) < 32 or 127 <= ord(letter) < 160]
    if found:
        codes = ", ".join(map(str, found))
        raise invalid(
            name,
            value,
            f"String may not contain control sequences but had the following ASCII chars: {codes}",
        )


def _aliases(name: str, value: Any) -> None:
    """A list without an alias twice."""
    non_null(name, value)
    if len(set(value)) < len(value):
        raise invalid(name, f"[{', '.join(value)}]", "Duplicate alias provided.")


def _patterns(name: str, value: Any) -> None:
    """A list of regular expressions."""
    for one in value or ():
        java_regex(name, one)


def _positive_or_default(what: str) -> Validator:
    def check(name: str, value: Any) -> None:
        if value is not None and value != -1 and value < 1:
            raise invalid(name, value, what)

    return check


CONNECTOR = ConfigDefinitions(
    [
        Definition(
            NAME,
            Type.STRING,
            documentation="The name of the connector, unlike that of any other connector of these workers.",
            importance=_HIGH,
            validator=_name,
            group=_COMMON,
            order=1,
            width="MEDIUM",
            display_name="Connector name",
        ),
        Definition(
            CONNECTOR_CLASS,
            Type.STRING,
            documentation="The connector: the name of its class, or a short form of it.",
            importance=_HIGH,
            group=_COMMON,
            order=2,
            width="LONG",
            display_name="Connector class",
        ),
        Definition(
            TASKS_MAX,
            Type.INT,
            1,
            "The highest number of tasks. A connector may need fewer.",
            _HIGH,
            at_least(1),
            _COMMON,
            4,
            "SHORT",
            "Tasks max",
        ),
        Definition(
            "tasks.max.enforce",
            Type.BOOLEAN,
            True,
            "Whether a connector that makes more tasks than tasks.max fails.",
            _LOW,
            group=_COMMON,
            order=5,
            width="SHORT",
            display_name="Enforce tasks max",
        ),
        Definition(
            KEY_CONVERTER,
            Type.CLASS,
            None,
            "The converter of keys. Without it, that of the worker.",
            _LOW,
            group=_COMMON,
            order=6,
            width="SHORT",
            display_name="Key converter class",
        ),
        Definition(
            VALUE_CONVERTER,
            Type.CLASS,
            None,
            "The converter of values. Without it, that of the worker.",
            _LOW,
            group=_COMMON,
            order=8,
            width="SHORT",
            display_name="Value converter class",
        ),
        Definition(
            HEADER_CONVERTER,
            Type.CLASS,
            None,
            "The converter of the values of headers. Without it, that of the worker.",
            _LOW,
            group=_COMMON,
            order=10,
            width="SHORT",
            display_name="Header converter class",
        ),
        Definition(
            TRANSFORMS,
            Type.LIST,
            [],
            "The aliases of the transformations, in the order in which they change each record.",
            _LOW,
            _aliases,
            "Transforms",
            12,
            "LONG",
            "Transforms",
        ),
        Definition(
            PREDICATES,
            Type.LIST,
            [],
            "The aliases of the predicates that transformations name.",
            _LOW,
            _aliases,
            "Predicates",
            13,
            "LONG",
            "Predicates",
        ),
        Definition(
            "config.action.reload",
            Type.STRING,
            "restart",
            "What the worker does when a value of a config provider changed: restart the connector, or none.",
            _LOW,
            one_of("none", "restart"),
            _COMMON,
            14,
            "MEDIUM",
            "Reload Action",
        ),
        Definition(
            "errors.retry.timeout",
            Type.LONG,
            0,
            "How long a step that failed is tried again, in milliseconds: 0 for not at all, -1 for ever.",
            _MEDIUM,
            group=_ERRORS,
            order=1,
            width="MEDIUM",
            display_name="Retry Timeout for Errors",
        ),
        Definition(
            "errors.retry.delay.max.ms",
            Type.LONG,
            60_000,
            "The longest wait between two tries, in milliseconds.",
            _MEDIUM,
            group=_ERRORS,
            order=2,
            width="MEDIUM",
            display_name="Maximum Delay Between Retries for Errors",
        ),
        Definition(
            "errors.tolerance",
            Type.STRING,
            "none",
            "Whether a bad record ends its task (none), or is skipped (all).",
            _MEDIUM,
            one_of("none", "all"),
            _ERRORS,
            3,
            "SHORT",
            "Error Tolerance",
        ),
        Definition(
            "errors.log.enable",
            Type.BOOLEAN,
            False,
            "Whether failures that are tolerated are written to the log, too.",
            _MEDIUM,
            group=_ERRORS,
            order=4,
            width="SHORT",
            display_name="Log Errors",
        ),
        Definition(
            "errors.log.include.messages",
            Type.BOOLEAN,
            False,
            "Whether the log names the record's topic, partition, offset and time with its failure.",
            _MEDIUM,
            group=_ERRORS,
            order=5,
            width="SHORT",
            display_name="Log Error Details",
        ),
    ]
)

_DEAD_LETTERS = ConfigDefinitions(
    [
        Definition(
            DEAD_LETTER_TOPIC,
            Type.STRING,
            "",
            "The topic for records that failed. Without it they are not kept.",
            _MEDIUM,
            group=_ERRORS,
            order=6,
            width="MEDIUM",
            display_name="Dead Letter Queue Topic Name",
        ),
        Definition(
            "errors.deadletterqueue.topic.replication.factor",
            Type.SHORT,
            3,
            "The replication factor of the dead-letter topic if it must be created.",
            _MEDIUM,
            group=_ERRORS,
            order=7,
            width="MEDIUM",
            display_name="Dead Letter Queue Topic Replication Factor",
        ),
        Definition(
            "errors.deadletterqueue.context.headers.enable",
            Type.BOOLEAN,
            False,
            "Whether dead letters get headers that say where and why they failed, such as __connect.errors.stage.",
            _MEDIUM,
            group=_ERRORS,
            order=8,
            width="MEDIUM",
            display_name="Enable Error Context Headers",
        ),
    ]
)
SOURCE = (
    CONNECTOR
    + _DEAD_LETTERS
    + ConfigDefinitions(
        [
            Definition(
                TOPIC_GROUPS,
                Type.LIST,
                [],
                "Groups of topics that are created in their own way, beside the group default.",
                _LOW,
                _aliases,
                "Topic Creation",
                1,
                "LONG",
                "Topic Creation Groups",
            ),
            Definition(
                "exactly.once.support",
                Type.STRING,
                "requested",
                "Whether the connector is refused if it cannot write each record exactly once (required).",
                _MEDIUM,
                one_of_any_case("required", "requested"),
                _EXACTLY_ONCE,
                2,
                "SHORT",
                "Exactly once support",
            ),
            Definition(
                "transaction.boundary",
                Type.STRING,
                "poll",
                "Where transactions end: after each poll, at an interval, or where the connector says.",
                _MEDIUM,
                one_of_any_case("interval", "poll", "connector"),
                _EXACTLY_ONCE,
                3,
                "SHORT",
                "Transaction Boundary",
            ),
            Definition(
                "transaction.boundary.interval.ms",
                Type.LONG,
                None,
                "The interval of transactions in milliseconds. Without it, the worker's offset.flush.interval.ms.",
                _LOW,
                lambda name, value: None if value is None else at_least(0)(name, value),
                _EXACTLY_ONCE,
                4,
                "SHORT",
                "Transaction boundary interval",
            ),
            Definition(
                "offsets.storage.topic",
                Type.STRING,
                None,
                "The topic of this connector's offsets. Without it, that of the worker.",
                _LOW,
                non_empty,
                "offsets.topic",
                1,
                "LONG",
                "Offsets topic",
            ),
        ]
    )
)

SINK = (
    CONNECTOR
    + ConfigDefinitions(
        [
            Definition(
                TOPICS,
                Type.LIST,
                [],
                "The topics to read, divided by commas.",
                _HIGH,
                group=_COMMON,
                order=4,
                width="LONG",
                display_name="Topics",
            ),
            Definition(
                TOPICS_REGEX,
                Type.STRING,
                "",
                "A regular expression for the whole names of the topics to read. Give it, or topics.",
                _HIGH,
                java_regex,
                _COMMON,
                4,
                "LONG",
                "Topics regex",
            ),
        ]
    )
    + _DEAD_LETTERS
)


def topic_group(name: str) -> ConfigDefinitions:
    """The options of a group of topics that a source creates."""
    prefix, group = f"topic.creation.{name}.", f"{'default' if name == DEFAULT_GROUP else 'group'}: {name}"
    is_default = name == DEFAULT_GROUP
    unset = REQUIRED if is_default else -1
    return ConfigDefinitions(
        [
            Definition(
                prefix + "include",
                Type.LIST,
                [".*"] if is_default else REQUIRED,
                documentation="Regular expressions for the names of the topics of the group.",
                importance=_LOW,
                validator=_patterns,
                group=group,
                order=0,
                width="LONG",
                display_name=f"Inclusion Topic Pattern for {name}",
            ),
            Definition(
                prefix + "exclude",
                Type.LIST,
                [],
                "Regular expressions for names of topics that are not of the group.",
                _LOW,
                _patterns,
                group,
                1,
                "LONG",
                f"Exclusion Topic Pattern for {name}",
            ),
            Definition(
                prefix + "replication.factor",
                Type.SHORT,
                unset,
                documentation="The replication factor of new topics, or -1 for the broker's default.",
                importance=_LOW,
                validator=_positive_or_default(
                    "Replication factor must be positive and not larger than the number of brokers in the Kafka "
                    "cluster, or -1 to use the broker's default"
                ),
                group=group,
                order=2,
                width="LONG",
                display_name=f"Replication Factor for Topics in {name}",
            ),
            Definition(
                prefix + "partitions",
                Type.INT,
                unset,
                documentation="The number of partitions of new topics, or -1 for the broker's default.",
                importance=_LOW,
                validator=_positive_or_default(
                    "Number of partitions must be positive, or -1 to use the broker's default"
                ),
                group=group,
                order=3,
                width="LONG",
                display_name=f"Partition Count for Topics in {name}",
            ),
        ]
    )


def check_topics(given: Mapping[str, str]) -> dict[str, list[str]]:
    """The errors of a sink's topics, by option: of those it reads, and of its dead-letter topic."""
    errors: dict[str, list[str]] = {}
    topics = [one.strip() for one in given.get(TOPICS, "").split(",") if one.strip()]
    pattern, letters = given.get(TOPICS_REGEX, "").strip(), given.get(DEAD_LETTER_TOPIC, "").strip()

    def add(text: str, *names: str) -> None:
        for name in names:
            errors.setdefault(name, []).append(text)

    if topics and pattern:
        add(
            f"{TOPICS} and {TOPICS_REGEX} are mutually exclusive options, but both are set.",
            TOPICS,
            TOPICS_REGEX,
        )
    if not topics and not pattern:
        add(f"Must configure one of {TOPICS} or {TOPICS_REGEX}", TOPICS, TOPICS_REGEX)
    if letters and letters in topics:
        add(
            f"The DLQ topic '{letters}' may not be included in the list of topics "
            f"('{TOPICS}=[{', '.join(topics)}]') consumed by the connector",
            TOPICS,
        )
    if letters and pattern and re.fullmatch(pattern, letters):
        add(
            f"The DLQ topic '{letters}' may not be matched by the regex for the topics ('{TOPICS_REGEX}={pattern}') "
            "consumed by the connector",
            TOPICS_REGEX,
        )
    return errors


def refuse_unknown_versions(given: Mapping[str, str]) -> None:
    """Raises `ConfigError` for an option that names the version of a plugin."""
    for name in given:
        if name.endswith(".plugin.version"):
            raise ConfigError(
                f"{name} is not supported: each plugin has one version here; leave the option out"
            )
