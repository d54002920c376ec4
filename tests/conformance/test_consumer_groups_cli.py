"""`kafka-consumer-groups --delete-offsets`: which offsets it deletes, and which options it requires."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from felice.cli.kafka_tools.consumer_groups import kafka_consumer_groups
from felice.client import Consumer, TopicPartition
from felice.client.admin import AdminClient, ConsumerGroupTopicPartitions, NewTopic
from felice.server.process.embedded import EmbeddedBroker

pytestmark = pytest.mark.felice_only


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    """A broker on which the group g has committed an offset of a-0, a-1 and b-0."""
    with EmbeddedBroker(tmp_path / "data") as running:
        with AdminClient({"bootstrap.servers": running.bootstrap}) as admin:
            for future in admin.create_topics([NewTopic("a", 3), NewTopic("b", 1)]).values():
                future.result(60)
        with Consumer({"bootstrap.servers": running.bootstrap, "group.id": "g"}) as consumer:
            rows = [TopicPartition(*row, 0) for row in (("a", 0), ("a", 1), ("b", 0))]
            consumer.commit(offsets=rows, asynchronous=False)
        yield running


def tool(broker: EmbeddedBroker, *words: str) -> Result:
    return CliRunner().invoke(kafka_consumer_groups, ["--bootstrap-server", broker.bootstrap, *words])


def committed(broker: EmbeddedBroker) -> set[tuple[str, int]]:
    with AdminClient({"bootstrap.servers": broker.bootstrap}) as admin:
        asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("g")])
        return {(row.topic, row.partition) for row in asked["g"].result(60).topic_partitions or []}


def test_offsets_of_the_named_topic_are_deleted_and_no_others(broker: EmbeddedBroker) -> None:
    done = tool(broker, "--delete-offsets", "--group", "g", "--topic", "a")
    assert done.exit_code == 0, done.output
    lines = [line.split() for line in done.output.splitlines()]
    assert ["a", "0", "Successful"] in lines and ["a", "1", "Successful"] in lines
    assert committed(broker) == {("b", 0)}


@pytest.mark.parametrize("words", [["--group", "g"], ["--all-groups", "--topic", "a"]])
def test_a_group_and_a_topic_must_be_named(broker: EmbeddedBroker, words: list[str]) -> None:
    done = tool(broker, "--delete-offsets", *words)
    assert done.exit_code != 0
    assert "--delete-offsets takes the following options: --group, --topic" in done.output
    assert committed(broker) == {("a", 0), ("a", 1), ("b", 0)}


@pytest.mark.parametrize(
    "action", [["--delete-offsets", "--topic", "a"], ["--delete"], ["--describe"], ["--list"]]
)
def test_a_group_and_all_groups_exclude_each_other(broker: EmbeddedBroker, action: list[str]) -> None:
    done = tool(broker, *action, "--group", "other", "--all-groups")
    assert done.exit_code != 0
    assert "Option --group cannot be used with option --all-groups" in done.output
    assert committed(broker) == {("a", 0), ("a", 1), ("b", 0)}
