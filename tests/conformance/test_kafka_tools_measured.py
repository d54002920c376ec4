"""Output of Felice's tools for inputs that were measured beside Apache Kafka 4.3.1's own tools."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.command_line import run_command
from conformance.test_kafka_tool_options import Tool, tool_named, tool_on
from felice.cli import main
from felice.client import Consumer, Producer, TopicPartition
from felice.client.admin import AdminClient, NewTopic
from felice.server.process.embedded import EmbeddedBroker

pytestmark = pytest.mark.felice_only


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker whose groups g and h have committed offset 0 of a-0."""
    with EmbeddedBroker(tmp_path_factory.mktemp("measured") / "data") as running:
        with AdminClient({"bootstrap.servers": running.bootstrap}) as admin:
            for future in admin.create_topics([NewTopic("a", 4), NewTopic("b", 2)]).values():
                future.result(60)
        for group in "gh":
            with Consumer({"bootstrap.servers": running.bootstrap, "group.id": group}) as consumer:
                consumer.commit(offsets=[TopicPartition("a", 0, 0)], asynchronous=False)
        yield running.bootstrap


@pytest.fixture
def tool(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> Tool:
    return tool_on(bootstrap, capsys)


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ("a:0-2", "a:0 a:1"),
        ("a:2-,b", "a:2 a:3 b:0 b:1"),
        ("[ab]:-1", "a:0 b:0"),
        ("[ab]:1", "a:1 b:1"),
        ("a:", "a:0 a:1 a:2 a:3"),
    ],
)
def test_offsets_of_ranges_and_patterns(tool: Tool, rules: str, expected: str) -> None:
    shown = tool("kafka-get-offsets", "--topic-partitions", rules)
    assert [line.rpartition(":")[0] for line in shown.splitlines()] == expected.split()


def test_partitions_without_a_record_of_the_time_are_left_out(tool: Tool, bootstrap: str) -> None:
    with Producer({"bootstrap.servers": bootstrap}) as producer:
        producer.produce("b", b"x", partition=1)
    assert tool("kafka-get-offsets", "--topic", "b", "--time", "max-timestamp") == "b:1:0\n"


def test_the_groups_that_could_be_deleted_are_named(
    tool: Tool, bootstrap: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with Consumer({"bootstrap.servers": bootstrap, "group.id": "old"}) as consumer:
        consumer.commit(offsets=[TopicPartition("a", 0, 0)], asynchronous=False)
    words = ["--bootstrap-server", bootstrap, "--delete", "--group", "nope", "--group", "old"]
    assert main.run(tool_named("kafka-consumer-groups"), words, usage_code=1) == 1
    out, err = capsys.readouterr()
    assert out == "These consumer groups were deleted successfully: 'old'\n"
    assert err.startswith("Error: Deletion of some consumer groups failed: Group 'nope' could not be deleted")
    assert err.count("\n") == 1 and "old" not in tool("kafka-consumer-groups", "--list")


@pytest.mark.parametrize(("option", "text"), [("--state", "Nope"), ("--type", "classic,foo")])
def test_an_unknown_state_or_type_is_refused(tool: Tool, option: str, text: str) -> None:
    said = tool("kafka-consumer-groups", "--list", option, text, code=1)
    assert said.startswith(f"error: Invalid {option[2:]} list '{text}'.")


def test_groups_are_listed_with_states_and_types(tool: Tool) -> None:
    shown = tool("kafka-consumer-groups", "--list", "--state", "stable,EMPTY", "--type")
    assert [line.split() for line in shown.splitlines()] == [
        ["GROUP", "TYPE", "STATE"],
        ["g", "Classic", "Empty"],
        ["h", "Classic", "Empty"],
    ]


@pytest.mark.parametrize("view", [["--members"], ["--verbose"], ["--state"]])
def test_an_empty_group_is_said_to_have_no_members(
    bootstrap: str, view: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--bootstrap-server", bootstrap, "--describe", "--group", "g", *view]
    assert main.run(tool_named("kafka-consumer-groups"), words, usage_code=1) == 0
    out, err = capsys.readouterr()
    assert err == "\nConsumer group 'g' has no active members.\n"
    assert ("LEADER-EPOCH" in out) == ("--verbose" in view)


def test_exported_offsets_can_be_read_again(tool: Tool, tmp_path: Path) -> None:
    file, reset = tmp_path / "offsets.csv", ("kafka-consumer-groups", "--reset-offsets")
    both = ("--group", "g", "--group", "h")
    exported = tool(*reset, *both, "--all-topics", "--to-current", "--export")
    assert exported == "g,a,0,0\nh,a,0,0\n"
    assert tool(*reset, "--group", "g", "--all-topics", "--to-current", "--export") == "a,0,0\n"
    for text, groups in ((exported, both), ("a,0,0\n", both[:2]), ('"a",0,0\n', both[:2])):
        file.write_text(text)
        again = tool(*reset, *groups, "--from-file", str(file), "--export", "--execute")
        assert again == text.replace('"', "")
    file.write_text("a,x,0\n")
    assert "line 1: expected" in tool(*reset, "--group", "g", "--from-file", str(file), code=1)


def test_configs_without_a_name_are_those_of_all(tool: Tool) -> None:
    topics = tool("kafka-configs", "--entity-type", "topics", "--describe")
    assert "Dynamic configs for topic a are:\nDynamic configs for topic b are:\n" in topics
    brokers = tool("kafka-configs", "--entity-type", "brokers", "--describe")
    assert brokers.startswith("Dynamic configs for broker 0 are:\n")
    assert brokers.endswith("Default configs for brokers in the cluster are:\n")


def test_each_synonym_of_a_config_is_shown(tool: Tool) -> None:
    for entity in (("--broker", "0"), ("--broker-defaults",)):
        tool("kafka-configs", *entity, "--alter", "--add-config", "log.cleaner.threads=2")
    tool("kafka-configs", "--broker-defaults", "--alter", "--add-config", "num.io.threads=4")
    shown = tool("kafka-configs", "--broker", "0", "--describe")
    assert (
        "synonyms={DYNAMIC_BROKER_CONFIG:log.cleaner.threads=2, "
        "DYNAMIC_DEFAULT_BROKER_CONFIG:log.cleaner.threads=2, DEFAULT_CONFIG:log.cleaner.threads=1}"
    ) in shown
    # A value for all brokers is shown with the default only.
    assert "num.io.threads" not in shown
    assert "num.io.threads=4" in tool("kafka-configs", "--broker-defaults", "--describe")


def test_a_topics_own_config_has_no_default_of_another_unit_as_synonym(tool: Tool) -> None:
    tool("kafka-configs", "--topic", "b", "--alter", "--add-config", "retention.ms=100000")
    shown = tool("kafka-configs", "--topic", "b", "--describe")
    assert "synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=100000}" in shown


def test_a_quota_that_is_not_set_cannot_be_deleted(tool: Tool) -> None:
    change = ("kafka-configs", "--alter", "--entity-type", "clients", "--entity-name")
    said = tool(*change, "c1", "--delete-config", "producer_byte_rate", code=1)
    assert said.startswith("error: Invalid config(s): producer_byte_rate")
    # An empty name is the default.
    done = tool(*change, "", "--add-config", "producer_byte_rate=1")
    assert done == "Completed updating default config for clients in the cluster.\n"
    described = tool("kafka-configs", "--describe", "--client-defaults")
    assert described == "Quota configs for the default client-id are producer_byte_rate=1.0\n"


@pytest.mark.parametrize("before", [["-b"], ["--bootstrap-server"]])
def test_connection_options_may_stand_before_the_subcommand(
    bootstrap: str, before: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    for words in (["topics", *before, bootstrap, "list"], [*before, bootstrap, "topics", "list"]):
        assert "a\nb\n" in run_command(main.felice, words, 0, capsys)
    joined = ["topics", f"--bootstrap-server={bootstrap}", "list"]
    assert "a\nb\n" in run_command(main.felice, joined, 0, capsys)
