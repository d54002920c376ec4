"""A cluster of three from the command line: status, reassignments, elections, and errors of the user."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import pytest
from confluent_kafka import Producer

from conformance.command_line import COMMAND_TIMEOUT_S, Run, run_command
from felice.cli import cluster as cli_cluster
from felice.cli import main
from felice.cli.kafka_tools.cluster import kafka_cluster
from felice.cli.kafka_tools.dump_log import kafka_dump_log
from felice.cli.kafka_tools.leader_election import kafka_leader_election
from felice.cli.kafka_tools.reassign_partitions import kafka_reassign_partitions
from felice.cli.kafka_tools.topics import kafka_topics
from felice.testing import Cluster
from peers.java import require_java, run_tool
from waiting import wait_until

pytestmark = pytest.mark.felice_only

REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
ELECTION = "org.apache.kafka.tools.LeaderElectionCommand"
CLUSTER_TOOL = "org.apache.kafka.tools.ClusterTool"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    # Leaders move only when the test moves them.
    settings = {"auto.leader.rebalance.enable": "false"}
    with Cluster(brokers=3, properties=settings) as started:
        yield started


@pytest.fixture(autouse=True)
def whole(cluster: Cluster) -> Iterator[None]:
    """Starts the brokers again that a test stopped."""
    yield
    for broker_id in (1, 2, 3):
        cluster.start_broker(broker_id)
    cluster.wait_in_sync(COMMAND_TIMEOUT_S)


@pytest.fixture
def felice(cluster: Cluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("FELICE_BOOTSTRAP_SERVER", cluster.bootstrap)
    # A broker of a loaded machine answers late, and is not dead.
    monkeypatch.setattr(cli_cluster, "_BRIEF", dict.fromkeys(cli_cluster._BRIEF, 60_000))

    def run(*words: str, code: int = 0) -> str:
        return run_command(main.felice, words, code, capsys)

    return run


@pytest.fixture
def kafka(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(tool: click.Command, *words: str, code: int = 0) -> str:
        return run_command(tool, ("--bootstrap-server", cluster.bootstrap, *words), code, capsys)

    return run


def theirs(main_class: str, cluster: Cluster, *words: str) -> list[str]:
    """Returns what the original tool prints, if it succeeds."""
    done = run_tool(main_class, "--bootstrap-server", cluster.bootstrap, *words)
    return done.stdout.rstrip("\n").splitlines()


def plan(path: Path, moves: dict[tuple[str, int], list[int]]) -> str:
    rows = [
        {"topic": topic, "partition": number, "replicas": replicas}
        for (topic, number), replicas in moves.items()
    ]
    path.write_text(json.dumps({"version": 1, "partitions": rows}))
    return str(path)


def fill(cluster: Cluster, topic: str, mebibytes: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 5})
    for _ in range(mebibytes * 16):
        producer.produce(topic, bytes(64 * 1024), partition=0)
    assert producer.flush(COMMAND_TIMEOUT_S) == 0


def replicas_of(cluster: Cluster, topic: str, partition: int = 0) -> tuple[int, ...]:
    found = cluster.image.partition(topic, partition)
    assert found is not None
    return found.replicas


def throttles(felice: Run, topic: str) -> dict[str, Any]:
    """Every option that a throttle sets, on topics and on brokers."""
    found = {}
    for kind, names in (("topics", [topic]), ("brokers", ["1", "2", "3"])):
        for name in names:
            for row in json.loads(felice("configs", "describe", kind, name, "--json")):
                if "throttled" in row["name"] and row["source"].startswith("DYNAMIC"):
                    found[name, row["name"]] = row["value"]
    return found


# The cluster as a whole


def test_a_broker_that_is_down_is_shown_and_fails_the_check(felice: Run, cluster: Cluster) -> None:
    felice("topics", "create", "seen", "--replica-assignment", "3:1,2:1")
    felice("topics", "create", "alone", "--replica-assignment", "3")
    felice("cluster", "--check")
    cluster.kill_broker(3)
    cluster.wait_until(lambda found: found.leader("seen", 0) == 1)
    status = json.loads(felice("cluster", "--json"))
    assert [row["broker"] for row in status["brokers"]] == [1, 2]
    assert status["missing_brokers"] == [3]
    assert status["offline_partitions"] == ["alone-0"]
    assert {"alone-0", "seen-0"} <= set(status["not_led_by_preferred"])
    assert "seen-0" in status["under_replicated_partitions"]
    assert "seen-1" not in status["under_replicated_partitions"]
    assert "error: partitions without a leader: 1; partitions that lack" in felice(
        "cluster", "--check", code=1
    )
    cluster.start_broker(3)
    cluster.wait_in_sync(COMMAND_TIMEOUT_S)
    assert "error: only 3 of 4 brokers are registered" in felice(
        "cluster", "--check", "--brokers", "4", code=1
    )
    assert "--brokers needs --check" in felice("cluster", "--brokers", "3", code=1)
    shown = felice("cluster", "--check", "--brokers", "3")
    assert "Offline partitions: none" in shown
    assert "Not led by the preferred replica: 1\n  seen  0\n" in shown


@pytest.mark.parametrize("how", ["refuses", "keeps silent"])
def test_a_dead_broker_that_is_still_registered_fails_the_check(
    how: str, felice: Run, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_told() -> bool:
        # On a loaded machine the other brokers may not answer in time, either; then it is asked again.
        said = felice("cluster", "--check", code=1)
        return said.startswith("error: broker 3 does not answer: ")

    with unreachable(cluster, 3) as port:
        if how == "keeps silent":
            with (
                socket.create_server(("127.0.0.1", port), backlog=100),
                monkeypatch.context() as patched,
            ):
                patched.setattr(cli_cluster, "_BRIEF", dict.fromkeys(cli_cluster._BRIEF, 500))
                wait_until(is_told)
        else:
            assert is_told()
    felice("cluster", "--check", "--brokers", "3")


@contextmanager
def unreachable(cluster: Cluster, broker_id: int) -> Iterator[int]:
    """Makes the broker unreachable while its session stays alive; yields its port."""
    running = cluster._running
    [listener] = running.cluster.brokers[broker_id].listeners
    port = listener.port
    running.run(listener.stop_accepting())
    try:
        yield port
    finally:
        cluster.kill_broker(broker_id)
        cluster.start_broker(broker_id)
        cluster.wait_in_sync(COMMAND_TIMEOUT_S)


def test_an_unreachable_address_is_a_one_line_error(felice: Run) -> None:
    said = felice("cluster", "-b", "127.0.0.1:1", code=1)
    assert said.count("\n") == 1, said


def test_topics_are_created_with_the_given_assignment(felice: Run, cluster: Cluster) -> None:
    felice("topics", "create", "placed", "--replica-assignment", "3:1,1:2")
    assert replicas_of(cluster, "placed", 0) == (3, 1)
    assert replicas_of(cluster, "placed", 1) == (1, 2)
    felice("topics", "create", "counted", "--partitions", "2", "--replication-factor", "3")
    assert sorted(replicas_of(cluster, "counted", 1)) == [1, 2, 3]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--replication-factor", "4"), "replication factor"),
        (("--replica-assignment", "1:9"), "9"),
        (("--replica-assignment", "1:1"), "names a broker twice"),
        (("--replica-assignment", "one:two"), "expected replicas like 0:1,1:2"),
        (("--replica-assignment", "1:2", "--partitions", "3"), "leave the others out"),
    ],
)
def test_an_impossible_placement_is_one_line(felice: Run, options: tuple[str, ...], said: str) -> None:
    error = felice("topics", "create", "impossible", *options, code=1)
    assert said in error
    assert error.count("\n") == 1


# Moves


def test_a_reassignment_is_planned_throttled_listed_and_verified(
    felice: Run, cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    felice("topics", "create", "heavy", "--replica-assignment", "1")
    fill(cluster, "heavy", 32)  # for a minute under the first throttle
    path = plan(tmp_path / "plan.json", {("heavy", 0): [2, 3]})
    before = json.loads(felice("reassign", "execute", path, "--throttle", "1000000"))
    assert [row["replicas"] for row in before["partitions"]] == [[1]]
    assert throttles(felice, "heavy") == {
        ("heavy", "leader.replication.throttled.replicas"): "0:1",
        ("heavy", "follower.replication.throttled.replicas"): "0:2,0:3",
        **{
            (broker, f"{side}.replication.throttled.rate"): "1000000"
            for broker in "123"
            for side in ("leader", "follower")
        },
    }
    [row] = json.loads(felice("reassign", "list", "--json"))
    assert (row["partition"], row["adding"], row["removing"]) == ("heavy-0", [2, 3], [1])
    [row] = json.loads(felice("reassign", "verify", path, "--json"))
    assert row["state"] == "in progress"
    assert throttles(felice, "heavy")
    refused = felice("reassign", "execute", path, code=1)
    assert "1 partitions are being reassigned; wait for them, or give --additional" in refused
    felice("configs", "alter", "brokers", "2", "--set", "follower.replication.throttled.rate=100000000")
    felice("configs", "alter", "brokers", "3", "--set", "follower.replication.throttled.rate=100000000")
    felice("configs", "alter", "brokers", "1", "--set", "leader.replication.throttled.rate=100000000")
    felice("reassign", "verify", path, "--wait")
    assert replicas_of(cluster, "heavy") == (2, 3)
    assert throttles(felice, "heavy") == {}
    assert json.loads(felice("reassign", "list", "--json")) == []


def test_a_cancelled_move_leaves_the_partition_and_no_throttle(
    felice: Run, cluster: Cluster, tmp_path: Path
) -> None:
    felice("topics", "create", "staying", "--replica-assignment", "1")
    fill(cluster, "staying", 4)
    path = plan(tmp_path / "plan.json", {("staying", 0): [2]})
    felice("reassign", "execute", path, "--throttle", "10000")
    assert felice("reassign", "cancel", path) == "1 moves were cancelled.\n"
    cluster.wait_until(lambda found: replicas_of(found, "staying") == (1,))
    assert throttles(felice, "staying") == {}
    # What is not where the plan wants it is no success.
    assert main.run(main.felice, ("reassign", "verify", path)) == 1


def test_a_generated_plan_can_be_carried_out(felice: Run, cluster: Cluster, tmp_path: Path) -> None:
    felice("topics", "create", "spread", "--replica-assignment", "1:2,1:2,1:2")
    path = tmp_path / "plan.json"
    path.write_text(felice("reassign", "generate", "spread", "--brokers", "1,2,3", "--seed", "7"))
    felice("reassign", "execute", str(path))
    felice("reassign", "verify", str(path), "--wait")
    leaders = {replicas_of(cluster, "spread", number)[0] for number in range(3)}
    assert leaders == {1, 2, 3}


WRONG_PLANS = [
    ({("nosuch", 0): [1]}, "there is no topic nosuch"),
    ({("strict", 9): [1]}, "there is no partition strict-9"),
    ({("strict", 0): [1, 9]}, "there is no broker 9; there are 1,2,3"),
    ({("strict", 0): [1, 1]}, "each broker once"),
    ({("strict", 0): []}, "at least one replica"),
]


@pytest.mark.parametrize(("moves", "said"), WRONG_PLANS)
def test_a_plan_that_cannot_be_carried_out_changes_nothing(
    felice: Run, kafka: Run, tmp_path: Path, moves: dict[tuple[str, int], list[int]], said: str
) -> None:
    if "strict" not in felice("topics", "list").split():
        felice("topics", "create", "strict", "--replica-assignment", "1:2")
    path = plan(tmp_path / "plan.json", moves)
    mine = felice("reassign", "execute", path, "--throttle", "1000", code=1)
    named = kafka(kafka_reassign_partitions, "--execute", "--reassignment-json-file", path, code=1)
    for error in (mine, named):
        assert said in error
        assert error.count("\n") == 1
    assert throttles(felice, "strict") == {}


def test_kafka_reassign_partitions_prints_what_kafkas_own_prints(
    felice: Run, kafka: Run, cluster: Cluster, tmp_path: Path
) -> None:
    require_java()
    felice("topics", "create", "compared", "--replica-assignment", "1:2,2:1")
    path = plan(tmp_path / "plan.json", {("compared", 0): [3, 1], ("compared", 1): [2, 1]})
    missing = plan(tmp_path / "missing.json", {("compared", 9): [3, 1]})
    file = "--reassignment-json-file"

    def same(*words: str) -> list[str]:
        printed = theirs(REASSIGN, cluster, *words)
        assert kafka(kafka_reassign_partitions, *words).splitlines() == printed
        return printed

    same("--list")
    assert "but replica set is 1,2 rather than 3,1." in "".join(same("--verify", file, path))
    assert (
        "but replica set is  rather than 3,1." in same("--verify", file, missing, "--preserve-throttles")[1]
    )
    execute = ("--execute", file, path, "--throttle", "1000000")
    printed = theirs(REASSIGN, cluster, *execute)
    felice("reassign", "verify", path, "--wait")
    ours = kafka(kafka_reassign_partitions, *execute).splitlines()
    # The third line has the replicas before, which the first run changed, and its directories.
    assert ours[:2] + ours[3:] == printed[:2] + printed[3:]
    assert json.loads(ours[2])["partitions"][0]["replicas"] == [3, 1]
    felice("reassign", "verify", path, "--wait", "--preserve-throttles")
    same("--verify", file, path)
    # It runs two sentences together; ours has a line for each.
    cancelled = "\n".join(theirs(REASSIGN, cluster, "--cancel", file, path))
    cancelled = cancelled.replace("None of the specified partition moves are active.", "")
    assert kafka(kafka_reassign_partitions, "--cancel", file, path).rstrip("\n") == cancelled


# Elections


def test_leadership_goes_back_to_the_preferred_replica(felice: Run, cluster: Cluster) -> None:
    felice("topics", "create", "led", "--replica-assignment", "2:1,3:1")
    cluster.stop_broker(2)
    assert cluster.leader("led", 0) == 1
    cluster.start_broker(2)
    cluster.wait_in_sync(COMMAND_TIMEOUT_S)
    rows = json.loads(felice("elect-leaders", "led", "--json"))
    assert rows == [
        {"partition": "led-0", "result": "elected"},
        {"partition": "led-1", "result": "ELECTION_NOT_NEEDED"},
    ]
    cluster.wait_until(lambda found: found.leader("led", 0) == 2)


def test_an_unclean_election_makes_a_live_replica_leader(felice: Run, kafka: Run, cluster: Cluster) -> None:
    felice("topics", "create", "risky", "--replica-assignment", "2:3")
    cluster.stop_broker(3)
    fill(cluster, "risky", 1)
    cluster.kill_broker(2)
    cluster.start_broker(3)
    cluster.wait_until(lambda found: 3 in found.image.brokers and found.leader("risky") == -1)
    one = ("--topic", "risky", "--partition", "0")
    refused = kafka(kafka_leader_election, "--election-type", "preferred", *one, code=1)
    assert refused == "error: 1 replica(s) could not be elected\n"
    said = kafka(kafka_leader_election, "--election-type", "unclean", *one)
    assert said == "Successfully completed leader election (UNCLEAN) for partitions risky-0\n"
    cluster.wait_until(lambda found: found.leader("risky") == 3)


def test_an_impossible_election_is_a_one_line_error(felice: Run, kafka: Run, tmp_path: Path) -> None:
    assert "Topic 'nosuch' does not exist" in felice("elect-leaders", "nosuch", code=1)
    assert "name topics, or give --all" in felice("elect-leaders", code=1)
    assert "--partition needs exactly one topic" in felice(
        "elect-leaders", "a", "b", "--partition", "0", code=1
    )
    broken = tmp_path / "broken.json"
    broken.write_text("{bad")
    way = ("--election-type", "preferred")
    said = kafka(kafka_leader_election, *way, "--path-to-json-file", str(broken), code=1)
    assert "is not JSON" in said
    assert said.count("\n") == 1


def test_kafka_leader_election_prints_what_kafkas_own_prints(
    felice: Run, kafka: Run, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    require_java()
    felice("topics", "create", "elected", "--replica-assignment", "2:1")
    needless = ("--election-type", "preferred", "--topic", "elected", "--partition", "0")
    assert kafka(kafka_leader_election, *needless).splitlines() == theirs(ELECTION, cluster, *needless)
    printed = []
    for elect in (
        lambda: kafka(kafka_leader_election, *needless).splitlines(),
        lambda: theirs(ELECTION, cluster, *needless),
    ):
        cluster.stop_broker(2)
        cluster.start_broker(2)
        cluster.wait_in_sync(COMMAND_TIMEOUT_S)
        printed.append(elect())
    assert printed[0] == printed[1]
    assert "Successfully completed" in printed[0][0]


# Kafka's other names


def test_kafka_cluster_prints_what_kafkas_own_prints(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    require_java()
    for action in ("cluster-id", "list-endpoints"):
        words = (action, "--bootstrap-server", cluster.bootstrap)
        printed = run_tool(CLUSTER_TOOL, *words).stdout
        assert run_command(kafka_cluster, words, 0, capsys) == printed


def test_kafka_dump_log_prints_a_segment(
    felice: Run, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    felice("topics", "create", "dumped", "--replica-assignment", "2")
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    producer.produce("dumped", b"a value")
    assert producer.flush(COMMAND_TIMEOUT_S) == 0
    path = cluster._running.cluster.brokers[2].directories[0].path / "dumped-0" / f"{0:020}.log"
    shown = run_command(kafka_dump_log, ("--files", str(path), "--print-data-log"), 0, capsys)
    assert shown.startswith(f"Dumping {path}\nLog starting offset: 0\nbaseOffset: 0 lastOffset: 0 count: 1")
    assert shown.endswith("payload: a value\n")
    assert "| " not in run_command(kafka_dump_log, ("--files", str(path)), 0, capsys)
    assert "there is no file /no/such" in run_command(
        kafka_dump_log, ("--files", f"{path},/no/such"), 1, capsys
    )


def test_kafka_topics_names_the_under_replicated(felice: Run, kafka: Run, cluster: Cluster) -> None:
    felice("topics", "create", "thin", "--replica-assignment", "1:3")
    cluster.kill_broker(3)
    cluster.wait_until(lambda found: found.isr("thin") == (1,))
    shown = kafka(kafka_topics, "--describe", "--topic", "thin", "--under-replicated-partitions")
    assert "Replicas: 1,3\tIsr: 1\t" in shown
