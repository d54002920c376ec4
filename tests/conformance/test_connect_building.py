"""Tasks that are made of properties, as users write them: from a file to a topic to a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from connect_tasks import MemoryOffsets, Running, stopped_at_end
from felice.client import KafkaException, murmur2
from felice.client.admin import AdminClient
from felice.pipelines.connect.connectors.file import FileStreamSinkTask, FileStreamSourceTask
from felice.pipelines.connect.model.errors import ConfigError, ConnectError
from felice.pipelines.connect.model.tasks import TaskId
from felice.pipelines.connect.plugins import Plugins
from felice.pipelines.connect.task.building import TaskBuilder
from felice.pipelines.connect.task.control import Control
from felice.testing import Broker, felice_broker
from waiting import wait_until

PACKAGE = "org.apache.kafka.connect."


@pytest.fixture
def broker() -> Iterator[Broker]:
    with felice_broker() as started:
        yield started


def worker(broker: Broker, **options: str) -> dict[str, str]:
    return {
        "bootstrap.servers": broker.bootstrap,
        "key.converter": PACKAGE + "storage.StringConverter",
        "value.converter": PACKAGE + "storage.StringConverter",
        "header.converter": PACKAGE + "storage.SimpleHeaderConverter",
        "offset.flush.interval.ms": "200",
        "consumer.topic.metadata.refresh.interval.ms": "300",
        **{name.replace("_", "."): text for name, text in options.items()},
    }


def source_config(path: Path, **options: str) -> dict[str, str]:
    own = {"name": "in", "connector.class": "FileStreamSource", "file": str(path), "topic": "lines"}
    return own | {name.replace("_", "."): text for name, text in options.items()}


def sink_config(path: Path, **options: str) -> dict[str, str]:
    own = {"name": "out", "connector.class": "FileStreamSink", "file": str(path)}
    return own | {name.replace("_", "."): text for name, text in options.items()}


def source(worker: Mapping[str, str], config: Mapping[str, str]) -> Running:
    control = Control()
    builder = TaskBuilder(Plugins([]), worker, config)
    loop = builder.source(TaskId("in", 0), FileStreamSourceTask(), config, control, MemoryOffsets())
    return Running(loop, control, loop._tolerance)


def sink(worker: Mapping[str, str], config: Mapping[str, str]) -> Running:
    control = Control()
    builder = TaskBuilder(Plugins([]), worker, config)
    loop = builder.sink(TaskId("out", 0), FileStreamSinkTask(), config, control)
    return Running(loop, control, loop._tolerance)


def test_lines_go_from_a_file_through_a_new_topic_to_a_file(broker: Broker, tmp_path: Path) -> None:
    given, written = tmp_path / "in.txt", tmp_path / "out.txt"
    given.write_text("one\ntwo\n")
    creation = {"topic.creation.default.partitions": "3", "topic.creation.default.replication.factor": "1"}
    reading = source(worker(broker), source_config(given) | creation)
    # The worker's assignment strategy is one of Java's, the connector's group is not the usual one.
    java = {"consumer.partition.assignment.strategy": "org.apache.kafka.clients.consumer.RangeAssignor"}
    config = sink_config(written, topics_regex="lin.*", consumer_override_group_id="mine")
    with stopped_at_end(reading), stopped_at_end(sink(worker(broker) | java, config)):
        wait_until(lambda: written.exists() and sorted(written.read_text().split()) == ["one", "two"])
        with AdminClient({"bootstrap.servers": broker.bootstrap}) as admin:
            assert len(admin.list_topics("lines", 10).topics["lines"].partitions) == 3
            groups = admin.list_consumer_groups().result().valid
            assert [group.group_id for group in groups] == ["mine"]


def test_exactly_once_writes_offsets_in_the_transactions(broker: Broker, tmp_path: Path) -> None:
    given = tmp_path / "in.txt"
    given.write_text("one\n")
    options = {
        "exactly.once.source.support": "enabled",
        "group.id": "workers",
        "offset.storage.topic": "offsets",
    }
    broker.create_topic("offsets", partitions=50)
    key = f'["in",{{"filename":"{given}"}}]'.encode()
    # Kafka's workers write a key to the same partition.
    expected = [(murmur2(key, 50), key)]
    with stopped_at_end(source(worker(broker) | options, source_config(given))):
        wait_until(lambda: [(one.partition, one.key) for one in broker.records("offsets")] == expected)
        with AdminClient({"bootstrap.servers": broker.bootstrap}) as admin:
            found = admin.list_transactions().result()
            assert [one.transactional_id for each in found.values() for one in each] == [
                "connect-workers-in-0"
            ]


def test_exactly_once_needs_the_names_of_a_group_and_a_topic(broker: Broker, tmp_path: Path) -> None:
    enabled = worker(broker) | {"exactly.once.source.support": "enabled"}
    with pytest.raises(ConfigError, match=r"option group\.id is not set"):
        source(enabled, source_config(tmp_path / "x"))
    with pytest.raises(ConfigError, match=r"option offset\.storage\.topic is not set"):
        source(enabled | {"group.id": "workers"}, source_config(tmp_path / "x"))


def test_dead_letters_get_a_topic(broker: Broker, tmp_path: Path) -> None:
    broker.create_topic("numbers", partitions=1)
    broker.produce("numbers", b"no number")
    options = {
        "topics": "numbers",
        "value.converter": "IntegerConverter",
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": "letters",
        "errors.deadletterqueue.topic.replication.factor": "1",
        "errors.deadletterqueue.context.headers.enable": "true",
    }
    with stopped_at_end(sink(worker(broker), sink_config(tmp_path / "out") | options)):
        wait_until(lambda: [one.value for one in broker.records("letters")] == [b"no number"])
    assert "__connect.errors.stage" in dict(broker.records("letters")[0].headers)


def test_a_dead_letter_topic_that_cannot_be_made_is_the_tasks_error(broker: Broker, tmp_path: Path) -> None:
    options = {"topics": "t", "errors.deadletterqueue.topic.name": "letters"}
    with pytest.raises(ConnectError, match=r"Error while attempting to create/find topic\(s\) 'letters'"):
        sink(worker(broker), sink_config(tmp_path / "out") | options)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"consumer.override.partition.assignment.strategy": "cooperative-sticky"}, "leave the option out"),
        ({"consumer.override.sasl.login.class": "org.example.Login"}, "names a Java class"),
        ({"consumer.override.max.poll.records": "0"}, "Value must be at least 1"),
    ],
)
def test_options_of_clients_that_cannot_be_followed_are_refused(
    broker: Broker, tmp_path: Path, options: dict[str, str], text: str
) -> None:
    with pytest.raises((ConfigError, KafkaException), match=text):
        sink(worker(broker), sink_config(tmp_path / "out", topics="t") | options)


def test_a_sink_gets_as_many_records_as_its_consumer_may_poll(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    put = FileStreamSinkTask.put
    monkeypatch.setattr(
        FileStreamSinkTask, "put", lambda task, records: (sizes.append(len(records)), put(task, records))
    )
    broker.create_topic("t", partitions=1)
    for number in range(50):
        broker.produce("t", str(number))
    options = {"topics": "t", "consumer.override.max.poll.records": "7"}
    with stopped_at_end(
        sink(worker(broker) | {"consumer.max.poll.records": "9"}, sink_config(tmp_path / "out") | options)
    ):
        wait_until(lambda: sum(sizes) == 50)
    assert max(sizes) == 7
