"""Logins at a real broker: the order of requests, what failures say, and SCRAM users in the metadata store."""

from __future__ import annotations

import base64
import contextlib
import logging
import random
import struct
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer

from conformance.topics import wait_until
from conformance.wire import ConnectionClosed, Wire
from felice.config import ConfigError
from felice.metadata import layout
from felice.metadata.client_entity import ClientEntity
from felice.protocol.connection import SMALL_REQUEST_ELEMENTS
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from felice.protocol.messages.api_versions import ApiVersionsRequest
from felice.protocol.messages.describe_cluster import DescribeClusterRequest
from felice.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from felice.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from felice.protocol.messages.elect_leaders import ElectLeadersRequest
from felice.protocol.messages.find_coordinator import FindCoordinatorRequest
from felice.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from felice.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from felice.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from felice.protocol.messages.sasl_handshake import SaslHandshakeRequest
from felice.security.sasl.mechanism import ClientMechanism
from felice.security.sasl.plain import PlainClient
from felice.security.sasl.scram import ScramClient, salted
from felice.server.process.embedded import EmbeddedBroker

PREFIX = "listener.name.external."
LISTENERS = "PLAINTEXT://127.0.0.1:0,EXTERNAL://127.0.0.1:0"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SHA_256, SHA_512 = 1, 2


def settings(**more: str) -> dict[str, str]:
    return {
        "listeners": LISTENERS,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,EXTERNAL:SASL_PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        f"{PREFIX}sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        f"{PREFIX}plain.sasl.jaas.config": f'{MODULE} required user_alice="alices-secret" user_bob="bobs-secret";',
        **{name.replace("_", "."): value for name, value in more.items()},
    }


@contextlib.contextmanager
def running(directory: Path, properties: Mapping[str, str] | None = None) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(directory / "data", properties=properties or settings()) as broker:
        yield broker


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    with running(tmp_path_factory.mktemp("sasl")) as found:
        yield found


def secure_port(broker: EmbeddedBroker) -> int:
    return broker.broker.port("EXTERNAL")


@pytest.fixture
def wire(broker: EmbeddedBroker) -> Iterator[Wire]:
    with Wire(f"127.0.0.1:{secure_port(broker)}") as found:
        yield found


def connect(broker: EmbeddedBroker) -> Wire:
    return Wire(f"127.0.0.1:{secure_port(broker)}")


def authenticate(wire: Wire, client: ClientMechanism, version: int = 2) -> Any:
    """The last answer of a login after its handshake."""
    token: bytes | None = client.first()
    while token is not None:
        answer = wire.ask(SaslAuthenticateRequest(auth_bytes=token), version)
        if answer.error_code:
            return answer
        token = client.respond(bytes(answer.auth_bytes))
    return answer


def log_in(wire: Wire, client: ClientMechanism, version: int = 2) -> Any:
    handshake = wire.ask(SaslHandshakeRequest(mechanism=client.name))
    assert handshake.error_code == 0
    return authenticate(wire, client, version)


def scram(
    user: str = "carol", password: str = "carols-secret", mechanism: str = "SCRAM-SHA-256"
) -> ScramClient:
    return ScramClient(mechanism, user, password, f"nonce{random.getrandbits(64)}")


def answers(wire: Wire) -> bool:
    return bool(wire.ask(MetadataRequest(topics=[])).brokers)


# The order of a login (security rules 1 to 5)


def test_versions_are_told_before_a_login(wire: Wire) -> None:
    """4: the full list comes before authentication."""
    response = wire.ask(ApiVersionsRequest(client_software_name="a", client_software_version="1"))
    assert {17, 36, 0, 1} <= {row.api_key for row in response.api_keys}
    assert log_in(wire, PlainClient("alice", "alices-secret")).error_code == 0
    assert answers(wire)


def test_versions_may_be_asked_again_after_an_error_and_not_after_an_answer(wire: Wire) -> None:
    assert wire.ask(ApiVersionsRequest(client_software_name="@"), 3).error_code == ErrorCode.INVALID_REQUEST
    wire.send_frame(struct.pack(">hhih", 18, 99, 7, -1))
    assert struct.unpack(">ih", wire.read_frame()[:6]) == (7, ErrorCode.UNSUPPORTED_VERSION)
    assert wire.ask(ApiVersionsRequest(), 0).error_code == 0
    wire.send(ApiVersionsRequest(), 0)
    assert wire.is_closed_by_peer()


@pytest.mark.parametrize("asks_versions", [False, True])
def test_another_request_before_the_handshake_closes_without_a_byte(wire: Wire, asks_versions: bool) -> None:
    if asks_versions:
        wire.ask(ApiVersionsRequest(), 0)
    wire.send(MetadataRequest(topics=[]))
    assert wire.is_closed_by_peer()


def test_another_request_between_handshake_and_token_gets_its_error_and_is_closed(wire: Wire) -> None:
    wire.ask(SaslHandshakeRequest(mechanism="PLAIN"))
    assert wire.ask(DescribeClusterRequest()).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert wire.is_closed_by_peer()


def test_a_large_request_between_handshake_and_token_gets_its_error_and_is_closed(wire: Wire) -> None:
    wire.ask(SaslHandshakeRequest(mechanism="PLAIN"))
    large = MetadataRequest(topics=[MetadataRequestTopic(name="t")] * (SMALL_REQUEST_ELEMENTS + 1))
    assert wire.ask(large, 13).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert wire.is_closed_by_peer()


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (FindCoordinatorRequest(coordinator_keys=["g"]), 6),
        (ElectLeadersRequest(), 0),
        (MetadataRequest(), 12),
    ],
)
def test_a_request_whose_response_has_no_place_for_the_error_closes_without_a_byte(
    wire: Wire, caplog: pytest.LogCaptureFixture, request_: object, version: int
) -> None:
    wire.ask(SaslHandshakeRequest(mechanism="PLAIN"))
    wire.send(request_, version)
    assert wire.is_closed_by_peer()
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_bare_tokens_follow_the_old_handshake(wire: Wire) -> None:
    """16: SaslHandshake v0 and raw tokens."""
    assert wire.ask(SaslHandshakeRequest(mechanism="PLAIN"), 0).error_code == 0
    wire.send_frame(b"\0alice\0alices-secret")
    assert wire.read_frame() == b""
    assert answers(wire)


def test_bare_tokens_of_scram_follow_the_old_handshake(broker: EmbeddedBroker, wire: Wire) -> None:
    set_password(broker, "carol", "carols-secret")
    assert wire.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 0).error_code == 0
    client = scram()
    wire.send_frame(client.first())
    proof = client.respond(wire.read_frame())
    assert proof is not None
    wire.send_frame(proof)
    assert client.respond(wire.read_frame()) is None
    assert answers(wire)


def test_a_wrong_bare_token_closes_without_a_byte(wire: Wire) -> None:
    wire.ask(SaslHandshakeRequest(mechanism="PLAIN"), 0)
    wire.send_frame(b"\0alice\0wrong")
    assert wire.is_closed_by_peer()


def test_an_unknown_mechanism_is_answered_with_those_that_exist(wire: Wire) -> None:
    """17: error 33, the list, and the end of the connection."""
    response = wire.ask(SaslHandshakeRequest(mechanism="GSSAPI"))
    assert response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert response.mechanisms == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
    assert wire.is_closed_by_peer()


@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("nobody", "alices-secret")])
def test_wrong_users_and_passwords_are_told_alike_and_late(wire: Wire, user: str, password: str) -> None:
    """18: error 58, no hint at users, a delay, and the end of the connection."""
    wire.ask(SaslHandshakeRequest(mechanism="PLAIN"))
    began = time.monotonic()
    answer = authenticate(wire, PlainClient(user, password))
    assert time.monotonic() - began >= 0.1
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.error_message == "Authentication failed: Invalid username or password"
    assert wire.is_closed_by_peer()


def test_a_client_with_a_wrong_password_cannot_go_on_by_pipelining(wire: Wire) -> None:
    wire.ask(SaslHandshakeRequest(mechanism="PLAIN"))
    wrong, right = (
        SaslAuthenticateRequest(auth_bytes=b"\0alice\0" + word) for word in (b"x", b"alices-secret")
    )
    first = wire.send(wrong, 2)
    wire.send(right, 2)
    wire.send(MetadataRequest(topics=[]))
    assert wire.receive(wrong, 2, first).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert wire.is_closed_by_peer()


def test_a_login_may_be_pipelined(wire: Wire) -> None:
    requests = [
        (ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3),
        (SaslHandshakeRequest(mechanism="PLAIN"), 1),
        (SaslAuthenticateRequest(auth_bytes=b"\0alice\0alices-secret"), 2),
        (MetadataRequest(topics=[]), 12),
    ]
    sent = [(request, version, wire.send(request, version)) for request, version in requests]
    found = [wire.receive(*request) for request in sent]
    assert found[3].brokers


def test_sasl_requests_after_the_login_are_refused_and_the_connection_lives_on(wire: Wire) -> None:
    log_in(wire, PlainClient("alice", "alices-secret"))
    assert wire.ask(SaslHandshakeRequest(mechanism="PLAIN")).error_code == ErrorCode.ILLEGAL_SASL_STATE
    answer = wire.ask(SaslAuthenticateRequest(auth_bytes=b"\0alice\0alices-secret"), 2)
    assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert answers(wire)


def test_sasl_requests_on_a_plain_listener_are_refused(broker: EmbeddedBroker) -> None:
    with Wire(broker.bootstrap) as plain:
        assert plain.ask(SaslHandshakeRequest(mechanism="PLAIN")).error_code == ErrorCode.ILLEGAL_SASL_STATE
        token = SaslAuthenticateRequest(auth_bytes=b"")
        assert plain.ask(token, 2).error_code == ErrorCode.ILLEGAL_SASL_STATE


def test_the_login_gives_the_principal(broker: EmbeddedBroker, wire: Wire) -> None:
    log_in(wire, PlainClient("bob", "bobs-secret"))
    assert [str(session.principal) for session in broker.broker.sessions] == ["User:bob"]


def test_large_requests_are_accepted_after_the_login_only(tmp_path: Path) -> None:
    properties = settings() | {f"{PREFIX}sasl.server.max.receive.size": "2000"}
    with running(tmp_path, properties) as broker:
        with connect(broker) as wire:
            wire.send_raw(struct.pack(">i", 2001))
            assert wire.is_closed_by_peer()
        with connect(broker) as wire:
            log_in(wire, PlainClient("alice", "alices-secret"))
            wire.send_frame(struct.pack(">hhih", 18, 0, 7, -1) + bytes(100_000))
            assert len(wire.read_frame()) > 100


def test_failures_are_counted_and_logged_without_secrets(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with running(tmp_path) as broker, connect(broker) as wire:
        log_in(wire, PlainClient("alice", "wrong-secret"))
        with connect(broker) as other:
            log_in(other, PlainClient("alice", "alices-secret"))
        logins = broker.broker.services.security.logins
        assert (logins.failures, logins.successes) == (1, 1)
    assert "Invalid username or password" in str([vars(record) for record in caplog.records])
    for record in caplog.records:
        assert "-secret" not in str(vars(record))


def test_random_bytes_before_a_login_only_close_the_connection(broker: EmbeddedBroker) -> None:
    rng = random.Random(7)
    for _ in range(150):
        with connect(broker) as wire:
            kind = rng.randrange(4)
            if kind == 0:
                wire.send_raw(rng.randbytes(rng.randrange(1, 60)))
            elif kind == 1:
                wire.send_frame(rng.randbytes(rng.randrange(0, 200)))
            else:
                wire.ask(SaslHandshakeRequest(mechanism=rng.choice(["PLAIN", "SCRAM-SHA-256"])), kind - 2)
                wire.send_frame(rng.randbytes(rng.randrange(0, 200)))
            wire.socket.settimeout(0.02)
            with contextlib.suppress(TimeoutError, ConnectionError, ConnectionClosed):
                answer = wire.read_frame()
                assert len(answer) < 400
    wait_until(lambda: not broker.broker.sessions)
    with connect(broker) as wire:
        log_in(wire, PlainClient("alice", "alices-secret"))
        assert answers(wire)


# Re-authentication (rules 10 to 12)


def test_a_client_authenticates_again_before_its_session_ends(tmp_path: Path) -> None:
    """19: on the same connection."""
    properties = settings() | {f"{PREFIX}connections.max.reauth.ms": "60000"}
    with running(tmp_path, properties) as broker:
        with connect(broker) as wire:
            client = PlainClient("alice", "alices-secret")
            assert log_in(wire, client).session_lifetime_ms == 60_000
            assert answers(wire)
            assert (
                wire.ask(SaslHandshakeRequest(mechanism="PLAIN")).error_code == ErrorCode.ILLEGAL_SASL_STATE
            )
            time.sleep(1.1)
            assert log_in(wire, client).session_lifetime_ms == 60_000
            assert answers(wire)
        with connect(broker) as wire:
            log_in(wire, PlainClient("alice", "alices-secret"))
            time.sleep(1.1)
            wire.ask(SaslHandshakeRequest(mechanism="PLAIN"))
            answer = authenticate(wire, PlainClient("bob", "bobs-secret"))
            assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert wire.is_closed_by_peer()


def test_a_client_that_does_not_authenticate_again_is_cut_at_its_next_request(tmp_path: Path) -> None:
    # On a machine under heavy load a short session may end before the first request.
    for lifetime_s in (3, 10, 30):
        properties = settings() | {f"{PREFIX}plain.connections.max.reauth.ms": f"{lifetime_s}000"}
        with running(tmp_path / str(lifetime_s), properties) as broker, connect(broker) as wire:
            began = time.monotonic()
            assert log_in(wire, PlainClient("alice", "alices-secret"), 0).error_code == 0
            try:
                assert answers(wire)
            except (ConnectionClosed, ConnectionError):
                if time.monotonic() - began < lifetime_s:
                    raise
                continue
            time.sleep(lifetime_s + 0.1)
            assert len(broker.broker.sessions) == 1  # an idle connection is not cut
            wire.send(MetadataRequest(topics=[]))
            assert wire.is_closed_by_peer()
            return
    pytest.fail("each session ended before its first request")


# SCRAM users (rules 6 to 9)


def upsertion(user: str, password: str, mechanism: int = SHA_256, iterations: int = 4096) -> Any:
    name = {SHA_256: "SCRAM-SHA-256", SHA_512: "SCRAM-SHA-512"}.get(mechanism, "SCRAM-SHA-256")
    return ScramCredentialUpsertion(
        name=user,
        mechanism=mechanism,
        iterations=iterations,
        salt=b"salty",
        salted_password=salted(name, password, b"salty", iterations),
    )


def alter(broker: EmbeddedBroker, upsertions: list[Any] = [], deletions: list[Any] = []) -> dict[str, int]:  # noqa: B006
    with Wire(broker.bootstrap) as plain:
        request = AlterUserScramCredentialsRequest(deletions=deletions, upsertions=upsertions)
        return {row.user: row.error_code for row in plain.ask(request).results}


def set_password(broker: EmbeddedBroker, user: str, password: str) -> None:
    assert alter(broker, [upsertion(user, password), upsertion(user, password, SHA_512)]) == {user: 0}


def describe(broker: EmbeddedBroker, *users: str) -> list[tuple[str, int, list[tuple[int, int]]]]:
    with Wire(broker.bootstrap) as plain:
        asked = [UserName(name=user) for user in users] or None
        response = plain.ask(DescribeUserScramCredentialsRequest(users=asked))
        return [
            (row.user, row.error_code, [(info.mechanism, info.iterations) for info in row.credential_infos])
            for row in response.results
        ]


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("user", ["carol", "a,b=c", "ü/%", "<default>x"])
def test_a_user_logs_in_by_scram(broker: EmbeddedBroker, wire: Wire, mechanism: str, user: str) -> None:
    set_password(broker, user, "carols-secret")
    assert log_in(wire, scram(user, mechanism=mechanism)).error_code == 0
    assert answers(wire)


@pytest.mark.parametrize(("user", "password"), [("carol", "wrong"), ("nobody", "carols-secret")])
def test_scram_failures_are_told_alike(broker: EmbeddedBroker, wire: Wire, user: str, password: str) -> None:
    set_password(broker, "carol", "carols-secret")
    answer = log_in(wire, scram(user, password))
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.error_message == (
        "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256"
    )
    assert wire.is_closed_by_peer()


def test_a_changed_password_counts_for_new_connections(broker: EmbeddedBroker, wire: Wire) -> None:
    set_password(broker, "dora", "old")
    assert log_in(wire, scram("dora", "old")).error_code == 0
    set_password(broker, "dora", "new")
    assert answers(wire)
    with connect(broker) as other:
        assert log_in(other, scram("dora", "old")).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    with connect(broker) as other:
        assert log_in(other, scram("dora", "new")).error_code == 0


def test_credentials_outlive_a_restart_in_kafkas_form(tmp_path: Path) -> None:
    with running(tmp_path) as broker:
        set_password(broker, "a/b", "secret")
        node = broker.run(broker.broker._store.get(layout.client_config_path(ClientEntity("a/b"))))  # type: ignore[union-attr]
    assert layout.client_config_path(ClientEntity("a/b")) == "/config/users/a%2Fb"
    stored = layout.decode_config(node.data)["SCRAM-SHA-256"]
    assert stored.startswith(f"salt={base64.b64encode(b'salty').decode()},stored_key=")
    key = base64.b64encode(salted("SCRAM-SHA-256", "secret", b"salty", 4096)).decode()
    assert key not in stored
    with running(tmp_path) as broker, connect(broker) as wire:
        assert log_in(wire, scram("a/b", "secret")).error_code == 0


def test_users_are_described_without_their_keys(tmp_path: Path) -> None:
    with running(tmp_path) as broker:
        assert describe(broker) == []
        alter(
            broker, [upsertion("b", "x", iterations=5000), upsertion("b", "x", SHA_512), upsertion("a", "x")]
        )
        everyone = [("a", 0, [(1, 4096)]), ("b", 0, [(1, 5000), (2, 4096)])]
        assert describe(broker) == everyone
        assert describe(broker, "b", "none") == [everyone[1], ("none", ErrorCode.RESOURCE_NOT_FOUND, [])]
        assert describe(broker, "a", "a") == [("a", ErrorCode.DUPLICATE_RESOURCE, [])]


def test_every_users_changes_are_made_wholly_or_not_at_all(tmp_path: Path) -> None:
    with running(tmp_path) as broker:
        assert alter(broker, [upsertion("a", "x")]) == {"a": 0}
        delete_256, delete_512 = (ScramCredentialDeletion(name="a", mechanism=n) for n in (SHA_256, SHA_512))
        assert alter(broker, [], [delete_256, delete_512]) == {"a": ErrorCode.RESOURCE_NOT_FOUND}
        assert describe(broker) == [("a", 0, [(1, 4096)])]
        assert alter(broker, [upsertion("a", "x")], [delete_256]) == {"a": ErrorCode.DUPLICATE_RESOURCE}
        found = alter(
            broker,
            [
                upsertion("", "x"),
                upsertion("few", "x", iterations=4095),
                upsertion("many", "x", iterations=16_385),
                upsertion("good", "x"),
                upsertion("good", "x", mechanism=3),
                upsertion("most", "x", iterations=16_384),
            ],
        )
        assert found == {
            "": ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "few": ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "many": ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "good": ErrorCode.UNSUPPORTED_SASL_MECHANISM,
            "most": 0,
        }
        assert alter(broker, [], [delete_256]) == {"a": 0}
        assert describe(broker) == [("most", 0, [(1, 16_384)])]


# Real clients, and configurations


@pytest.mark.parametrize(
    ("mechanism", "user", "password"),
    [
        ("PLAIN", "alice", "alices-secret"),
        ("SCRAM-SHA-256", "carol", "carols-secret"),
        ("SCRAM-SHA-512", "carol", "carols-secret"),
    ],
)
def test_librdkafka_logs_in(broker: EmbeddedBroker, mechanism: str, user: str, password: str) -> None:
    set_password(broker, "carol", "carols-secret")
    common = {
        "bootstrap.servers": f"127.0.0.1:{secure_port(broker)}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }
    producer = Producer(common)
    producer.produce("t", b"v")
    assert producer.flush(60) == 0
    with pytest.raises(KafkaException):
        Producer(common | {"sasl.password": "wrong", "log_level": 0}).list_topics(timeout=3)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({f"{PREFIX}sasl.enabled.mechanisms": ""}, "name the mechanisms that clients may use"),
        ({f"{PREFIX}sasl.enabled.mechanisms": "GSSAPI"}, "String must be one of: PLAIN"),
        ({f"{PREFIX}plain.sasl.jaas.config": "nonsense"}, "ended by a semicolon"),
        ({f"{PREFIX}plain.sasl.jaas.config": f'{MODULE} required user_a="x-secret;'}, "quotation mark"),
        (
            {f"{PREFIX}plain.sasl.jaas.config": 'x.ScramLoginModule required a="b";'},
            "needs the module PlainLoginModule",
        ),
    ],
)
def test_a_half_finished_configuration_is_refused(
    tmp_path: Path, change: dict[str, str], reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        EmbeddedBroker(tmp_path, properties=settings() | change)
    assert "secret" not in str(caught.value)


def test_an_unprefixed_jaas_text_does_not_count(tmp_path: Path) -> None:
    properties = settings()
    properties["sasl.jaas.config"] = properties.pop(f"{PREFIX}plain.sasl.jaas.config")
    with pytest.raises(ConfigError, match=r"listener.name.external.plain.sasl.jaas.config: PLAIN needs this"):
        EmbeddedBroker(tmp_path, properties=properties)


def test_a_password_that_is_kept_elsewhere_lets_in_and_its_reference_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("ALICES_PW", "alices-s3cret")
    (tmp_path / "secrets.properties").write_text("bob=bobs-s3cret\n")
    package = "org.apache.kafka.common.config.provider"
    bob = f"${{file:{tmp_path}/secrets.properties:bob}}"
    properties = settings() | {
        "config.providers": "env,file",
        "config.providers.env.class": f"{package}.EnvVarConfigProvider",
        "config.providers.file.class": f"{package}.FileConfigProvider",
        "config.providers.file.param.allowed.paths": str(tmp_path),
        f"{PREFIX}plain.sasl.jaas.config": f'{MODULE} required user_alice="${{env:ALICES_PW}}" user_bob="{bob}";',
    }
    with running(tmp_path, properties) as broker, Wire(broker.bootstrap) as plain:
        for user, password, code in (
            ("alice", "alices-s3cret", 0),
            ("bob", "bobs-s3cret", 0),
            ("alice", "${env:ALICES_PW}", ErrorCode.SASL_AUTHENTICATION_FAILED),
            ("bob", bob, ErrorCode.SASL_AUTHENTICATION_FAILED),
        ):
            with connect(broker) as wire:
                assert log_in(wire, PlainClient(user, password)).error_code == code, password
        described = plain.ask(
            DescribeConfigsRequest(
                resources=[
                    DescribeConfigsResource(resource_type=4, resource_name="0", configuration_keys=None)
                ],
                include_synonyms=True,
            )
        )
        assert "config.providers" in repr(described)
        change = AlterableConfig(name=f"{PREFIX}plain.sasl.jaas.config", value="${env:ALICES_PW}")
        resource = AlterConfigsResource(resource_type=4, resource_name="0", configs=[change])
        [row] = plain.ask(IncrementalAlterConfigsRequest(resources=[resource])).responses
        assert row.error_code == ErrorCode.INVALID_REQUEST
        assert "cannot be a reference" in row.error_message
    assert "s3cret" not in repr(described)
    assert "s3cret" not in caplog.text
    assert not [record for record in caplog.records if "s3cret" in repr(vars(record))]
