"""The command line against a broker: `felice …` and Kafka's own tool names; some tests run separate processes."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conformance.command_line import COMMAND_TIMEOUT_S, Run
from felice.cli import main
from felice.cli.kafka_tools.configs import kafka_configs
from felice.cli.kafka_tools.consumer_groups import kafka_consumer_groups
from felice.cli.kafka_tools.log_dirs import kafka_log_dirs
from felice.cli.kafka_tools.offsets import kafka_delete_records, kafka_get_offsets
from felice.cli.kafka_tools.topics import kafka_topics
from felice.server.process.embedded import EmbeddedBroker
from interrupts import heed_interrupts

BIN = Path(sys.executable).parent


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path_factory.mktemp("data")) as running:
        yield running


@pytest.fixture
def felice(
    broker: EmbeddedBroker, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> Run:
    """Runs a `felice` command in this process and returns its output."""
    monkeypatch.setenv("FELICE_BOOTSTRAP_SERVER", broker.bootstrap)

    def run(*words: str, code: int = 0) -> str:
        capsysbinary.readouterr()
        found = main.run(main.felice, words)
        out, err = capsysbinary.readouterr()
        assert found == code, err.decode()
        return out.decode() if code == 0 else err.decode()

    return run


@pytest.fixture
def kafka(broker: EmbeddedBroker, capsysbinary: pytest.CaptureFixture[bytes]) -> Run:
    """Runs one of the tools with Kafka's names in this process."""

    def run(tool, *words: str, code: int = 0) -> str:  # type: ignore[no-untyped-def]
        capsysbinary.readouterr()
        found = main.run(tool, ("--bootstrap-server", broker.bootstrap, *words), usage_code=1)
        out, err = capsysbinary.readouterr()
        assert found == code, err.decode()
        return out.decode() if code == 0 else err.decode()

    return run


def produce(broker: EmbeddedBroker, topic: str, text: str, *options: str) -> None:
    command = [str(BIN / "felice"), "produce", topic, "-b", broker.bootstrap, *options]
    subprocess.run(command, input=text, text=True, check=True, timeout=COMMAND_TIMEOUT_S)


@pytest.mark.parametrize(
    ("command", "create", "alter"),
    [
        pytest.param(
            (main.felice, main.felice),
            "topics create NAME -b BROKER",
            "configs alter topics NAME -b BROKER --set",
            id="felice",
        ),
        pytest.param(
            (kafka_topics, kafka_configs),
            "--create --topic NAME --bootstrap-server BROKER",
            "--alter --topic NAME --bootstrap-server BROKER --add-config",
            id="kafka",
        ),
    ],
)
def test_min_insync_replicas_above_the_replicas_causes_a_warning(
    command: tuple[Any, Any],
    create: str,
    alter: str,
    broker: EmbeddedBroker,
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    topic = f"hopeful-{alter.split()[0].strip('-')}"

    def said(words: str, option: str, program: Any) -> str:
        words = words.replace("NAME", topic).replace("BROKER", broker.bootstrap)
        assert main.run(program, [*words.split(), option]) == 0
        return capsysbinary.readouterr().err.decode()

    warning = f"warning: min.insync.replicas=2 counts as 1, for {topic} has no more replicas"
    assert warning in said(create + " --config", "min.insync.replicas=2", command[0])
    assert said(alter, "min.insync.replicas=1", command[1]) == ""
    assert warning in said(alter, "min.insync.replicas=2", command[1])
    assert said(alter, "retention.ms=1000", command[1]) == ""


def test_a_topic_created_by_a_record_is_reported_once(broker: EmbeddedBroker) -> None:
    command = [str(BIN / "felice"), "produce", "mistyped", "-b", broker.bootstrap]
    first, second = (
        subprocess.run(
            command, input="a\nb\n", text=True, check=True, timeout=COMMAND_TIMEOUT_S, capture_output=True
        )
        for _ in range(2)
    )
    assert first.stderr == "warning: there was no topic mistyped; it was created with 1 partition\n"
    assert (first.stdout, second.stdout, second.stderr) == ("", "", "")


def test_an_interrupted_consumer_ends_like_kafkas(broker: EmbeddedBroker) -> None:
    produce(broker, "interrupted", "a\n")
    command = [str(BIN / "felice"), "consume", "interrupted", "--from-beginning", "--json"]
    consumer = subprocess.Popen(
        [*command, "-b", broker.bootstrap],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_interrupts,
    )
    try:
        assert consumer.stdout is not None
        assert json.loads(consumer.stdout.readline())["value"] == "a"
        consumer.send_signal(signal.SIGINT)
        _, said = consumer.communicate(timeout=COMMAND_TIMEOUT_S)
    finally:
        consumer.kill()
    assert (consumer.returncode, said) == (130, "")


def test_a_topic_is_created_described_and_deleted(felice: Run) -> None:
    assert (
        felice("topics", "create", "life", "--partitions", "2", "--config", "retention.ms=1000")
        == "Created topic life.\n"
    )
    assert "life" in felice("topics", "list").split()
    described = json.loads(felice("topics", "describe", "life", "--json"))
    assert described[0]["partition_count"] == 2
    assert described[0]["configs"] == {"retention.ms": "1000"}
    felice("topics", "alter", "life", "--partitions", "4")
    assert len(json.loads(felice("topics", "describe", "life", "--json"))[0]["partitions"]) == 4
    assert felice("topics", "delete", "life") == "Deleted topic life.\n"
    assert "life" not in felice("topics", "list").split()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("topics", "describe", "nowhere"), "Topic 'nowhere' does not exist"),
        (("topics", "create", "bad name"), "bad name"),
        (("topics", "create", "t", "--config", "no.such=1"), "no.such"),
        (("topics", "create", "t", "--config", "retention.ms=soon"), "retention.ms"),
        (("topics", "create", "t", "--replication-factor", "3"), "eplication factor"),
        (("groups", "describe", "nobody"), "'nobody' does not exist"),
        (("consume", "t", "--offset", "3"), "--offset needs --partition"),
    ],
)
def test_a_user_error_is_one_line_with_advice(felice: Run, words: tuple[str, ...], said: str) -> None:
    line = felice(*words, code=1)
    assert said in line
    assert line.count("\n") == 1
    assert line.startswith("error: ")


def test_a_broker_that_cannot_be_reached_is_named() -> None:
    command = [str(BIN / "felice"), "topics", "list", "-b", "127.0.0.1:1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S)
    assert done.returncode == 1
    assert "127.0.0.1:1" in done.stderr
    assert "Traceback" not in done.stderr


def test_lines_are_produced_and_consumed(broker: EmbeddedBroker, felice: Run) -> None:
    felice("topics", "create", "lines")
    produce(broker, "lines", "a:1\nb:2\nc:3\n", "--key-separator", ":")
    shown = felice(
        "consume",
        "lines",
        "--from-beginning",
        "--until-end",
        "-p",
        "print.key=true",
        "-p",
        "print.offset=true",
    )
    assert shown == "Offset:0\ta\t1\nOffset:1\tb\t2\nOffset:2\tc\t3\n"
    records = [
        json.loads(line)
        for line in felice("consume", "lines", "--from-beginning", "-n", "2", "--json").splitlines()
    ]
    assert [(r["offset"], r["key"], r["value"]) for r in records] == [(0, "a", "1"), (1, "b", "2")]
    assert felice("consume", "lines", "--partition", "0", "--offset", "2", "--until-end") == "3\n"


def test_a_group_is_described_with_its_lag_and_reset(broker: EmbeddedBroker, felice: Run, kafka: Run) -> None:
    felice("topics", "create", "work")
    produce(broker, "work", "".join(f"{n}\n" for n in range(10)))
    felice("consume", "work", "--group", "crew", "--from-beginning", "-n", "10")
    found = json.loads(felice("groups", "describe", "crew", "--json"))
    assert [(row["current_offset"], row["lag"]) for row in found["offsets"]] == [(10, 0)]
    assert {"group": "crew", "state": "Empty", "type": "classic", "protocol": "consumer"} in json.loads(
        felice("groups", "list", "--json")
    )
    moved = json.loads(
        felice("groups", "reset-offsets", "crew", "--topic", "work", "--to-offset", "4", "--json")
    )
    assert moved == [{"group": "crew", "topic": "work", "partition": 0, "new_offset": 4}]
    assert json.loads(felice("groups", "describe", "crew", "--json"))["offsets"][0]["lag"] == 0, (
        "a dry run moved it"
    )
    felice("groups", "reset-offsets", "crew", "--topic", "work", "--shift-by", "-3", "--execute")
    table = kafka(kafka_consumer_groups, "--describe", "--group", "crew").splitlines()
    assert next(line for line in table if line.startswith("GROUP")).split()[:6] == [
        "GROUP",
        "TOPIC",
        "PARTITION",
        "CURRENT-OFFSET",
        "LOG-END-OFFSET",
        "LAG",
    ]
    assert table[-1].split()[:6] == ["crew", "work", "0", "7", "10", "3"]
    kafka(kafka_consumer_groups, "--delete-offsets", "--group", "crew", "--topic", "work")
    assert json.loads(felice("groups", "describe", "crew", "--json"))["offsets"] == []
    assert felice("groups", "delete", "crew") == "Deleted group crew.\n"


def test_configs_are_set_shown_and_unset(felice: Run, kafka: Run) -> None:
    felice("topics", "create", "knobs")
    felice("configs", "alter", "topics", "knobs", "--set", "retention.ms=7000")
    rows = json.loads(felice("configs", "describe", "topics", "knobs", "--json"))
    assert [(row["name"], row["value"], row["source"]) for row in rows] == [
        ("retention.ms", "7000", "DYNAMIC_TOPIC_CONFIG")
    ]
    shown = kafka(kafka_configs, "--describe", "--topic", "knobs")
    assert "Dynamic configs for topic knobs are:" in shown
    assert "  retention.ms=7000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=7000" in shown
    kafka(kafka_configs, "--alter", "--topic", "knobs", "--add-config", "cleanup.policy=[delete,compact]")
    assert "cleanup.policy=delete,compact" in kafka(kafka_configs, "--describe", "--topic", "knobs")
    kafka(kafka_configs, "--alter", "--topic", "knobs", "--delete-config", "retention.ms,cleanup.policy")
    assert json.loads(felice("configs", "describe", "topics", "knobs", "--json")) == []
    everything = json.loads(felice("configs", "describe", "topics", "knobs", "--all", "--json"))
    assert {"segment.bytes", "retention.ms"} <= {row["name"] for row in everything}


def test_offsets_are_shown_and_records_deleted(
    broker: EmbeddedBroker, felice: Run, kafka: Run, tmp_path: Path
) -> None:
    felice("topics", "create", "trim")
    produce(broker, "trim", "".join(f"{n}\n" for n in range(6)))
    assert kafka(kafka_get_offsets, "--topic", "trim") == "trim:0:6\n"
    wanted = tmp_path / "offsets.json"
    wanted.write_text('{"partitions": [{"topic": "trim", "partition": 0, "offset": 4}], "version": 1}')
    assert "partition: trim-0\tlow_watermark: 4" in kafka(
        kafka_delete_records, "--offset-json-file", str(wanted)
    )
    assert kafka(kafka_get_offsets, "--topic", "trim", "--time", "earliest") == "trim:0:4\n"
    assert (
        felice("offsets", "delete-records", "trim", "--partition", "0", "--before", "-1")
        == "trim-0 begins at offset 6.\n"
    )


def test_kafka_topics_prints_what_the_original_prints(kafka: Run) -> None:
    assert (
        kafka(kafka_topics, "--create", "--topic", "known", "--partitions", "2") == "Created topic known.\n"
    )
    kafka(kafka_topics, "--create", "--topic", "known", "--if-not-exists")
    assert "already exists" in kafka(kafka_topics, "--create", "--topic", "known", code=1)
    lines = kafka(kafka_topics, "--describe", "--topic", "known").splitlines()
    # The form in which Kafka and clients' logs print ids.
    assert re.match(r"Topic: known\tTopicId: [\w-]{22}\tPartitionCount: ", lines[0])
    assert "\tPartitionCount: 2\tReplicationFactor: 1\tConfigs: " in lines[0]
    assert lines[1].startswith("\tTopic: known\tPartition: 0\tLeader: 0\tReplicas: 0\tIsr: 0")
    kafka(kafka_topics, "--delete", "--topic", "known")
    assert "does not exist" in kafka(kafka_topics, "--describe", "--topic", "known", code=1)
    assert "exactly one action" in kafka(kafka_topics, code=1)


def test_the_console_tools_pass_records_through(broker: EmbeddedBroker, kafka: Run) -> None:
    kafka(kafka_topics, "--create", "--topic", "console")
    address = ("--bootstrap-server", broker.bootstrap, "--topic", "console")
    sent = ["--property", "parse.key=true", "--property", "key.separator=,"]
    subprocess.run(
        [str(BIN / "kafka-console-producer"), *address, *sent],
        input="k,v\nx,y\n",
        text=True,
        check=True,
        timeout=COMMAND_TIMEOUT_S,
    )
    reading = ["--from-beginning", "--max-messages", "2", "--property", "print.key=true"]
    done = subprocess.run(
        [str(BIN / "kafka-console-consumer"), *address, *reading],
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT_S,
    )
    assert done.stdout == "k\tv\nx\ty\n"
    assert done.stderr == "Processed a total of 2 messages\n"


def test_a_terminated_consumer_leaves_its_group(broker: EmbeddedBroker, felice: Run) -> None:
    felice("topics", "create", "leaving")
    produce(broker, "leaving", "a\n")
    command = [
        str(BIN / "felice"),
        "consume",
        "leaving",
        "-b",
        broker.bootstrap,
        "--group",
        "g",
        "--from-beginning",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "a\n"
        process.terminate()
        assert process.wait(COMMAND_TIMEOUT_S) == 130
    found = json.loads(felice("groups", "describe", "g", "--json"))
    assert (found["state"], found["members"]) == ("Empty", [])


def test_perf_reports_records_and_rates(felice: Run) -> None:
    felice("topics", "create", "load")
    sent = json.loads(
        felice("perf", "produce", "load", "--num-records", "5000", "--record-size", "50", "--json")
    )
    assert sent["records"] == 5000
    assert sent["records_per_second"] > 0
    read = json.loads(felice("perf", "consume", "load", "--messages", "5000", "--timeout", "60000", "--json"))
    assert read["records"] == 5000


def test_a_partitions_files_are_printed_and_damage_is_reported(tmp_path: Path, felice: Run) -> None:
    with EmbeddedBroker(tmp_path / "data") as broker:
        produce(broker, "files", "a\nb\n")
    directory = tmp_path / "data" / "files-0"
    shown = felice("dump-log", str(directory), "--deep-iteration")
    assert "baseOffset: 0 lastOffset: 1 count: 2" in shown
    assert "payload: a" in shown
    segment = next(directory.glob("*.log"))
    content = bytearray(segment.read_bytes())
    content[-1] ^= 1
    segment.write_bytes(content)
    assert "the checksum of the batch at position 0 does not hold" in felice("dump-log", str(segment), code=1)
    segment.write_bytes(content[:-3])
    assert "the batch at position 0 says" in felice("dump-log", str(segment), code=1)


def test_a_partition_without_records_is_not_reported_as_damaged(tmp_path: Path, felice: Run) -> None:
    with EmbeddedBroker(tmp_path / "data") as broker:
        felice("topics", "create", "empty", "--bootstrap-server", broker.bootstrap)
    assert felice("dump-log", str(tmp_path / "data" / "empty-0")) == ""
    assert "holds no segments" in felice("dump-log", str(tmp_path), code=1)


def test_a_frame_is_printed_as_json(felice: Run) -> None:
    # ApiVersions v0, correlation id 7, client id "me".
    frame = "0000000c" + "0012" + "0000" + "00000007" + "0002" + "6d65"
    found = json.loads(felice("decode-frame", frame))
    assert found["api"] == "ApiVersions"
    assert found["header"]["correlation_id"] == 7
    assert found["header"]["client_id"] == "me"
    assert "error: " in felice("decode-frame", "0012", code=1)


def test_two_brokers_cannot_share_a_directory_or_a_port(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path / "data") as broker:
        for words, said in (
            (("--port", "0", "--data-dir", str(tmp_path / "data")), "another"),
            (
                ("--port", broker.bootstrap.rpartition(":")[2], "--data-dir", str(tmp_path / "other")),
                "in use",
            ),
        ):
            done = subprocess.run(
                [str(BIN / "felice"), "start", *words],
                capture_output=True,
                text=True,
                timeout=COMMAND_TIMEOUT_S,
            )
            assert done.returncode == 1
            assert said in done.stderr
            assert done.stderr.count("\n") == 1, done.stderr


def test_a_bad_properties_file_is_refused_with_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    for text, reason in (
        (
            "num.partitions=many",
            "Invalid value many for configuration num.partitions: Not a number of type INT",
        ),
        (
            "process.roles=broker,controller\ncontroller.quorum.voters=1@a:9093,2@b:9093",
            "controller.quorum.voters names 2 controllers; Felice has no KRaft quorum, set zookeeper.connect",
        ),
    ):
        path.write_text(f"{text}\n")
        done = subprocess.run(
            [str(BIN / "felice"), "broker", str(path)],
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
        )
        assert done.returncode == 1
        assert done.stderr == f"error: {reason}\n"


def test_a_closed_output_pipe_is_not_a_failure(broker: EmbeddedBroker, felice: Run) -> None:
    felice("topics", "create", "long")
    lines = "".join(f"{number}\n" for number in range(20_000))
    server = ("--bootstrap-server", broker.bootstrap)
    subprocess.run(
        [BIN / "felice", "produce", "long", *server],
        input=lines,
        text=True,
        check=True,
        timeout=COMMAND_TIMEOUT_S,
    )
    consume = [BIN / "felice", "consume", "long", "--from-beginning", *server]
    with subprocess.Popen(consume, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == b"0\n"
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(COMMAND_TIMEOUT_S) == 0


def test_consuming_an_unknown_topic_waits_and_names_it(felice: Run) -> None:
    said = felice("consume", "misspelt", "--until-end", "--timeout-ms", "30000", code=1)
    assert "misspelt" in said and "error: " in said


def test_offsets_of_a_file_stay_within_the_log(felice: Run, tmp_path: Path) -> None:
    felice("topics", "create", "filed")
    file = tmp_path / "offsets.csv"
    words = ("groups", "reset-offsets", "clerk", "--topic", "filed", "--from-file", str(file), "--execute")
    file.write_text("filed,0,-5\n")
    assert json.loads(felice(*words, "--json"))[0]["new_offset"] == 0
    file.write_text("filed,0,0\nelsewhere,0,3\n")
    assert "elsewhere-0" in felice(*words, code=1)


@pytest.fixture
def roomy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedBroker]:
    """A broker with two log directories, to which `felice` commands connect."""
    dirs = {"log.dirs": f"{tmp_path / 'one'},{tmp_path / 'two'}"}
    with EmbeddedBroker(tmp_path / "one", properties=dirs) as running:
        monkeypatch.setenv("FELICE_BOOTSTRAP_SERVER", running.bootstrap)
        yield running


def test_a_replica_is_moved_and_seen_in_its_new_directory(
    felice: Run, roomy: EmbeddedBroker, tmp_path: Path
) -> None:
    felice("topics", "create", "heavy")
    produce(roomy, "heavy", "x\n" * 1000)
    rows = json.loads(felice("log-dirs", "describe", "--topic", "heavy", "--json"))
    assert sorted((row["state"], row["replicas"]) for row in rows) == [("online", 0), ("online", 1)]
    assert all(0 < row["usable_bytes"] <= row["total_bytes"] for row in rows)
    empty = next(row["directory"] for row in rows if not row["replicas"])
    assert felice("log-dirs", "move", "heavy", "0", "--to", empty) == f"heavy-0 is in {empty}.\n"
    assert (Path(empty) / "heavy-0").is_dir()
    assert "online" in felice("log-dirs", "describe")
    assert "log directory is not configured" in felice(
        "log-dirs", "move", "heavy", "0", "--to", str(tmp_path), code=1
    )
    assert "there is no broker 9" in felice("log-dirs", "describe", "--broker", "9", code=1)


def test_kafka_log_dirs_prints_kafkas_json(kafka: Run, felice: Run, broker: EmbeddedBroker) -> None:
    felice("topics", "create", "located")
    lines = kafka(kafka_log_dirs, "--describe", "--topic-list", "located").splitlines()
    assert lines[:2] == [
        "Querying brokers for log directories information",
        f"Received log directory information from brokers {broker.broker.broker_id}",
    ]
    [row] = json.loads(lines[2])["brokers"][0]["logDirs"]
    assert row["error"] is None
    assert row["partitions"] == [{"partition": "located-0", "size": 0, "offsetLag": 0, "isFuture": False}]


def test_the_cluster_is_shown_as_a_whole(felice: Run, broker: EmbeddedBroker) -> None:
    felice("topics", "create", "whole", "--partitions", "3")
    status = json.loads(felice("cluster", "--json"))
    [row] = status["brokers"]
    assert row["controller"] is True
    assert row["address"] == broker.bootstrap
    assert row["leads"] == row["replicas"] == row["in_sync"] == status["partitions"] >= 3
    assert status["offline_partitions"] == status["under_replicated_partitions"] == []
    shown = felice("cluster", "--check")
    assert "Offline partitions: none" in shown
