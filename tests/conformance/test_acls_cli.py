"""`kafka-acls` prints the same as Kafka's tool except for the order of sets. `felice acls` prints tables and JSON."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from conformance.command_line import Run, run_command
from conformance.secured import ADMIN, ANONYMOUS, Secured, secured_felice
from felice.cli.acls import acls
from felice.cli.kafka_tools.acls import kafka_acls
from felice.security.acl import Operation, PatternType, Permission, ResourceType

pytestmark = pytest.mark.felice_only

TOPIC_P = "ResourcePattern(resourceType=TOPIC, name=p, patternType=LITERAL)"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured_felice(
        tmp_path_factory.mktemp("acls") / "data", {"super.users": f"{ADMIN};{ANONYMOUS}"}
    ) as secured:
        yield secured


@pytest.fixture(autouse=True)
def without_rules(broker: Secured) -> None:
    broker.clear()


@pytest.fixture
def kafka(broker: Secured, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `kafka-acls` as a super user."""

    def run(line: str, code: int = 0) -> str:
        words = ["--bootstrap-server", broker.bootstrap, *line.split()]
        return run_command(kafka_acls, words, code, capsys)

    return run


@pytest.fixture
def felice(broker: Secured, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `felice acls` as a super user."""

    def run(line: str, code: int = 0) -> str:
        action, *words = line.split()
        return run_command(acls, [action, "--bootstrap-server", broker.bootstrap, *words], code, capsys)

    return run


def entry(principal: str, operation: str, permission: str = "ALLOW", host: str = "*") -> str:
    return f"\t(principal={principal}, host={host}, operation={operation}, permissionType={permission})\n"


def test_rules_are_added_and_listed_in_kafkas_words(kafka: Run, broker: Secured) -> None:
    added = kafka("--add --allow-principal User:bob --operation Read --operation write --topic p")
    lines = entry("User:bob", "READ") + entry("User:bob", "WRITE")
    assert added == f"Adding ACLs for resource `{TOPIC_P}`: \n {lines}\n"
    assert kafka("--list --topic p") == f"Current ACLs for resource `{TOPIC_P}`:\n{lines}\n"
    assert kafka("--list --topic other") == ""
    again = kafka("--add --allow-principal User:bob --operation Read --topic p")
    assert again == f"Acl (pattern={TOPIC_P}, entry={entry('User:bob', 'READ').strip()}) already exists.\n"
    assert len(broker.acls()) == 2


def test_an_address_of_a_controller_is_refused_with_the_right_option() -> None:
    result = CliRunner().invoke(kafka_acls, ["--bootstrap-controller", "127.0.0.1:9093", "--list"])
    assert result.exit_code == 1
    assert "use --bootstrap-server: any broker changes the rules" in " ".join(result.output.split())


def test_a_producer_and_a_consumer_get_the_rules_of_their_roles(kafka: Run, broker: Secured) -> None:
    def granted() -> set[tuple[int, str, int]]:
        return {(kind, name, operation) for kind, name, _, _, _, operation, _ in broker.acls()}

    kafka("--add --allow-principal User:bob --producer --topic p --transactional-id tx --idempotent")
    producer = {
        (ResourceType.TOPIC, "p", Operation.WRITE),
        (ResourceType.TOPIC, "p", Operation.DESCRIBE),
        (ResourceType.TOPIC, "p", Operation.CREATE),
        (ResourceType.TRANSACTIONAL_ID, "tx", Operation.WRITE),
        (ResourceType.TRANSACTIONAL_ID, "tx", Operation.DESCRIBE),
        (ResourceType.CLUSTER, "kafka-cluster", Operation.IDEMPOTENT_WRITE),
    }
    assert granted() == producer
    kafka("--add --allow-principal User:bob --consumer --topic p --group g")
    consumer = {(ResourceType.TOPIC, "p", Operation.READ), (ResourceType.GROUP, "g", Operation.READ)}
    assert granted() == producer | consumer
    kafka("--remove --allow-principal User:bob --producer --topic p --force")
    assert granted() == (producer | consumer) - {row for row in producer if row[0] == ResourceType.TOPIC}


def test_denied_hosts_and_prefixes_are_added(kafka: Run, broker: Secured) -> None:
    kafka(
        "--add --deny-principal User:eve --deny-host 10.0.0.1 --deny-host 10.0.0.2 --topic a --group b"
        " --resource-pattern-type prefixed"
    )
    assert broker.acls() == {
        (kind, name, PatternType.PREFIXED, "User:eve", host, Operation.ALL, Permission.DENY)
        for kind, name in ((ResourceType.TOPIC, "a"), (ResourceType.GROUP, "b"))
        for host in ("10.0.0.1", "10.0.0.2")
    }


def test_every_kind_of_resource_has_an_option(kafka: Run, broker: Secured) -> None:
    kafka("--add --allow-principal User:bob --operation ClusterAction --cluster")
    kafka("--add --allow-principal User:bob --operation Describe --delegation-token tok")
    kafka("--add --allow-principal User:bob --operation CreateTokens --user-principal User:al")
    kafka("--add --allow-principal User:bob --transactional-id t --group g --operation Describe")
    assert {row[0] for row in broker.acls()} == {
        ResourceType.CLUSTER,
        ResourceType.DELEGATION_TOKEN,
        ResourceType.USER,
        ResourceType.TRANSACTIONAL_ID,
        ResourceType.GROUP,
    }
    assert "resourceType=CLUSTER, name=kafka-cluster" in kafka("--list")
    assert "name=User:al" in kafka("--list --user-principal User:al")


def test_a_list_is_limited_to_principals_and_patterns(kafka: Run) -> None:
    kafka("--add --allow-principal User:bob --topic p")
    kafka("--add --allow-principal User:al --topic pre --resource-pattern-type prefixed")
    listed = kafka("--list --principal User:al --principal User:bob")
    prefixed = "ResourcePattern(resourceType=TOPIC, name=pre, patternType=PREFIXED)"
    assert listed == (
        f"ACLs for principal `User:al`\nCurrent ACLs for resource `{prefixed}`:\n{entry('User:al', 'ALL')}\n"
        f"ACLs for principal `User:bob`\nCurrent ACLs for resource `{TOPIC_P}`:\n{entry('User:bob', 'ALL')}\n"
    )
    assert prefixed in kafka("--list --topic prefix --resource-pattern-type match")
    assert kafka("--list --topic prefix --resource-pattern-type any") == ""


def test_a_removal_asks_first(kafka: Run, broker: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    kafka("--add --allow-principal User:bob --operation Read --operation Write --topic p")
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    asked = kafka("--remove --allow-principal User:bob --operation Read --topic p")
    assert asked == (
        f"Are you sure you want to remove ACLs: \n {entry('User:bob', 'READ')}"
        f" from resource filter `{TOPIC_P}`? (y/n)\n"
    )
    assert len(broker.acls()) == 2
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    kafka("--remove --allow-principal User:bob --operation Read --topic p")
    assert len(broker.acls()) == 1
    monkeypatch.setattr("sys.stdin", io.StringIO("Y\n"))
    asked = kafka("--remove --topic p")
    assert asked == f"Are you sure you want to delete all ACLs for resource filter `{TOPIC_P}`? (y/n)\n"
    assert not broker.acls()


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("--add --list", "exactly one action"),
        ("", "exactly one action"),
        ("--add --topic t", "--allow-principal, --deny-principal"),
        ("--add --allow-principal bob --topic t", "principalType:principalName but got bob"),
        ("--add --allow-principal user:bob --topic t", "would never apply; did you mean User:bob?"),
        ("--add --deny-principal USER:bob --topic t", "would never apply; did you mean User:bob?"),
        ("--add --allow-principal User:b --operation Read", "at least one resource"),
        ("--add --allow-principal User:b --operation Nope --topic t", "there is no operation Nope"),
        ("--add --allow-principal User:b --operation Create --group g", "ResourceType GROUP only supports"),
        ("--add --allow-principal User:b --producer --group g", "With --producer"),
        ("--add --allow-principal User:b --consumer --topic t", "With --consumer"),
        ("--add --allow-principal User:b --consumer --topic t --group g --cluster", "With --consumer"),
        ("--add --allow-principal User:b --topic t --idempotent --consumer --group g", "--idempotent"),
        ("--add --allow-principal User:b --producer --operation Read --topic t", "cannot be used with"),
        ("--add --allow-principal User:b --topic t --resource-pattern-type any", "not valid when adding"),
        ("--add --allow-principal User:b --topic t --resource-pattern-type odd", "odd"),
        ("--add --allow-host 1.1.1.1 --topic t", "--allow-principal"),
        ("--list --producer", "cannot be used with"),
        ("--remove --force", "at least one resource"),
        ("--add --allow-principal User:b --topic a/b", "cannot hold the resource name"),
    ],
)
def test_a_user_error_is_one_line(line: str, reason: str, kafka: Run, broker: Secured) -> None:
    assert reason in kafka(line, code=1)
    assert not broker.acls()


def test_felice_acls_prints_tables_and_json(felice: Run, broker: Secured) -> None:
    row = {
        "resource": "TOPIC",
        "name": "p",
        "pattern": "PREFIXED",
        "principal": "User:bob",
        "host": "10.0.0.0/8",
        "operation": "DESCRIBE_CONFIGS",
        "permission": "ALLOW",
    }
    rule = "--allow-principal User:bob --allow-host 10.0.0.0/8 --operation DescribeConfigs --topic p --pattern prefixed"
    assert json.loads(felice(f"add {rule} --json")) == [row]
    assert json.loads(felice("list --json")) == [row]
    assert json.loads(felice("list --principal User:al --json")) == []
    assert "DESCRIBE_CONFIGS" in felice("list")
    assert json.loads(felice(f"remove {rule} --json")) == [row]
    assert not broker.acls()


def test_a_broker_without_authorizer_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from felice.server.process.embedded import EmbeddedBroker

    with EmbeddedBroker(tmp_path / "data") as open_broker:
        words = ["list", "--bootstrap-server", open_broker.bootstrap]
        assert "No Authorizer is configured" in run_command(acls, words, 1, capsys)


def test_the_tools_log_in_with_a_file_of_properties(
    broker: Secured, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    login = tmp_path / "admin.properties"
    login.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=admin\nsasl.password=secret\n"
    )
    connection = ["--bootstrap-server", broker.admin_address, "--command-config", str(login)]
    words = [*connection, "--add", "--allow-principal", "User:bob", "--topic", "p"]
    run_command(kafka_acls, words, 0, capsys)
    assert json.loads(run_command(acls, ["list", *connection, "--json"], 0, capsys))[0]["name"] == "p"
    login.write_text(login.read_text().replace("secret", "wrong"))
    assert run_command(acls, ["list", *connection], 1, capsys)
