"""Every wrong command line is answered by one line that says what is wrong, never by a traceback."""

from __future__ import annotations

import random
from collections.abc import Iterator

import click
import pytest

from felice.cli import main
from felice.cli.kafka_tools.configs import kafka_configs
from felice.cli.kafka_tools.console import kafka_console_consumer
from felice.cli.kafka_tools.consumer_groups import kafka_consumer_groups
from felice.server.process.embedded import EmbeddedBroker
from tidy.commands import all_commands, programs

# Excluded, because they would run until stopped, take minutes, or start Spark.
SERVING = {"felice start", "felice broker", "felice demo", "felice streams prepare", "kafka-server-start"}
# Added last, so that they override other values: commands that wait or work end soon.
BOUNDS = {
    "felice consume": ["--timeout-ms", "200"],
    "kafka-console-consumer": ["--timeout-ms", "200"],
    "felice perf produce": ["--num-records", "3", "--throughput", "-1"],
    "felice perf consume": ["--messages", "1", "--timeout", "200"],
    "felice advise": ["--record-size", "1"],
    "felice perf latency": ["--num-records", "2"],
    "kafka-producer-perf-test": ["--num-records", "3", "--throughput", "-1"],
    "kafka-consumer-perf-test": ["--num-records", "1", "--timeout", "200"],
    "kafka-e2e-latency": ["--num-records", "2", "--record-size", "100"],
}
CASES = {
    words: command
    for words, command in all_commands()
    if words not in SERVING
    and not isinstance(command, click.Group)
    and not words.startswith("felice zookeeper")  # this test starts no ensemble
}
USUAL = ["t", "t:0", "0", "1", "3", "a=b", "topics", "brokers", "latest"]
ODD = [
    *("", " ", "-1", "-2", "9", "2147483648", "9223372036854775808", "9" * 5000, "nan", "1e400"),
    *("\udcff", "a=\udcff", "=", "=x", "a=", "a=b=c", ",", ":", "::", "t:", "t:x", "t:-1", "t:99999999999"),
    *("1,2,x", "(", "[", "x" * 300, "a\nb", "-", "u,t", "/nonexistent", "P99999999999D"),
    *("9999-12-31T23:59:59.999", "0001-01-01T00:00", "retention.ms=x", "transaction.version=99999999999"),
]
FILES = {
    "bytes": b"\xff\xfe\0junk",
    "empty": b"",
    "list": b"[1,2]",
    "numbers": b'{"partitions":[{"topic":"t","partition":9999999999999999999,"offset":1e999,"replicas":[1e999]}]}',
    "deep": b"[" * 100_000,
    "null": b'{"partitions": null, "topics": 5}',
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path_factory.mktemp("data")) as running:
        assert (
            main.run(main.felice, ["topics", "create", "t", "--partitions", "3", "-b", running.bootstrap])
            == 0
        )
        yield running


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("files")
    for name, content in FILES.items():
        (folder / name).write_bytes(content)
    return [*ODD, str(folder), *(str(folder / name) for name in FILES)]


def arguments(command: click.Command, odd: list[str], chance: random.Random) -> Iterator[str]:
    def value(kind: click.ParamType) -> str:
        usual = list(map(str, kind.choices)) if isinstance(kind, click.Choice) else USUAL
        return chance.choice(odd if chance.random() < 0.4 else usual)

    for parameter in command.params:
        if parameter.name in ("bootstrap", "bootstrap_server", "version"):
            continue
        if not isinstance(parameter, click.Option):
            yield from (
                value(parameter.type) for _ in range(1 if parameter.nargs == 1 else chance.randint(1, 3))
            )
        elif parameter.required or chance.random() < 0.4:
            yield parameter.opts[0]
            if not parameter.is_flag:
                yield value(parameter.type)


@pytest.mark.parametrize("words", CASES)
def test_odd_values_are_refused_without_a_traceback(
    words: str,
    broker: EmbeddedBroker,
    odd: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("FELICE_BOOTSTRAP_SERVER", broker.bootstrap)
    chance = random.Random(words)
    program, *names = words.split()
    first = ["--bootstrap-server", broker.bootstrap] if program.startswith("kafka-") else []
    if not names or program == "kafka-cluster":
        names, first = [*names, *first], []
    if program == "kafka-dump-log":
        names = []
    for _ in range(8):
        given = [*first, *names, *arguments(CASES[words], odd, chance), *BOUNDS.get(words, [])]
        code = main.run(programs()[program], given)
        said = capsys.readouterr().err
        assert code in (0, 1, 2), (given, said)
        assert "Traceback" not in said and "error: Error" not in said, (given, said)
        assert code == 0 or said.strip(), given


@pytest.mark.parametrize("words", [["--until-end"], ["--timeout-ms", "60000"], ["-n", "1"]])
def test_a_partition_that_does_not_exist_is_refused_at_once(
    words: list[str], broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(main.felice, ["consume", "t", "--partition", "9", *words, "-b", broker.bootstrap]) == 1
    assert capsys.readouterr().err == "error: topic t has no partition 9; its partitions are 0 to 2\n"


def test_kafkas_consumer_refuses_a_partition_that_does_not_exist(
    broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "--bootstrap-server",
        broker.bootstrap,
        "--topic",
        "t",
        "--partition",
        "3",
        "--offset",
        "earliest",
    ]
    assert main.run(kafka_console_consumer, words, usage_code=1) == 1
    assert capsys.readouterr().err == "error: topic t has no partition 3; its partitions are 0 to 2\n"


def test_the_defaults_of_all_brokers_are_set_and_shown_by_kafkas_tool(
    broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    which = ["--bootstrap-server", broker.bootstrap, "--entity-type", "brokers", "--entity-default"]
    assert (
        main.run(kafka_configs, [*which, "--alter", "--add-config", "log.retention.ms=7000"], usage_code=1)
        == 0
    )
    assert capsys.readouterr().out == "Completed updating default config for brokers in the cluster.\n"
    assert main.run(kafka_configs, [*which, "--describe"], usage_code=1) == 0
    assert capsys.readouterr().out.splitlines() == [
        "Default configs for brokers in the cluster are:",
        "  log.retention.ms=7000 sensitive=false "
        "synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=7000, DEFAULT_CONFIG:log.retention.hours=168}",
    ]


def test_the_defaults_of_all_brokers_are_set_and_shown(
    broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*words: str) -> tuple[int, str, str]:
        code = main.run(main.felice, ["configs", *words, "-b", broker.bootstrap])
        said = capsys.readouterr()
        return code, said.out, said.err

    code, out, _ = run("alter", "brokers", "--default", "--set", "message.max.bytes=2000000")
    assert (code, out) == (0, "Completed updating config for the default of all brokers.\n")
    for words in (["brokers", "--default"], ["brokers", ""]):
        code, out, _ = run("describe", *words)
        assert code == 0
        assert "message.max.bytes" in out and "2000000" in out
    assert run("describe", "topics", "") == (1, "", "error: name one of the topics\n")
    assert run("describe", "topics", "--default")[2].startswith("error: only brokers have defaults")
    assert run("describe", "brokers", "0", "--default")[2].startswith(
        "error: give either a name or the default"
    )


def test_an_unknown_group_is_reported_in_kafkas_words(
    broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--bootstrap-server", broker.bootstrap, "--describe", "--group", "nobodys"]
    assert main.run(kafka_consumer_groups, words, usage_code=1) == 1
    assert capsys.readouterr().err == (
        "Error: Executing consumer group command failed due to Consumer group 'nobodys' does not exist.\n"
    )
