"""Configurations of connectors are checked as Kafka Connect's worker checks them: options, values and errors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from connect_rest import RestClient
from felice.pipelines.connect.configuration.definitions import Definition, text_of
from felice.pipelines.connect.configuration.validation import Configurations, Validation
from felice.pipelines.connect.model.errors import ConfigError
from felice.pipelines.connect.plugins import Plugins
from felice.testing import Broker
from peers.kafka_connect import running_kafka_connect

DEAD_LETTERS = "errors.deadletterqueue."
"""Sources have these options, too. Kafka has them for sinks only."""
TRANSFORMS = "org.apache.kafka.connect.transforms."
WORKER = {
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    "header.converter": "org.apache.kafka.connect.storage.SimpleHeaderConverter",
}
SINK = {"connector.class": "FileStreamSink", "name": "x", "topics": "t"}
SOURCE = {"connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector", "name": "x"}


def of_transformation(name: str, **options: str) -> dict[str, str]:
    found = {"transforms": "a", "transforms.a.type": name}
    return SINK | found | {f"transforms.a.{key.replace('_', '.')}": value for key, value in options.items()}


CONFIGS = {
    "nothing": {"connector.class": "FileStreamSink"},
    "sink": SINK,
    "class by its suffix": SINK | {"connector.class": "FileStreamSinkConnector"},
    "numbers": SINK | {"tasks.max": "many", "errors.retry.timeout": " 5 ", "errors.tolerance": "some"},
    "lists": SINK | {"topics": " a , b", "transforms": "a,a", "transforms.a.type": "Filter"},
    "no topics": SINK | {"topics": ""},
    "topics twice": SINK | {"topics.regex": "a"},
    "dead letters read": SINK | {"errors.deadletterqueue.topic.name": "t"},
    "insert a field": of_transformation(TRANSFORMS + "InsertField$Value", predicate="zz", topic_field="t"),
    "no part": of_transformation(TRANSFORMS + "InsertField"),
    "short name of a part": of_transformation("InsertField$Value"),
    "ambiguous": of_transformation("Value"),
    "required options": of_transformation("RegexRouter"),
    "no transformation": of_transformation(TRANSFORMS + "predicates.TopicNameMatches"),
    "converter as transformation": of_transformation("JsonConverter"),
    "empty type": of_transformation(""),
    "no type": SINK | {"transforms": "d"},
    "condition": of_transformation("Filter", negate="maybe"),
    "predicate": SINK
    | {
        "predicates": "p",
        "predicates.p.type": "HasHeaderKey",
        "predicates.p.name": "",
        "predicates.q.type": "x",
    },
    "no predicate": SINK | {"predicates": "p,q", "predicates.p.type": "Nope", "predicates.q.type": "Filter"},
    "no converter": SINK | {"value.converter": "Nope", "key.converter": "TopicNameMatches"},
    "converter": SINK
    | {
        "value.converter": "Json",
        "value.converter.schemas.cache.size": "x",
        "key.converter": "StringConverter",
    },
    "header converter": SINK | {"header.converter": "Simple"},
    "dead letters match": {"connector.class": "file-sink", "name": "x", "topics.regex": "t.*"}
    | {"connector.class": "FileStreamSink", "errors.deadletterqueue.topic.name": "tt"},
    "source": SOURCE | {"file": "/x", "topic": "", "batch.size": "-"},
    "source without topic": SOURCE,
    "topics of a source": SOURCE
    | {
        "topic": "t",
        "topic.creation.groups": "g",
        "topic.creation.default.partitions": "0",
        "topic.creation.default.replication.factor": "1",
        "topic.creation.g.include": "[",
    },
}

# Kafka's options that are not ours: a plugin has one version here, and a converter is told its kind when it is made.
NOT_OURS = (".plugin.version", ".converter.type")
# Java's and Python's own words about a regular expression.
OWN_WORDS = "Invalid regex: "
# Plugins that Kafka does not bring.
OTHERS = ("io.confluent.", "io.debezium.")
# Kafka checks these when tasks start.
TOPIC_GROUP = re.compile(r"topic\.creation\..+\..+")
# What Kafka's checks say of an option that is missing, beside that it is missing.
ABOUT_NULL = "Invalid value null for configuration regex: "


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestClient]:
    directory: Path = tmp_path_factory.mktemp("kafka-connect")
    with Broker() as broker, running_kafka_connect(broker.bootstrap, directory) as worker:
        yield worker


@pytest.fixture(scope="module")
def configurations() -> Configurations:
    return Configurations(Plugins([]), WORKER)


@pytest.mark.parametrize("name", CONFIGS)
def test_a_configuration_is_checked_as_by_kafka(
    kafka: RestClient, configurations: Configurations, name: str
) -> None:
    config = CONFIGS[name]
    path = f"/connector-plugins/{config['connector.class']}/config/validate"
    status, theirs = kafka.ask("PUT", path, config)
    assert status == 200, theirs
    found = configurations.validate(config)
    ours = answered(found)
    groups = {name for name in ours if TOPIC_GROUP.fullmatch(name)}
    own = (
        groups | set()
        if "topics" in ours
        else groups | {name for name in ours if name.startswith(DEAD_LETTERS)}
    )
    assert {name: one for name, one in ours.items() if name not in own} == {
        one["value"]["name"]: comparable(one)
        for one in theirs["configs"]
        if not one["value"]["name"].endswith(NOT_OURS)
    }
    mine = [name for name in found.groups if ": " not in name or not groups]
    assert sorted(mine) == sorted(theirs["groups"])


def test_errors_of_topic_groups_are_found_with_all_others(configurations: Configurations) -> None:
    found = answered(configurations.validate(CONFIGS["topics of a source"]))
    assert {name for name, one in found.items() if one["errors"]} == {
        "topic.creation.default.partitions",
        "topic.creation.g.include",
    }


def test_the_count_is_of_all_errors(configurations: Configurations) -> None:
    assert configurations.validate(CONFIGS["topics twice"] | {"tasks.max": "many"}).error_count == 4


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({}, "contains no connector type"),
        ({"connector.class": "Nope"}, "Class Nope could not be found"),
        ({"connector.class": "Filter"}, "does not implement the Connector interface"),
        (SINK | {"connector.plugin.version": "1"}, "connector.plugin.version is not supported"),
    ],
)
def test_a_configuration_without_a_connector_is_refused(
    configurations: Configurations, config: dict[str, str], text: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(text)):
        configurations.validate(config)


def comparable(one: dict[str, Any]) -> dict[str, Any]:
    value, definition = one["value"], one["definition"]
    return {
        "value": value["value"],
        "errors": [words(error) for error in value["errors"] if not error.startswith(ABOUT_NULL)],
        "recommended": [text for text in value["recommended_values"] if "." in text],
        "definition": None
        if definition is None
        else {
            name: definition[name]
            for name in ("type", "required", "default_value", "importance", "group", "width", "display_name")
        },
    }


def answered(found: Validation) -> dict[str, dict[str, Any]]:
    return {
        value.name: {
            "value": value.value,
            "errors": [words(error) for error in value.errors],
            # Without the converters that Kafka does not have.
            "recommended": [text for text in value.recommended_values if not text.startswith(OTHERS)],
            "definition": None if definition is None else shown(definition),
        }
        for definition, value in found.configs
    }


def shown(one: Definition) -> dict[str, Any]:
    return {
        "type": one.type.value,
        "required": one.is_required,
        "default_value": None if one.is_required else text_of(one.type, one.default),
        "importance": one.importance.value,
        "group": one.group,
        "width": one.width,
        "display_name": one.display_name or one.name,
    }


def words(error: str) -> str:
    return error.partition(OWN_WORDS)[0]
