"""OAUTHBEARER at a real broker: unsecured tokens, signed tokens, and the clients that send them."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jwt
import pytest
from confluent_kafka import Producer
from cryptography.hazmat.primitives.asymmetric import rsa

from conformance.topics import wait_until
from conformance.wire import Wire
from felice.client import KafkaException
from felice.client.admin import AdminClient
from felice.config import ConfigError
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.metadata import MetadataRequest
from felice.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from felice.protocol.messages.sasl_handshake import SaslHandshakeRequest
from felice.security.principal import Principal
from felice.security.sasl.mechanism import AuthenticationFailed, Challenge, MalformedToken, Success
from felice.security.sasl.oauthbearer import OAuthClient, OAuthServer, UnsecuredTokens, unsecured_token
from felice.server.process.embedded import EmbeddedBroker
from felice.server.startup import StartupError

PREFIX = "listener.name.external."
LOGIN_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
VALIDATOR = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
SKEW = "unsecuredValidatorAllowableClockSkewMs"
NOW_MS = 1_700_000_000_000
NOW_S = NOW_MS // 1000
KEY, OTHER_KEY = (rsa.generate_private_key(65537, 2048) for _ in range(2))


def claims(**more: Any) -> dict[str, Any]:
    return {"sub": "alice", "iat": NOW_S, "exp": NOW_S + 60, **more}


def answer(token: str, options: Mapping[str, str] | None = None) -> Challenge | Success:
    return OAuthServer(UnsecuredTokens(options or {}).validate).respond(OAuthClient(token).first(), NOW_MS)


# Unsecured tokens


def test_an_unsecured_token_names_the_principal_and_the_end() -> None:
    success = answer(unsecured_token(claims()))
    assert success == Success(Principal("User", "alice"), b"", (NOW_S + 60) * 1000)
    named = answer(unsecured_token(claims(name="bob")), {"unsecuredValidatorPrincipalClaimName": "name"})
    assert isinstance(named, Success) and named.principal.name == "bob"


@pytest.mark.parametrize(
    "token",
    [
        unsecured_token(claims(exp=NOW_S)),
        unsecured_token(claims(exp="soon")),
        unsecured_token(claims(exp=True)),
        unsecured_token({"sub": "alice"}),
        unsecured_token(claims(sub=7)),
        unsecured_token(claims(sub="")),
        unsecured_token(claims(iat=NOW_S + 5)),
        unsecured_token(claims(nbf=NOW_S + 5)),
        unsecured_token(claims(exp=float("inf"))),
        unsecured_token(claims())[:-1],
        unsecured_token(claims()) + "c2ln",
        "a.b.",
        "W10.W10.",
        jwt.encode(claims(), "x" * 32, algorithm="HS256").rpartition(".")[0] + ".",
    ],
)
def test_a_refused_token_is_told_as_json_and_then_as_an_error(token: str) -> None:
    server = OAuthServer(UnsecuredTokens().validate)
    assert server.respond(OAuthClient(token).first(), NOW_MS) == Challenge(b'{"status":"invalid_token"}')
    with pytest.raises(AuthenticationFailed, match='^{"status":"invalid_token"}$'):
        server.respond(b"\x01", NOW_MS)


def test_clocks_may_differ_as_configured() -> None:
    token = unsecured_token(claims(exp=NOW_S - 2, iat=NOW_S - 9))
    assert isinstance(answer(token), Challenge)
    assert isinstance(answer(token, {SKEW: "3000"}), Success)


def test_a_missing_scope_is_told() -> None:
    options = {"unsecuredValidatorRequiredScope": "read write"}
    assert isinstance(answer(unsecured_token(claims(scope="write read x")), options), Success)
    assert isinstance(answer(unsecured_token(claims(scope=["read", "write"])), options), Success)
    refused = answer(unsecured_token(claims(scope="read")), options)
    assert refused == Challenge(b'{"status":"insufficient_scope","scope":"read write"}')


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n,,\x01auth=Bearer a.b.\x01",
        b"n,,\x01\x01",
        b"n,,\x01auth=Basic abc\x01\x01",
        b"y,,\x01auth=Bearer abc\x01\x01",
        b"n,,\x01other=1\x01\x01",
        b"\xff",
    ],
)
def test_a_malformed_message_fails_at_once(first: bytes) -> None:
    with pytest.raises(MalformedToken):
        OAuthServer(UnsecuredTokens().validate).respond(first, NOW_MS)


def test_extensions_are_accepted_and_authorization_ids_compared() -> None:
    def first(authorization: str) -> bytes:
        return f"n,{authorization},\x01auth=bearer {unsecured_token(claims())}\x01ext=a b\x01\x01".encode()

    for authorization in ("", "a=alice"):
        server = OAuthServer(UnsecuredTokens().validate)
        assert isinstance(server.respond(first(authorization), NOW_MS), Success)
    with pytest.raises(AuthenticationFailed, match="authorization id"):
        OAuthServer(UnsecuredTokens().validate).respond(first("a=bob"), NOW_MS)


# At a broker


def settings(**more: str) -> dict[str, str]:
    return {
        "listeners": "PLAINTEXT://127.0.0.1:0,EXTERNAL://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,EXTERNAL:SASL_PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        f"{PREFIX}sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{PREFIX}oauthbearer.sasl.jaas.config": f"{LOGIN_MODULE} required;",
        **more,
    }


def write_keys(path: Path, **keys: rsa.RSAPrivateKey) -> str:
    found = [
        {**json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key())), "kid": name, "use": "sig"}
        for name, key in keys.items()
    ]
    path.write_text(json.dumps({"keys": found}))
    return path.as_uri()


def signed(path: Path, **more: str) -> dict[str, str]:
    return settings(
        **{
            f"{PREFIX}oauthbearer.sasl.server.callback.handler.class": VALIDATOR,
            f"{PREFIX}oauthbearer.sasl.oauthbearer.jwks.endpoint.url": write_keys(path, first=KEY),
            f"{PREFIX}oauthbearer.sasl.oauthbearer.expected.issuer": "https://issuer",
            f"{PREFIX}oauthbearer.sasl.oauthbearer.expected.audience": "kafka,other",
        },
        **more,
    )


def token(key: rsa.RSAPrivateKey = KEY, kid: str | None = "first", **more: Any) -> str:
    now = int(time.time())
    found = {"sub": "alice", "iss": "https://issuer", "aud": "kafka", "iat": now, "exp": now + 60, **more}
    found = {name: value for name, value in found.items() if value is not None}
    return jwt.encode(found, key, algorithm="RS256", headers={"kid": kid} if kid else {})


@contextlib.contextmanager
def running(directory: Path, properties: Mapping[str, str]) -> Iterator[tuple[EmbeddedBroker, str]]:
    with EmbeddedBroker(directory / "data", properties=properties) as broker:
        yield broker, f"127.0.0.1:{broker.broker.port('EXTERNAL')}"


def log_in(address: str, text: str) -> tuple[int, Any]:
    """The error of the first answer to a token, and the answer. A refused token is acknowledged."""
    with Wire(address) as wire:
        assert wire.ask(SaslHandshakeRequest(mechanism="OAUTHBEARER")).error_code == 0
        found = wire.ask(SaslAuthenticateRequest(auth_bytes=OAuthClient(text).first()), 2)
        if not found.auth_bytes:
            assert wire.ask(MetadataRequest(topics=[])).brokers
            return 0, found
        assert (found.error_code, json.loads(found.auth_bytes)) == (0, {"status": "invalid_token"})
        refused = wire.ask(SaslAuthenticateRequest(auth_bytes=b"\x01"), 2)
        assert refused.error_message == '{"status":"invalid_token"}'
        assert wire.is_closed_by_peer()
        return refused.error_code, refused


def test_a_session_ends_with_its_token(tmp_path: Path) -> None:
    with running(tmp_path, settings()) as (_, address):
        now = time.time()
        code, found = log_in(address, unsecured_token({"sub": "alice", "iat": now, "exp": now + 60}))
        assert code == 0
        assert 50_000 < found.session_lifetime_ms <= 60_000
        code, _ = log_in(address, unsecured_token({"sub": "alice", "exp": now - 1}))
        assert code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_a_token_must_be_signed_by_the_issuer_and_say_what_is_expected(tmp_path: Path) -> None:
    with running(tmp_path, signed(tmp_path / "keys")) as (broker, address):
        assert log_in(address, token())[0] == 0
        assert log_in(address, token(aud=["x", "other"], scope="a b", kid=None))[0] == 0
        now = int(time.time())
        confused = jwt.encode({"sub": "alice", "iat": now, "exp": now + 60}, "x" * 40, algorithm="HS256")
        for wrong in (
            token(OTHER_KEY),
            token(OTHER_KEY, kid="unknown"),
            token(iss="https://other"),
            token(aud="x"),
            token(exp=now - 31),
            token(exp=None),
            token(iat=None),
            token(sub=None),
            token(scope=7),
            confused,
            unsecured_token({"sub": "alice", "iat": now, "exp": now + 60}),
            "nonsense",
        ):
            assert log_in(address, wrong)[0] == ErrorCode.SASL_AUTHENTICATION_FAILED, wrong
        assert broker.broker.services.security.logins.failures == 12


def test_new_keys_are_read_in_time(tmp_path: Path) -> None:
    refresh = {f"{PREFIX}oauthbearer.sasl.oauthbearer.jwks.endpoint.refresh.ms": "1000"}
    with running(tmp_path, signed(tmp_path / "keys", **refresh)) as (_, address):
        assert log_in(address, token(OTHER_KEY, "second"))[0] == ErrorCode.SASL_AUTHENTICATION_FAILED
        (tmp_path / "keys").write_text("damaged")
        time.sleep(1.5)
        assert log_in(address, token())[0] == 0
        write_keys(tmp_path / "keys", second=OTHER_KEY)
        wait_until(lambda: log_in(address, token(OTHER_KEY, "second"))[0] == 0)
        assert log_in(address, token())[0] == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_a_broker_without_usable_keys_does_not_start(tmp_path: Path) -> None:
    properties = signed(tmp_path / "keys")
    for content, reason in (("{}", "not a JSON Web Key Set"), ("x", "not a JSON Web Key Set")):
        (tmp_path / "keys").write_text(content)
        with pytest.raises(StartupError, match=reason):
            EmbeddedBroker(tmp_path / "data", properties=properties)
    (tmp_path / "keys").unlink()
    with pytest.raises(StartupError, match="sasl.oauthbearer.jwks.endpoint.url: file:.* cannot be read"):
        EmbeddedBroker(tmp_path / "data", properties=properties)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({f"{PREFIX}sasl.server.callback.handler.class": "a.B"}, "Felice has only OAuthBearerValidator"),
        ({f"{PREFIX}sasl.server.callback.handler.class": VALIDATOR}, "need the keys of their issuer"),
        ({f"{PREFIX}oauthbearer.sasl.jaas.config": f"{LOGIN_MODULE} required {SKEW}=x;"}, "is not a number"),
    ],
)
def test_a_half_finished_configuration_is_refused(
    tmp_path: Path, change: dict[str, str], reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        EmbeddedBroker(tmp_path, properties=settings() | change)


# Clients


def test_librdkafka_and_the_own_client_send_tokens_of_a_callback(tmp_path: Path) -> None:
    asked: list[str] = []

    def oauth_cb(config: str) -> tuple[str, float]:
        asked.append(config)
        return token(), time.time() + 60

    with running(tmp_path, signed(tmp_path / "keys")) as (_, address):
        common: dict[str, Any] = {
            "bootstrap.servers": address,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.config": "for=test",
            "oauth_cb": oauth_cb,
        }
        producer = Producer(common)
        producer.produce("t", b"v")
        assert producer.flush(60) == 0
        count = len(asked)
        admin = AdminClient(common)
        assert admin.list_topics(timeout=60).brokers
        admin.close()
        assert asked[count:] == ["for=test"]

        def wrong(config: str) -> tuple[str, float]:
            raise RuntimeError("the issuer is away")

        admin = AdminClient(common | {"oauth_cb": wrong})
        with pytest.raises(KafkaException, match="oauth_cb raised RuntimeError: the issuer is away"):
            admin.list_topics(timeout=20)
        admin.close()


def test_unsecured_tokens_come_from_a_jaas_text(tmp_path: Path) -> None:
    with running(tmp_path, settings()) as (broker, address):
        admin = AdminClient(
            {
                "bootstrap.servers": address,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.jaas.config": f'{LOGIN_MODULE} required unsecuredLoginStringClaim_sub="carol";',
            }
        )
        assert admin.list_topics(timeout=60).brokers
        assert "User:carol" in [str(session.principal) for session in broker.broker.sessions]
        admin.close()
