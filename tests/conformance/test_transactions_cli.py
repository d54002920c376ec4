"""`felice transactions` and `kafka-transactions`, `felice cluster api-versions` and `kafka-broker-api-versions`.

Kafka's own tools are asked the same of the same broker.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from conformance.command_line import Run, run_command
from conformance.targets import Target
from conformance.topics import create_topic
from conformance.transaction_calls import WireProducer, fetch_row, leave_hanging
from conformance.wire import Wire, unique_name
from felice.cli import main
from felice.cli.kafka_tools.broker_api_versions import kafka_broker_api_versions
from felice.cli.kafka_tools.transactions import kafka_transactions
from felice.protocol.errors import ErrorCode
from peers.java import require_java, run_tool
from waiting import wait_until

TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
API_VERSIONS = "org.apache.kafka.tools.BrokerApiVersionsCommand"
# Everything that is open is old enough.
NOW = ("--max-transaction-timeout", "0")
# The longest that a broker allows: no transaction may end by itself while Java starts again and again.
TIMEOUT_MS = 900_000


@pytest.fixture(scope="module")
def broker() -> Iterator[Target]:
    with Target({"transaction.partition.verification.enable": "false"}) as target:
        yield target


@pytest.fixture
def topic(broker: Target) -> str:
    return create_topic(broker, unique_name("t"), 2)


@pytest.fixture
def felice(broker: Target, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("FELICE_BOOTSTRAP_SERVER", broker.bootstrap)

    def run(*words: str, code: int = 0) -> str:
        return run_command(main.felice, words, code, capsys)

    return run


@pytest.fixture
def kafka(broker: Target, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*words: str, code: int = 0) -> str:
        return run_command(kafka_transactions, ("--bootstrap-server", broker.bootstrap, *words), code, capsys)

    return run


def open_one(wire: Wire, topic: str, *values: bytes) -> WireProducer:
    producer = WireProducer(wire, unique_name("tx")).begin_life(TIMEOUT_MS)
    producer.write(topic, *values)
    return producer


def test_an_open_transaction_is_listed_described_and_terminated(felice: Run, wire: Wire, topic: str) -> None:
    producer = open_one(wire, topic, b"a")
    name = producer.transactional_id
    [row] = json.loads(
        felice("transactions", "list", "--state", "ongoing", "--pattern", f"{name[:-1]}.", "--json")
    )
    assert (row["transactional_id"], row["producer_id"], row["state"]) == (
        name,
        producer.producer_id,
        "Ongoing",
    )
    by_id = ("--producer-id", str(producer.producer_id))
    assert json.loads(felice("transactions", "list", *by_id, "--json")) == [row]
    assert json.loads(felice("transactions", "list", *by_id, "--longer-than-ms", "3600000", "--json")) == []
    [found] = json.loads(felice("transactions", "describe", name, "--json"))
    assert (found["state"], found["partitions"], found["timeout_ms"]) == (
        "Ongoing",
        [f"{topic}-0"],
        TIMEOUT_MS,
    )
    assert found["duration_ms"] >= 0
    assert name in felice("transactions", "list")
    felice("transactions", "force-terminate", name)
    wait_until(lambda: fetch_row(wire, topic).last_stable_offset == 2)
    assert producer.end(True) == ErrorCode.PRODUCER_FENCED
    [found] = json.loads(felice("transactions", "describe", name, "--json"))
    assert (found["start_time_ms"], found["duration_ms"]) == (None, None)


def test_hanging_transactions_are_found_and_aborted(felice: Run, wire: Wire, topic: str) -> None:
    left = leave_hanging(wire, unique_name("hanging"), topic)
    known = open_one(wire, topic, b"known to its coordinator")
    [mine, other] = json.loads(
        felice("transactions", "describe-producers", topic, "--partition", "0", "--json")
    )
    assert [mine["start_offset"], other["start_offset"]] == [0, 1]
    search = ("transactions", "find-hanging")
    assert json.loads(felice(*search, topic, "--json")) == []
    for words in ((topic,), (topic, "--partition", "0"), ("--broker", "0"), ()):
        [row] = json.loads(felice(*search, *words, "--max-timeout-minutes", "0", "--json"))
        assert (row["partition"], row["producer_id"], row["start_offset"]) == (
            f"{topic}-0",
            left.producer_id,
            0,
        )
    told = felice("transactions", "abort", topic, "0", "--start-offset", "0")
    assert f"producer {left.producer_id} from offset 0" in told
    assert json.loads(felice(*search, topic, "--max-timeout-minutes", "0", "--json")) == []
    assert fetch_row(wire, topic).last_stable_offset == 1
    known.commit()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("describe", "never-used"), "never-used"),
        (("force-terminate", "never-used"), "never-used"),
        (("list", "--state", "Sleeping"), "there is no state Sleeping; there are Empty, Ongoing"),
        (("list", "--pattern", "("), "INVALID_REGULAR_EXPRESSION|regular expression"),
        (("describe-producers", "nosuch"), "Topic 'nosuch' does not exist"),
        (("find-hanging", "--partition", "0"), "--partition needs exactly one topic"),
        (("abort", "nosuch", "0", "--start-offset", "5"), "nosuch-0"),
    ],
)
def test_a_mistake_is_one_line(felice: Run, words: tuple[str, ...], said: str) -> None:
    error = felice("transactions", *words, code=1)
    assert re.search(said, error)
    assert error.count("\n") == 1


def test_an_offset_without_an_open_transaction_is_a_one_line_error(felice: Run, topic: str) -> None:
    error = felice("transactions", "abort", topic, "0", "--start-offset", "5", code=1)
    assert f"no transaction that begins at offset 5 is open in {topic}-0" in error


@pytest.mark.timeout(1800)  # it starts Java eleven times
def test_kafka_transactions_prints_what_kafkas_own_prints(
    broker: Target, kafka: Run, wire: Wire, topic: str
) -> None:
    require_java()
    one = open_one(wire, topic, b"a", b"b")
    name = one.transactional_id
    hanging = leave_hanging(wire, unique_name("hanging"), topic)

    def same(*words: str, code_only: bool = False) -> str:
        theirs = run_tool(TRANSACTIONS, "--bootstrap-server", broker.bootstrap, *words, check=False)
        ours = kafka(*words, code=theirs.returncode)
        if code_only:
            return ours
        if theirs.returncode:
            # The reason is each client's own words.
            what = theirs.stderr.partition(": ")[0].rstrip("\n")
            assert ours.startswith(f"error: {what}"), ours
            return ours
        assert _ageless(ours) == _ageless(theirs.stdout)
        return ours

    by_name = ("--transactional-id-pattern", f"{name[:-1]}.", "--duration-filter", "0")
    assert name in same("list", *by_name)
    assert "Ongoing" in same("describe", "--transactional-id", name)
    same("describe", "--transactional-id", "never-used")
    where = ("--topic", topic, "--partition", "0")
    same("describe-producers", *where, "--broker-id", "0")
    same("find-hanging")
    assert f"{topic}\t" in same("find-hanging", *where, *NOW)
    same("abort", *where, "--start-offset", "7")
    same("abort", *where, "--producer-id", "5", "--producer-epoch", "0")
    assert kafka("abort", *where, "--start-offset", "2") == ""
    assert kafka("find-hanging", *where, *NOW).count("\n") == 1
    assert "None" in same("describe", "--transactional-id", hanging.transactional_id)
    same("describe", code_only=True)


def test_kafka_transactions_aborts_by_producer_and_terminates_by_id(
    kafka: Run, wire: Wire, topic: str
) -> None:
    one = open_one(wire, topic, b"a", b"b")
    one.commit()
    one.write(topic, b"c")
    where = ("--topic", topic, "--partition", "0")
    stale = ("--producer-epoch", "0", "--coordinator-epoch", "-1")
    assert kafka("abort", *where, "--producer-id", str(one.producer_id), *stale) == ""
    assert fetch_row(wire, topic).last_stable_offset == 5
    assert kafka("forceTerminateTransaction", "--transactionalId", one.transactional_id) == ""
    assert one.end(True) == ErrorCode.PRODUCER_FENCED
    assert kafka("find-hanging", "--broker-id", "0").startswith("Topic\tPartition\t")


WHERE = ("--topic", "nosuch", "--partition", "0")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("find-hanging", "--broker-id", "0", "--partition", "0"), "--partition argument requires --topic"),
        (("abort", *WHERE), "identified either with --start-offset"),
        (("abort", *WHERE, "--producer-id", "5"), "Missing required argument --producer-epoch"),
        (
            ("abort", *WHERE, "--start-offset", "5"),
            "Failed to validate producer state for partition nosuch-0: ",
        ),
        (("describe-producers", *WHERE, "--broker-id", "9"), "nosuch-0 on broker 9: "),
        (("list", "--transactional-id-pattern", "("), "Failed to list transactions: "),
        (
            ("forceTerminateTransaction", "--transactionalId", ""),
            "Failed to force terminate transactionalId ``: ",
        ),
    ],
)
def test_a_user_error_of_kafka_transactions_is_one_line(
    kafka: Run, words: tuple[str, ...], said: str
) -> None:
    error = kafka(*words, code=1)
    assert said in error
    assert error.count("\n") == 1


def _ageless(table: str) -> list[list[str]]:
    """The cells of a table without the duration of transactions, which grows between two calls."""
    lines = [line.split("\t") for line in table.splitlines()]
    titles = [cell.strip() for cell in lines[0]]
    if "TransactionDurationMs" in titles:
        at = titles.index("TransactionDurationMs")
        assert re.fullmatch(r"(\d+|None) *", lines[1][at]), lines
        lines = [[*line[:at], *line[at + 1 :]] for line in lines]
    return lines


# Versions


def test_versions_are_shown_with_the_brokers_that_offer_them(felice: Run) -> None:
    rows = json.loads(felice("cluster", "api-versions", "--json"))
    assert rows[0] == {"key": 0, "api": "Produce", "min": 0, "max": 13, "usable": 13, "brokers": [0]}
    assert [row["key"] for row in rows] == sorted({row["key"] for row in rows})
    assert "WriteTxnMarkers" in felice("cluster", "api-versions")
    misplaced = felice("cluster", "--json", "api-versions", code=1)
    assert misplaced == "error: options of api-versions must follow its name\n"


def test_kafka_broker_api_versions_prints_what_kafkas_own_prints(
    broker: Target, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the APIs that the original tool knows, and neither our client nor the broker."""
    require_java()
    where = ("--bootstrap-server", broker.bootstrap)
    theirs = run_tool(API_VERSIONS, *where).stdout.splitlines()
    ours = run_command(kafka_broker_api_versions, where, 0, capsys).splitlines()
    known = [line.rstrip(",") for line in ours]
    assert known == [
        line for line in (text.rstrip(",") for text in theirs) if "UNSUPPORTED" not in line or line in known
    ]
    assert ours[1].endswith(",")
    assert not ours[-2].endswith(",")
