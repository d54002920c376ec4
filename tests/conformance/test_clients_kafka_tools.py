"""Kafka's own command-line tools, unchanged, by class name: topics, console, groups, configs, offsets."""

import json
import re
from pathlib import Path

import pytest

from conformance.targets import IS_APACHE, Target
from conformance.topics import create_topic
from conformance.wire import unique_name
from peers import java
from peers.clients import CODECS

TOPICS = "org.apache.kafka.tools.TopicCommand"
CONSOLE_PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CONFIGS = "kafka.admin.ConfigCommand"
OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
DELETE_RECORDS = "org.apache.kafka.tools.DeleteRecordsCommand"
API_VERSIONS = "org.apache.kafka.tools.BrokerApiVersionsCommand"
CLUSTER = "org.apache.kafka.tools.ClusterTool"
PRODUCER_PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"
CONSUMER_PERFORMANCE = "org.apache.kafka.tools.ConsumerPerformance"


@pytest.fixture(autouse=True)
def _java() -> None:
    java.require_java()


def tool(main_class: str, broker: Target, *arguments: str, stdin: str = "", check: bool = True) -> str:
    server = ("--bootstrap-server", broker.bootstrap)
    done = java.run_tool(main_class, *server, *arguments, stdin=stdin, check=check)
    return done.stdout + ("" if check else done.stderr)


def test_the_topic_command_creates_describes_alters_and_deletes(broker: Target) -> None:
    topic = unique_name("tools")
    created = tool(
        TOPICS, broker, "--create", "--topic", topic, "--partitions", "2", "--config", "retention.ms=123456"
    )
    assert f"Created topic {topic}." in created
    assert topic in tool(TOPICS, broker, "--list").split()
    tool(TOPICS, broker, "--alter", "--topic", topic, "--partitions", "4")
    described = tool(TOPICS, broker, "--describe", "--topic", topic)
    assert re.search(r"PartitionCount: 4\s+ReplicationFactor: 1\s+Configs: .*retention\.ms=123456", described)
    assert [int(row) for row in re.findall(r"Partition: (\d)\s+Leader: \d", described)] == [0, 1, 2, 3]
    again = tool(TOPICS, broker, "--create", "--topic", topic, check=False)
    assert "TopicExistsException" in again
    tool(TOPICS, broker, "--delete", "--topic", topic)
    assert topic not in tool(TOPICS, broker, "--list").split()


@pytest.mark.parametrize("codec", CODECS)
def test_console_producer_writes_what_console_consumer_reads(broker: Target, codec: str) -> None:
    topic = create_topic(broker, unique_name("console"))
    lines = "".join(f"header:{at}\tkey{at}\tvalue {at} ☃\n" for at in range(50))
    properties = ("--reader-property", "parse.key=true", "--reader-property", "parse.headers=true")
    tool(CONSOLE_PRODUCER, broker, "--topic", topic, "--compression-codec", codec, *properties, stdin=lines)
    shown = ("print.key", "print.headers", "print.offset", "print.partition")
    options = [part for name in shown for part in ("--formatter-property", f"{name}=true")]
    read = tool(
        CONSOLE_CONSUMER, broker, "--topic", topic, "--from-beginning", "--max-messages", "50", *options
    )
    expected = [f"Partition:0\tOffset:{at}\theader:{at}\tkey{at}\tvalue {at} ☃" for at in range(50)]
    assert read.splitlines() == expected


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_consumer_group_command_describes_resets_and_deletes(broker: Target, protocol: str) -> None:
    topic, group = create_topic(broker, unique_name("tools")), unique_name("tools-group")
    by_protocol = ("--command-property", f"group.protocol={protocol}")
    tool(CONSOLE_PRODUCER, broker, "--topic", topic, stdin="a\nb\nc\nd\n")
    read = tool(
        CONSOLE_CONSUMER,
        broker,
        "--topic",
        topic,
        "--group",
        group,
        "--from-beginning",
        "--max-messages",
        "3",
        *by_protocol,
    )
    assert read.split() == ["a", "b", "c"]
    assert re.search(rf"{group}\s+{protocol}\s", tool(GROUPS, broker, "--list", "--type"), re.IGNORECASE)
    described = tool(GROUPS, broker, "--describe", "--group", group)
    assert re.search(rf"{group}\s+{topic}\s+0\s+(-\s+)?3\s+4\s+1\s", described), described
    assert "Empty" in tool(GROUPS, broker, "--describe", "--group", group, "--state")
    reset = ("--reset-offsets", "--to-earliest", "--topic", topic, "--execute")
    assert re.search(rf"{group}\s+{topic}\s+0\s+0", tool(GROUPS, broker, "--group", group, *reset))
    read = tool(
        CONSOLE_CONSUMER, broker, "--topic", topic, "--group", group, "--max-messages", "4", *by_protocol
    )
    assert read.split() == ["a", "b", "c", "d"]
    tool(GROUPS, broker, "--delete", "--group", group)
    assert group not in tool(GROUPS, broker, "--list").split()


def test_config_command_alters_topics_and_brokers(broker: Target) -> None:
    topic = create_topic(broker, unique_name("tools"))
    entity = ("--entity-type", "topics", "--entity-name", topic)
    tool(
        CONFIGS,
        broker,
        "--alter",
        *entity,
        "--add-config",
        "cleanup.policy=[compact,delete],segment.ms=60000",
    )
    described = tool(CONFIGS, broker, "--describe", *entity)
    assert "cleanup.policy=compact,delete" in described
    assert "segment.ms=60000" in described
    tool(CONFIGS, broker, "--alter", *entity, "--delete-config", "segment.ms")
    assert "segment.ms" not in tool(CONFIGS, broker, "--describe", *entity)
    everything = tool(CONFIGS, broker, "--describe", "--entity-type", "brokers", "--all")
    assert "num.partitions=1" in everything
    wrong = ("--alter", *entity, "--add-config", "segment.ms=soon")
    assert "InvalidConfigurationException" in tool(CONFIGS, broker, *wrong, check=False)


def test_config_command_alters_quotas(broker: Target) -> None:
    entity = (
        "--entity-type",
        "users",
        "--entity-name",
        "tool-user",
        "--entity-type",
        "clients",
        "--entity-default",
    )
    tool(
        CONFIGS, broker, "--alter", *entity, "--add-config", "producer_byte_rate=1024,request_percentage=12.5"
    )
    described = tool(CONFIGS, broker, "--describe", *entity)
    assert "user-principal 'tool-user', the default client-id are" in described
    assert "producer_byte_rate=1024.0" in described
    assert "request_percentage=12.5" in described
    tool(CONFIGS, broker, "--alter", *entity, "--delete-config", "producer_byte_rate,request_percentage")
    assert "tool-user" not in tool(
        CONFIGS, broker, "--describe", "--entity-type", "users", "--entity-type", "clients"
    )


def test_config_command_alters_levels_of_loggers(broker: Target) -> None:
    number = "1" if IS_APACHE else "0"
    entity = ("--entity-type", "broker-loggers", "--entity-name", number)
    before = next(
        line.strip() for line in tool(CONFIGS, broker, "--describe", *entity).splitlines() if "root=" in line
    )
    level = before.partition("=")[2].split()[0]
    tool(CONFIGS, broker, "--alter", *entity, "--add-config", "root=ERROR")
    assert "root=ERROR" in tool(CONFIGS, broker, "--describe", *entity)
    tool(CONFIGS, broker, "--alter", *entity, "--add-config", f"root={level}")


def test_offsets_and_records_are_listed_and_deleted(broker: Target, tmp_path: Path) -> None:
    topic = create_topic(broker, unique_name("tools"))
    tool(CONSOLE_PRODUCER, broker, "--topic", topic, stdin="a\nb\nc\nd\n")
    assert tool(OFFSETS, broker, "--topic", topic).split() == [f"{topic}:0:4"]
    wanted = {"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": 3}]}
    (tmp_path / "offsets.json").write_text(json.dumps(wanted))
    deleted = tool(DELETE_RECORDS, broker, "--offset-json-file", str(tmp_path / "offsets.json"))
    assert re.search(rf"partition: {topic}-0\s+low_watermark: 3", deleted)
    assert tool(OFFSETS, broker, "--topic", topic, "--time", "earliest").split() == [f"{topic}:0:3"]
    latest = tool(OFFSETS, broker, "--topic", topic, "--time", "max-timestamp")
    assert re.fullmatch(rf"{topic}:0:[0-3]\n", latest)


def test_the_broker_reports_its_versions_and_its_cluster(broker: Target) -> None:
    versions = tool(API_VERSIONS, broker)
    for name in ("Produce(0)", "Fetch(1)", "JoinGroup(11)", "DescribeTopicPartitions(75)"):
        assert re.search(rf"{re.escape(name)}: \d+( to \d+)? \[usable: \d+\]", versions), name
    told = java.run_tool(CLUSTER, "cluster-id", "--bootstrap-server", broker.bootstrap).stdout
    assert re.search(r"Cluster ID: \S+", told)


def test_performance_tools_write_and_read(broker: Target) -> None:
    topic = create_topic(broker, unique_name("tools"), partitions=3)
    properties = ("--command-property", f"bootstrap.servers={broker.bootstrap}")
    load = ("--topic", topic, "--num-records", "20000", "--record-size", "200", "--throughput", "-1")
    written = java.run_tool(PRODUCER_PERFORMANCE, *load, *properties).stdout
    assert "20000 records sent" in written
    read = tool(
        CONSUMER_PERFORMANCE, broker, "--topic", topic, "--num-records", "20000", "--timeout", "60000"
    )
    columns = read.splitlines()[-1].split(",")
    assert int(float(columns[4])) >= 20000


@pytest.mark.felice_only
def test_kafkas_quorum_tool_learns_that_there_is_no_quorum(broker: Target) -> None:
    """As with a broker of Kafka 3 with ZooKeeper: DescribeQuorum is not offered."""
    said = tool("org.apache.kafka.tools.MetadataQuorumCommand", broker, "describe", "--status", check=False)
    assert "UnsupportedVersionException" in said
    assert "DESCRIBE_QUORUM" in said
