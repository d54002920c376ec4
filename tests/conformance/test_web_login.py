"""Log in at an HTTP server as a user of the cluster, against a broker with SASL."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from felice.client.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from felice.client.error import KafkaException
from felice.env.ports import free_ports
from felice.server.process.embedded import EmbeddedBroker
from felice.web.cluster_users import ClusterUsers
from felice.web.login import CannotCheck, Login, WrongLogin
from peers.authority import Authority
from unit.web.serving_app import Serving as WebServing
from unit.web.serving_app import request_of, run

AUTHORITY = Authority()
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("web-login")
    AUTHORITY.issue().write_pem(path / "broker.pem")
    AUTHORITY.write_trust(path / "ca.pem")
    return path


@pytest.fixture(scope="module")
def broker(directory: Path) -> Iterator[EmbeddedBroker]:
    jaas = f'{PLAIN_MODULE} required user_alice="alices-secret" user_bob="bobs-secret";'
    properties = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0,SASL_SSL://127.0.0.1:0",
        "inter.broker.listener.name": "PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(directory / "broker.pem"),
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas,
        "listener.name.sasl_ssl.plain.sasl.jaas.config": jaas,
    }
    with EmbeddedBroker(directory / "data", properties=properties) as found:
        admin = AdminClient({"bootstrap.servers": found.bootstrap})
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            for user in ("carol", "ü/%,="):
                change(admin, UserScramCredentialUpsertion(user, ScramCredentialInfo(mechanism, 4096), b"c"))
        yield found
        admin.close()


def change(
    admin: AdminClient, alteration: UserScramCredentialUpsertion | UserScramCredentialDeletion
) -> None:
    for future in admin.alter_user_scram_credentials([alteration]).values():
        future.result(60)


def config(
    broker: EmbeddedBroker, directory: Path, mechanism: str, listener: str = "SASL_SSL"
) -> dict[str, str]:
    settings = {
        "bootstrap.servers": f"127.0.0.1:{broker.broker.port(listener)}",
        "security.protocol": listener,
        "sasl.mechanism": mechanism,
    }
    return settings | ({"ssl.ca.location": str(directory / "ca.pem")} if listener == "SASL_SSL" else {})


def verdict(settings: Mapping[str, str], user: str, password: str) -> str:
    try:
        asyncio.run(ClusterUsers(settings).verify(user, password))
    except WrongLogin:
        return "wrong"
    return "right"


@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize(
    ("mechanism", "user", "password", "expected"),
    [
        ("PLAIN", "alice", "alices-secret", "right"),
        ("PLAIN", "alice", "bobs-secret", "wrong"),
        ("PLAIN", "nobody", "alices-secret", "wrong"),
        ("SCRAM-SHA-256", "carol", "c", "right"),
        ("SCRAM-SHA-512", "carol", "c", "right"),
        ("SCRAM-SHA-512", "ü/%,=", "c", "right"),
        ("SCRAM-SHA-512", "carol", "d", "wrong"),
        ("SCRAM-SHA-512", "nobody", "c", "wrong"),
        ("SCRAM-SHA-512", "carol", "", "wrong"),
        ("SCRAM-SHA-512", "", "c", "wrong"),
        ("PLAIN", "alice\0", "alices-secret", "wrong"),
    ],
)
def test_the_cluster_knows_users_and_passwords(
    broker: EmbeddedBroker,
    directory: Path,
    listener: str,
    mechanism: str,
    user: str,
    password: str,
    expected: str,
) -> None:
    assert verdict(config(broker, directory, mechanism, listener), user, password) == expected


def test_the_user_of_the_configuration_itself_is_not_used(broker: EmbeddedBroker, directory: Path) -> None:
    own = {"sasl.username": "alice", "sasl.password": "alices-secret"}
    jaas = {"sasl.jaas.config": f'{PLAIN_MODULE} required username="alice" password="alices-secret";'}
    for more in (own, jaas):
        assert verdict(config(broker, directory, "PLAIN") | more, "bob", "wrong") == "wrong"
        assert verdict(config(broker, directory, "PLAIN") | more, "bob", "bobs-secret") == "right"


def test_a_bootstrap_server_that_does_not_answer_is_passed_over(
    broker: EmbeddedBroker, directory: Path
) -> None:
    settings = config(broker, directory, "PLAIN")
    dead = f"127.0.0.1:{free_ports(1)[0]}"
    settings["bootstrap.servers"] = f"{dead},{settings['bootstrap.servers']}"
    assert verdict(settings, "alice", "alices-secret") == "right"
    with pytest.raises(CannotCheck, match=f"^no broker answers: .*{dead}"):
        verdict(settings | {"bootstrap.servers": dead}, "alice", "alices-secret")


def test_a_certificate_that_is_not_trusted_is_no_wrong_password(
    broker: EmbeddedBroker, directory: Path, tmp_path: Path
) -> None:
    Authority("other").write_trust(tmp_path / "other.pem")
    settings = config(broker, directory, "PLAIN") | {"ssl.ca.location": str(tmp_path / "other.pem")}
    with pytest.raises(CannotCheck, match="the broker's certificate is not accepted"):
        verdict(settings, "alice", "alices-secret")


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"security.protocol": "PLAINTEXT"}, "log in as a user of the cluster needs"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}, "is required for OAUTHBEARER"),
        ({"security.protocol": "SASL_SSL"}, '"sasl.mechanism" is required'),
        (
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "no.such": "1"},
            "No such configuration",
        ),
    ],
)
def test_a_configuration_without_a_log_in_by_password_is_refused(
    settings: Mapping[str, str], reason: str
) -> None:
    with pytest.raises(KafkaException, match=reason):
        ClusterUsers({"bootstrap.servers": "127.0.0.1:9092", **settings})


def test_requests_are_made_as_a_user_of_the_cluster(broker: EmbeddedBroker, directory: Path) -> None:
    def asked_as(user: str, password: str) -> bytes:
        text = base64.b64encode(f"{user}:{password}".encode()).decode()
        return request_of("GET", "/user", headers={"Authorization": f"Basic {text}"})

    async def scenario(serving: WebServing) -> None:
        assert (await serving.ask(asked_as("carol", "c")))[2] == b"carol"
        assert (await serving.ask(asked_as("carol", "d")))[0] == 401
        assert (await serving.ask(asked_as("nobody", "c")))[0] == 401

    run(scenario, login=Login(ClusterUsers(config(broker, directory, "SCRAM-SHA-256"))))
