"""`felice tokens` and `kafka-delegation-tokens`, and logins of clients with the tokens that they create.

The lines of `kafka-delegation-tokens` are those of Kafka's tool.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from conformance.delegation_tokens import with_tokens
from conformance.secured import Rule, Secured
from conformance.topics import create_topic_over
from felice.cli.kafka_tools.delegation_tokens import kafka_delegation_tokens
from felice.cli.main import felice as felice_command
from felice.client.admin import AdminClient
from felice.client.error import KafkaException
from felice.security.acl import Operation, ResourceType
from peers.java import java_command, require_java

PLAIN = (
    "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
    "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="alice" password="secret";\n'
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with with_tokens(tmp_path_factory.mktemp("tokens-cli") / "data") as found:
        create_topic_over(found.admin, "flights")
        found.grant(
            Rule(ResourceType.TOPIC, "flights", Operation.ALL, principal="User:alice"),
            Rule(ResourceType.GROUP, "*", Operation.ALL, principal="User:alice"),
        )
        yield found


@pytest.fixture
def login(tmp_path: Path) -> Path:
    path = tmp_path / "alice.properties"
    path.write_text(PLAIN)
    return path


def felice(broker: Secured, login: Path, *arguments: str) -> Result:
    options = ["--bootstrap-server", broker.admin_address, "--command-config", str(login)]
    return CliRunner().invoke(felice_command, ["tokens", *arguments, *options])


def kafka(broker: Secured, login: Path, *arguments: str) -> Result:
    options = ["--bootstrap-server", broker.admin_address, "--command-config", str(login)]
    return CliRunner().invoke(kafka_delegation_tokens, [*options, *arguments])


def token_login(tmp_path: Path, token: dict[str, str]) -> Path:
    path = tmp_path / "token.properties"
    path.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="{token["token"]}" password="{token["hmac"]}" tokenauth="true";\n'
    )
    return path


def created(broker: Secured, login: Path, *options: str) -> dict[str, str]:
    result = felice(broker, login, "create", "--json", *options)
    assert result.exit_code == 0, result.output
    token: dict[str, str] = json.loads(result.output)
    return token


def test_a_token_is_created_listed_renewed_and_deleted(broker: Secured, login: Path) -> None:
    token = created(broker, login, "--renewer", "User:bob")
    assert (token["owner"], token["requester"], token["renewers"]) == ("User:alice", "User:alice", "User:bob")
    listed = json.loads(felice(broker, login, "list", "--json").output)
    assert token in listed
    assert json.loads(felice(broker, login, "list", "--owner", "User:bob", "--json").output)
    renewed = felice(broker, login, "renew", token["hmac"])
    assert re.fullmatch(r"The token expires at \S+Z\.\n", renewed.output)
    assert felice(broker, login, "delete", token["hmac"]).output == "Deleted the token.\n"
    assert token not in json.loads(felice(broker, login, "list", "--json").output)


def test_a_secret_is_printed_on_one_line_of_a_narrow_terminal(
    broker: Secured, login: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = felice(broker, login, "create").output.splitlines()
    hmac = next(line.split()[1] for line in lines if line.startswith("hmac "))
    assert felice(broker, login, "renew", hmac).exit_code == 0
    assert f"hmac       {hmac}" in felice(broker, login, "list").output.splitlines()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["renew", "not base64"], "the HMAC is not base64"),
        (["renew", "AAAA"], "DELEGATION_TOKEN_NOT_FOUND"),
        (["create", "--owner", "bob"], "expected a principal as Kind:name"),
        (["create", "--owner", "User:bob"], "DELEGATION_TOKEN_AUTHORIZATION_FAILED"),
    ],
)
def test_mistakes_are_told(broker: Secured, login: Path, arguments: list[str], message: str) -> None:
    result = felice(broker, login, *arguments)
    assert result.exit_code != 0
    assert message in f"{result.output} {result.exception}"


def test_the_own_client_logs_in_with_a_token(broker: Secured, login: Path, tmp_path: Path) -> None:
    token = created(broker, login)
    path = token_login(tmp_path, token)
    listed = felice(broker, path, "list")
    assert "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED" in f"{listed.output} {listed.exception}"
    options = ["--bootstrap-server", broker.admin_address, "--command-config", str(path)]
    assert "flights" in CliRunner().invoke(felice_command, ["topics", "list", *options]).output


def test_a_client_without_the_extension_is_refused(broker: Secured, login: Path) -> None:
    token = created(broker, login)
    with (
        AdminClient(
            {
                "bootstrap.servers": broker.admin_address,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.username": token["token"],
                "sasl.password": token["hmac"],
            }
        ) as admin,
        pytest.raises(KafkaException, match="invalid credentials"),
    ):
        admin.describe_cluster().result(60)


def test_javas_client_logs_in_with_a_token(broker: Secured, login: Path, tmp_path: Path) -> None:
    require_java()
    path = token_login(tmp_path, created(broker, login))
    tool = java_command(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", broker.admin_address, "--topic", "flights", "--from-beginning"),
        *("--max-messages", "1", "--timeout-ms", "120000", "--command-config", str(path)),
    )
    producer = java_command(
        "org.apache.kafka.tools.ConsoleProducer",
        *("--bootstrap-server", broker.admin_address, "--topic", "flights", "--command-config", str(path)),
    )
    subprocess.run(producer, input=b"LH400\n", check=True, capture_output=True, timeout=300)
    found = subprocess.run(tool, check=True, capture_output=True, timeout=300)
    assert found.stdout == b"LH400\n"


def test_the_tool_prints_kafkas_lines(broker: Secured, login: Path) -> None:
    made = kafka(broker, login, "--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob")
    assert made.exit_code == 0, made.output
    lines = made.output.split("\n")
    assert lines[0] == ("Calling create token operation with renewers :[User:bob] , max-life-time-period :-1")
    token_id = lines[1].removeprefix("Created delegation token with tokenId : ")
    assert lines[3] == (
        "TOKENID         HMAC                           OWNER           REQUESTER       RENEWERS"
        "                  ISSUEDATE       EXPIRYDATE      MAXDATE        "
    )
    date = r"\d{4}-\d\d-\d\dT\d\d:\d\d"
    row = re.fullmatch(
        rf"{token_id:<15} (\S+) User:alice      User:alice      \[User:bob\]                {date} {date} {date}",
        lines[5],
    )
    assert row is not None, lines[5]
    hmac = row[1]
    described = kafka(broker, login, "--describe", "--owner-principal", "User:alice")
    assert described.output.startswith(
        "Calling describe token operation for owners: [User:alice]\nTotal number"
    )
    assert lines[5] in described.output.split("\n")
    renewed = kafka(broker, login, "--renew", "--renew-time-period", "-1", "--hmac", hmac)
    assert re.fullmatch(
        rf"Calling renew token operation with hmac :{re.escape(hmac)} , renew-time-period :-1\n"
        rf"Completed renew operation. New expiry date : {date}\n",
        renewed.output,
    )
    ended = kafka(broker, login, "--expire", "--expiry-time-period", "-1", "--hmac", hmac)
    assert re.fullmatch(
        rf"Calling expire token operation with hmac :{re.escape(hmac)} , expire-time-period :-1\n"
        rf"Completed expire operation. New expiry date : {date}\n",
        ended.output,
    )
    assert token_id not in kafka(broker, login, "--describe").output


@pytest.mark.parametrize(
    "arguments", [[], ["--create", "--describe"], ["--create"], ["--renew", "--hmac", "AA"]]
)
def test_the_tool_refuses_incomplete_commands(broker: Secured, login: Path, arguments: list[str]) -> None:
    assert kafka(broker, login, *arguments).exit_code == 1
