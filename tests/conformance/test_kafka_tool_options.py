"""The options of Kafka's own tools and the keys of its clients: each is there, or left out by name, with a reason."""

from __future__ import annotations

import importlib
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from conformance.command_line import run_command
from felice.cli.kafka_tools.left_out import LEFT_OUT
from felice.client.java_keys import is_known
from felice.client.options import KEYS
from felice.client.tuning import TUNING
from peers import java

PROJECT = Path(__file__).parents[2] / "pyproject.toml"
PACKAGE = "org.apache.kafka.tools."
# Tools that list their options by jopt or argparse4j. Both begin a line of the help with the option.
CLASSES = {
    "kafka-acls": f"{PACKAGE}AclCommand",
    "kafka-broker-api-versions": f"{PACKAGE}BrokerApiVersionsCommand",
    "kafka-client-metrics": f"{PACKAGE}ClientMetricsCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": f"{PACKAGE}consumer.ConsoleConsumer",
    "kafka-console-producer": f"{PACKAGE}ConsoleProducer",
    "kafka-consumer-groups": f"{PACKAGE}consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test": f"{PACKAGE}ConsumerPerformance",
    "kafka-delegation-tokens": f"{PACKAGE}DelegationTokenCommand",
    "kafka-delete-records": f"{PACKAGE}DeleteRecordsCommand",
    "kafka-dump-log": f"{PACKAGE}DumpLogSegments",
    "kafka-features": f"{PACKAGE}FeatureCommand",
    "kafka-get-offsets": f"{PACKAGE}GetOffsetShell",
    "kafka-groups": f"{PACKAGE}GroupsCommand",
    "kafka-leader-election": f"{PACKAGE}LeaderElectionCommand",
    "kafka-log-dirs": f"{PACKAGE}LogDirsCommand",
    "kafka-producer-perf-test": f"{PACKAGE}ProducerPerformance",
    "kafka-reassign-partitions": f"{PACKAGE}reassign.ReassignPartitionsCommand",
    "kafka-topics": f"{PACKAGE}TopicCommand",
    "kafka-transactions": f"{PACKAGE}TransactionsCommand",
}
EMPTY = "/dev/null"
Tool = Callable[..., str]
_OPTION = re.compile(r"^ {0,3}(?:-\w(?: \S+)?, )?(--[a-z][\w.-]*)", re.MULTILINE)


def tool_named(name: str) -> click.Command:
    scripts = tomllib.loads(PROJECT.read_text())["project"]["scripts"]
    module = importlib.import_module(scripts[name].partition(":")[0])
    [command] = [
        found for found in vars(module).values() if isinstance(found, click.Command) and found.name == name
    ]
    return command


def tool_on(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> Tool:
    """`run(name, *words, code=0)` runs a tool on a broker, and returns what it prints."""

    def run(name: str, *words: str, code: int = 0) -> str:
        return run_command(tool_named(name), ["--bootstrap-server", bootstrap, *words], code, capsys)

    return run


def options_of(command: click.Command) -> Iterator[str]:
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            yield from parameter.opts
    for below in command.commands.values() if isinstance(command, click.Group) else ():
        yield from options_of(below)


@pytest.mark.parametrize("name", CLASSES)
def test_each_option_of_kafkas_tool_is_there_or_left_out_with_a_reason(name: str) -> None:
    java.require_java()
    done = java.run_tool(CLASSES[name], "--help", check=False)
    theirs = set(_OPTION.findall(done.stdout + done.stderr)) - {"--help"}
    assert theirs, done.stdout + done.stderr
    ours, left_out = set(options_of(tool_named(name))), set(LEFT_OUT.get(name, ()))
    assert theirs - ours - left_out == set(), "neither there nor left out by name"
    assert left_out & ours == set(), "offered, but in the table of left-out options"


@pytest.mark.parametrize(
    ("name", "option"), [(name, option) for name in LEFT_OUT for option in LEFT_OUT[name]]
)
def test_an_option_that_is_left_out_is_refused_in_one_line(
    name: str, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--bootstrap-server", "h:1"] if name not in ("kafka-dump-log", "kafka-features") else []
    said = run_command(tool_named(name), [*words, option], 1, capsys)
    assert said == f"error: Felice's {name} has no option {option}: {LEFT_OUT[name][option]}\n"
    assert option in run_command(tool_named(name), ["--help"], 0, capsys)


@pytest.mark.parametrize("kind", ["producer.Producer", "consumer.Consumer", "admin.AdminClient"])
def test_each_key_that_kafka_documents_for_clients_is_known(kind: str) -> None:
    document = java.run_tool(f"org.apache.kafka.clients.{kind}Config").stdout
    listed = set(re.findall(r'<a id="([a-z0-9.]+)"', document))
    assert "bootstrap.servers" in listed and len(listed) > 50
    known = {name for key in KEYS for name in (key.name, *key.aliases)} | TUNING.keys() | {"config.providers"}
    assert sorted(name for name in listed - known if not is_known(name)) == []


@pytest.mark.parametrize(
    ("name", "words", "reason"),
    [
        ("kafka-topics", ["--topic", "a", "--topic", "b"], "Option --topic was given 2 times"),
        (
            "kafka-console-producer",
            ["--topic", "t", "--producer.config", __file__, "--command-config", __file__],
            "Options --command-config and --producer.config cannot be specified together",
        ),
        (
            "kafka-console-consumer",
            ["--topic", "t", "--consumer-property", "a=1", "--command-property=b=2"],
            "Options --command-property and --consumer-property cannot be specified together",
        ),
        ("kafka-console-consumer", ["--topic", "t", "--include", "t"], "Exactly one of"),
        (
            "kafka-get-offsets",
            ["--topic", "t", "--topic-partitions", "t"],
            "Error occurred: --topic-partitions cannot",
        ),
        (
            "kafka-get-offsets",
            ["--partitions", "0", "--topic-partitions", "t"],
            "Error occurred: --topic-partitions",
        ),
        ("kafka-get-offsets", ["--partitions", "1-"], "Error occurred: --partitions expects"),
        (
            "kafka-get-offsets",
            ["--topic-partitions", "t:x"],
            "Error occurred: Invalid rule specification: t:x",
        ),
        ("kafka-consumer-groups", ["--list", "--group", "g"], "Option --group cannot be used with --list"),
        (
            "kafka-consumer-groups",
            ["--describe", "--group", "g", "--topic", "t"],
            "Option --topic cannot be used",
        ),
        (
            "kafka-consumer-groups",
            ["--describe", "--group", "g", "--to-latest"],
            "Option --to-latest cannot be used",
        ),
        (
            "kafka-topics",
            ["--create", "--topic", "t", "--replica-assignment", "0:1", "--partitions", "2"],
            "Option --partitions cannot be used with --replica-assignment",
        ),
        (
            "kafka-topics",
            ["--create", "--topic", "t", "--replica-assignment", "0:1", "--replication-factor", "2"],
            "Option --replication-factor cannot be used with --replica-assignment",
        ),
        ("kafka-topics", ["--list", "--partitions", "3"], "Option --partitions cannot be used with --list"),
        (
            "kafka-topics",
            ["--alter", "--topic", "t", "--config", "a=1"],
            "Option --config cannot be used with --alter",
        ),
        (
            "kafka-topics",
            ["--describe", "--if-not-exists"],
            "Option --if-not-exists cannot be used with --describe",
        ),
        (
            "kafka-topics",
            ["--describe", "--under-replicated-partitions", "--under-min-isr-partitions"],
            "Options --under-min-isr-partitions and --under-replicated-partitions cannot be specified together",
        ),
        ("kafka-console-consumer", ["--include", "t", "--partition", "0"], "The topic is required"),
        (
            "kafka-console-consumer",
            ["--topic", "t", "--formatter", "org.x.F"],
            "there is no formatter org.x.F",
        ),
        (
            "kafka-configs",
            ["--describe", "--topic", "t", "--add-config", "a=1"],
            "Option --add-config cannot",
        ),
        (
            "kafka-configs",
            ["--describe", "--topic", "t", "--add-config-file", __file__],
            "Option --add-config-file",
        ),
        (
            "kafka-configs",
            ["--describe", "--topic", "t", "--delete-config", "a"],
            "Option --delete-config cannot",
        ),
        ("kafka-configs", ["--alter", "--topic", "t", "--add-config", "a=1", "--all"], "Option --all cannot"),
        (
            "kafka-configs",
            ["--describe", "--alter", "--topic", "t"],
            "Command must include exactly one action",
        ),
        (
            "kafka-configs",
            ["--alter", "--topic", "t", "--add-config", "a=1", "--add-config-file", __file__],
            "Only one of --add-config or --add-config-file",
        ),
        ("kafka-configs", ["--alter", "--topic", "t"], "At least one of --add-config, --add-config-file"),
        (
            "kafka-configs",
            ["--describe", "--entity-type", "topics", "--entity-type", "topics"],
            "Duplicate entity",
        ),
        (
            "kafka-configs",
            ["--describe", "--topic", "t", "--broker", "1"],
            "Only 'users' and 'clients' entity types",
        ),
        (
            "kafka-configs",
            ["--describe", "--user", "u", "--ip", "1.2.3.4"],
            "Only 'users' and 'clients' entity",
        ),
        (
            "kafka-configs",
            ["--describe", "--broker", "x"],
            "The entity name for brokers must be a valid integer",
        ),
        ("kafka-configs", ["--alter", "--entity-type", "users", "--add-config", "a=1"], "--entity-name or"),
        ("kafka-configs", ["--describe", "--entity-name", "t"], "There are more names than --entity-type"),
        ("kafka-configs", ["--describe"], "At least one of --entity-type"),
        ("kafka-acls", ["--add", "--list"], "Command must include exactly one action"),
        (
            "kafka-acls",
            ["--list", "--producer", "--topic", "t"],
            "Option --producer cannot be used with --list",
        ),
        ("kafka-acls", ["--list", "--allow-principal", "User:a"], "Option --allow-principal cannot be used"),
        ("kafka-acls", ["--list", "--deny-principal", "User:a"], "Option --deny-principal cannot be used"),
        ("kafka-acls", ["--list", "--deny-host", "1.1.1.1"], "Option --deny-host cannot be used with --list"),
        (
            "kafka-acls",
            ["--remove", "--topic", "t", "--principal", "User:a"],
            "Option --principal cannot be used",
        ),
        (
            "kafka-acls",
            ["--add", "--topic", "t", "--principal", "User:a"],
            "Option --principal cannot be used",
        ),
        (
            "kafka-acls",
            ["--add", "--producer", "--topic", "t", "--deny-principal", "User:a"],
            "Option --deny-principal cannot be used with --producer",
        ),
        (
            "kafka-acls",
            ["--add", "--consumer", "--topic", "t", "--group", "g", "--deny-host", "1.1.1.1"],
            "Option --deny-host cannot be used with --consumer",
        ),
        (
            "kafka-acls",
            ["--remove", "--producer", "--topic", "t", "--operation", "Read"],
            "Option --operation cannot be used with --producer",
        ),
        (
            "kafka-acls",
            ["--add", "--topic", "t", "--idempotent"],
            "The --idempotent option is only available",
        ),
        ("kafka-acls", ["--add", "--allow-principal", "User:a", "--producer"], "With --producer you must"),
        ("kafka-reassign-partitions", ["--list", "--execute"], "Command must include exactly one action"),
        (
            "kafka-reassign-partitions",
            ["--list", "--throttle", "4"],
            "Option --throttle cannot be used with --list",
        ),
        ("kafka-reassign-partitions", ["--list", "--additional"], "Option --additional cannot be used"),
        ("kafka-reassign-partitions", ["--verify"], "Missing required argument"),
        (
            "kafka-reassign-partitions",
            ["--generate", "--topics-to-move-json-file", __file__],
            "--generate needs --topics-to-move-json-file and --broker-list",
        ),
        *(
            (
                "kafka-reassign-partitions",
                [f"--{action}", "--reassignment-json-file", __file__, *option],
                reason,
            )
            for action, option, reason in (
                ("verify", ["--throttle", "4"], "Option --throttle cannot be used with --verify"),
                ("verify", ["--broker-list", "1"], "Option --broker-list cannot be used with --verify"),
                ("cancel", ["--additional"], "Option --additional cannot be used with --cancel"),
                (
                    "execute",
                    ["--preserve-throttles"],
                    "Option --preserve-throttles cannot be used with --execute",
                ),
                (
                    "execute",
                    ["--disable-rack-aware"],
                    "Option --disable-rack-aware cannot be used with --execute",
                ),
                ("list", [], "Option --reassignment-json-file cannot be used with --list"),
            )
        ),
        *(
            (
                "kafka-client-metrics",
                words,
                f"Option {words[-2 if words[-1][0] != '-' else -1]} cannot be used",
            )
            for words in (
                ["--list", "--name", "x"],
                ["--list", "--generate-name"],
                ["--describe", "--metrics", "x"],
                ["--describe", "--name", "x", "--interval", "100"],
                ["--delete", "--name", "x", "--match", "client_id=a"],
                ["--delete", "--name", "x", "--generate-name"],
            )
        ),
        (
            "kafka-client-metrics",
            ["--alter", "--name", "x", "--generate-name"],
            "One of --name or --generate-name",
        ),
        ("kafka-client-metrics", ["--delete"], "A client metrics resource name must be specified"),
        *(
            (
                "kafka-delegation-tokens",
                ["--command-config", EMPTY, *words],
                f"Option {words[-2]} cannot be used",
            )
            for words in (
                ["--create", "--max-life-time-period", "-1", "--hmac", "YWFh"],
                ["--create", "--max-life-time-period", "-1", "--renew-time-period", "5"],
                ["--renew", "--hmac", "YWFh", "--renew-time-period", "-1", "--owner-principal", "User:a"],
                ["--expire", "--hmac", "YWFh", "--expiry-time-period", "-1", "--renewer-principal", "User:a"],
                ["--describe", "--hmac", "YWFh"],
                ["--describe", "--max-life-time-period", "5"],
            )
        ),
        ("kafka-delegation-tokens", ["--command-config", EMPTY, "--renew"], 'Missing required argument "['),
        ("kafka-delegation-tokens", ["--command-config", EMPTY], "Command must include exactly one action"),
    ],
)
def test_options_that_contradict_each_other_are_refused_in_one_line(
    name: str, words: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said = run_command(tool_named(name), ["--bootstrap-server", "h:1", *words], 1, capsys)
    assert said.removeprefix("error: ").startswith(reason) and said.count("\n") == 1
