"""The options of every connector are Kafka's own: names, types, defaults, places in a form, and errors of values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from felice.pipelines.connect.configuration.connector import (
    SINK,
    SOURCE,
    check_topics,
    refuse_unknown_versions,
    topic_group,
)
from felice.pipelines.connect.configuration.definitions import ConfigDefinitions, text_of
from felice.pipelines.connect.model.errors import ConfigError
from peers.applications import running_connect_oracle
from peers.oracle import Oracle

KINDS = {"source": SOURCE, "sink": SINK}
CONFIGS = [
    {},
    {"name": "", "connector.class": "X"},
    {
        "name": "\x00 a \x01\t",
        "transforms": " a ,\tb, c\u00a0",
        "predicates": ",",
        "topics": "",
        "topics.regex": "[",
    },
    {"name": "a\tb\x00c\x7f\u0085", "connector.class": "X", "tasks.max": "0", "tasks.max.enforce": "perhaps"},
    {"name": "a", "tasks.max": "many", "transforms": "a,b,a", "predicates": "p,p"},
    {"name": "a", "errors.tolerance": "ALL", "config.action.reload": "never", "errors.retry.timeout": "1.5"},
    {"name": "a", "errors.log.enable": "yes", "errors.retry.delay.max.ms": "99999999999999999999"},
    {"name": "a", "exactly.once.support": "REQUIRED", "transaction.boundary": "Poll"},
    {
        "name": "a",
        "exactly.once.support": "maybe",
        "transaction.boundary": "row",
        "offsets.storage.topic": "",
    },
    {"name": "a", "transaction.boundary.interval.ms": "-1", "topic.creation.groups": "a,a"},
    {"name": "a", "topics": "a,b", "errors.deadletterqueue.topic.replication.factor": "40000"},
    {"name": "a", "topics.regex": "a.*", "errors.deadletterqueue.context.headers.enable": "x"},
]


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    with running_connect_oracle() as started:
        yield started


def is_ours(name: str) -> bool:
    return not name.endswith(".plugin.version")


def is_kafkas(kind: str, name: str) -> bool:
    """Sources have the options of dead letters, too. Kafka has them for sinks only."""
    return kind != "source" or not name.startswith("errors.deadletterqueue.")


@pytest.mark.parametrize("kind", KINDS)
def test_options_are_those_of_kafka(oracle: Oracle, kind: str) -> None:
    ours = [
        {
            "name": one.name,
            "type": one.type.value,
            "default": "REQUIRED" if one.is_required else text_of(one.type, one.default),
            "importance": one.importance.value,
            "group": one.group,
            "order": one.order,
            "width": one.width,
            "displayName": one.display_name,
        }
        for one in KINDS[kind]
        if is_kafkas(kind, one.name)
    ]
    theirs = oracle.ask({"definitions": kind, "config": {}})["options"]
    assert ours == [one for one in theirs if is_ours(one["name"])]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_errors_are_those_of_kafka(oracle: Oracle, kind: str, config: dict[str, str]) -> None:
    found = KINDS[kind].validate(config)
    ours = {one.name: cut(one.errors) for one in found if one.errors and is_kafkas(kind, one.name)}
    theirs = oracle.ask({"definitions": kind, "config": config})["errors"]
    assert ours == {name: cut(errors) for name, errors in theirs.items() if errors}


def cut(errors: Sequence[str]) -> list[str]:
    """The errors without what an engine of regular expressions says: each has its own words."""
    return [one[: one.find("Invalid regex: ") + 15] if "Invalid regex: " in one else one for one in errors]


def errors_of(definitions: ConfigDefinitions, config: dict[str, str]) -> list[str]:
    return [error for one in definitions.validate(config) for error in one.errors]


def test_groups_of_topics() -> None:
    assert errors_of(topic_group("default"), {}) == [
        'Missing required configuration "topic.creation.default.replication.factor" which has no default value.',
        'Missing required configuration "topic.creation.default.partitions" which has no default value.',
    ]
    given = {"topic.creation.g.partitions": "0", "topic.creation.g.include": "a.*"}
    assert errors_of(topic_group("g"), given) == [
        "Invalid value 0 for configuration topic.creation.g.partitions: Number of partitions must be positive, "
        "or -1 to use the broker's default"
    ]
    assert errors_of(topic_group("g"), {"topic.creation.g.include": "["})[0].startswith("Invalid value [ for")


def test_topics_of_a_sink() -> None:
    assert check_topics({"topics": "a"}) == {}
    assert check_topics({"topics.regex": "a.*"}) == {}
    assert list(check_topics({})) == ["topics", "topics.regex"]
    assert "mutually exclusive" in check_topics({"topics": "a", "topics.regex": "b"})["topics.regex"][0]
    letters = {"errors.deadletterqueue.topic.name": "dead"}
    assert "'dead' may not be included" in check_topics({"topics": "a, dead", **letters})["topics"][0]
    assert "'dead' may not be matched" in check_topics({"topics.regex": "d.*", **letters})["topics.regex"][0]


def test_versions_of_plugins_are_refused() -> None:
    refuse_unknown_versions({"name": "x"})
    with pytest.raises(ConfigError, match="key.converter.plugin.version is not supported"):
        refuse_unknown_versions({"key.converter.plugin.version": "1"})
