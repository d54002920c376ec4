"""Other people's clients through every SASL mechanism that they support and with certificates, with TLS and without."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiokafka
import kafka
import pytest
from aiokafka.abc import AbstractTokenProvider as AioTokens
from confluent_kafka import Consumer, Producer
from kafka.net.sasl.oauth import AbstractTokenProvider as KafkaPythonTokens

from conformance.wire import Wire, unique_name
from felice.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from felice.security.sasl.oauthbearer import unsecured_token
from felice.server.process.embedded import EmbeddedBroker
from peers.authority import Authority, common_name
from peers.cache import PROGRAMS
from peers.golang import require_go_login
from peers.java import run_tool
from peers.node import install_dir, require_kafkajs

pytestmark = pytest.mark.felice_only

MODULES = "org.apache.kafka.common.security"
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
USER, PASSWORD = "alice", "alices-secret"
CERTIFICATE = "a certificate"
# Long enough for a machine under heavy load.
WAIT_S = 120.0


@dataclass(frozen=True, slots=True)
class Login:
    """How a client proves its identity."""

    mechanism: str
    has_tls: bool = True

    @property
    def protocol(self) -> str:
        if self.mechanism == CERTIFICATE:
            return "SSL"
        return "SASL_SSL" if self.has_tls else "SASL_PLAINTEXT"

    @property
    def by_certificate(self) -> bool:
        return self.mechanism == CERTIFICATE

    def __str__(self) -> str:
        return f"{self.mechanism}, {self.protocol}"


LOGINS = [
    Login(CERTIFICATE),
    *(Login(mechanism, has_tls) for has_tls in (True, False) for mechanism in MECHANISMS),
]
every_login = pytest.mark.parametrize("login", LOGINS, ids=str)


@dataclass(frozen=True)
class Secured:
    """A broker with two listeners for logins and one for certificates, and the files of its clients."""

    broker: EmbeddedBroker
    directory: Path

    def address(self, login: Login) -> str:
        return f"localhost:{self.broker.broker.port(login.protocol)}"

    def asked(self, login: Login) -> str:
        """What the programs in JavaScript and Go get."""
        asked = {
            "bootstrap": self.address(login),
            "topic": unique_name("login"),
            "ca": str(self.directory / "ca.pem") if login.has_tls else "",
            "mechanism": "" if login.by_certificate else login.mechanism,
            "user": USER,
            "password": PASSWORD,
            "token": token(),
            "certificate": str(self.directory / "alice.pem") if login.by_certificate else "",
        }
        return json.dumps(asked)

    def tls(self, login: Login) -> ssl.SSLContext | None:
        if not login.has_tls:
            return None
        context = ssl.create_default_context(cafile=str(self.directory / "ca.pem"))
        if login.by_certificate:
            context.load_cert_chain(self.directory / "alice.pem")
        return context


def token() -> str:
    now = time.time()
    return unsecured_token({"sub": USER, "iat": now - 1, "exp": now + 3600})


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("secured")
    authority = Authority()
    authority.write_trust(directory / "ca.pem")
    authority.issue().write_pem(directory / "broker.pem")
    authority.issue(common_name(USER)).write_pem(directory / "alice.pem")
    properties = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0,SASL_SSL://127.0.0.1:0,"
        "SASL_PLAINTEXT://127.0.0.1:0",
        "inter.broker.listener.name": "PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(directory / "broker.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(directory / "ca.pem"),
        "ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:CN=(.*)/$1/",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        **logins_of("sasl_ssl"),
        **logins_of("sasl_plaintext"),
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "2",
    }
    with EmbeddedBroker(directory / "data", properties=properties) as broker:
        with_scram_user(broker)
        yield Secured(broker, directory)


def logins_of(listener: str) -> dict[str, str]:
    prefix = f"listener.name.{listener}."
    plain = f'{MODULES}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
    oauth = f"{MODULES}.oauthbearer.OAuthBearerLoginModule required;"
    return {f"{prefix}plain.sasl.jaas.config": plain, f"{prefix}oauthbearer.sasl.jaas.config": oauth}


def with_scram_user(broker: EmbeddedBroker) -> None:
    from unit.server.test_sasl import set_password

    set_password(broker, USER, PASSWORD)


@every_login
def test_librdkafka_logs_in(secured: Secured, login: Login) -> None:
    topic = unique_name("librdkafka")
    common: dict[str, Any] = {
        "bootstrap.servers": secured.address(login),
        "security.protocol": login.protocol,
        "ssl.ca.location": str(secured.directory / "ca.pem"),
    }
    if login.by_certificate:
        path = str(secured.directory / "alice.pem")
        common |= {"ssl.certificate.location": path, "ssl.key.location": path}
    elif login.mechanism == "OAUTHBEARER":
        common |= {"sasl.mechanism": login.mechanism, "oauth_cb": lambda _: (token(), time.time() + 3600)}
    else:
        common |= {"sasl.mechanism": login.mechanism, "sasl.username": USER, "sasl.password": PASSWORD}
    producer = Producer(common)
    producer.produce(topic, b"v")
    assert producer.flush(WAIT_S) == 0
    consumer = Consumer(common | {"group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    [message] = consumer.consume(1, WAIT_S)
    assert message.value() == b"v"
    consumer.close()


class Tokens(KafkaPythonTokens):  # type: ignore[misc]
    def token(self) -> str:
        return token()


@every_login
def test_kafka_python_logs_in(secured: Secured, login: Login) -> None:
    topic = unique_name("kafka-python")
    common: dict[str, Any] = {
        "bootstrap_servers": secured.address(login),
        "security_protocol": login.protocol,
        "ssl_context": secured.tls(login),
    }
    if login.mechanism == "OAUTHBEARER":
        common |= {"sasl_mechanism": login.mechanism, "sasl_oauth_token_provider": Tokens()}
    elif not login.by_certificate:
        common |= {
            "sasl_mechanism": login.mechanism,
            "sasl_plain_username": USER,
            "sasl_plain_password": PASSWORD,
        }
    producer = kafka.KafkaProducer(**common)
    producer.send(topic, b"v").get(WAIT_S)
    producer.close()
    consumer = kafka.KafkaConsumer(
        topic, **common, auto_offset_reset="earliest", consumer_timeout_ms=120_000, group_id=topic
    )
    assert next(iter(consumer)).value == b"v"
    consumer.close()


class AsyncTokens(AioTokens):  # type: ignore[misc]
    async def token(self) -> str:
        return token()


@every_login
def test_aiokafka_logs_in(secured: Secured, login: Login) -> None:
    topic = unique_name("aiokafka")
    common: dict[str, Any] = {
        "bootstrap_servers": secured.address(login),
        "security_protocol": login.protocol,
        "ssl_context": secured.tls(login),
    }
    if login.mechanism == "OAUTHBEARER":
        common |= {"sasl_mechanism": login.mechanism, "sasl_oauth_token_provider": AsyncTokens()}
    elif not login.by_certificate:
        common |= {
            "sasl_mechanism": login.mechanism,
            "sasl_plain_username": USER,
            "sasl_plain_password": PASSWORD,
        }

    async def scenario() -> bytes:
        async with aiokafka.AIOKafkaProducer(**common) as producer:
            await producer.send_and_wait(topic, b"v")
        consumer = aiokafka.AIOKafkaConsumer(topic, **common, auto_offset_reset="earliest", group_id=topic)
        async with consumer, asyncio.timeout(WAIT_S):
            value: bytes = (await consumer.getone()).value
            return value

    assert asyncio.run(scenario()) == b"v"


@every_login
def test_franz_go_logs_in(secured: Secured, login: Login) -> None:
    assert said([str(require_go_login()), secured.asked(login)]) == "written by franz-go"


@every_login
def test_kafkajs_logs_in(secured: Secured, login: Login) -> None:
    program = str(PROGRAMS / "security" / "login.js")
    command = [require_kafkajs()[0], program, secured.asked(login)]
    assert said(command, {"NODE_PATH": str(install_dir() / "node_modules")}) == "written by kafkajs"


def said(command: list[str], environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, env={**os.environ, **(environment or {})}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def java_properties(secured: Secured, login: Login) -> Path:
    lines = [
        f"security.protocol={login.protocol}",
        "ssl.truststore.type=PEM",
        f"ssl.truststore.location={secured.directory / 'ca.pem'}",
        "auto.offset.reset=earliest",
    ]
    if login.by_certificate:
        lines += ["ssl.keystore.type=PEM", f"ssl.keystore.location={secured.directory / 'alice.pem'}"]
    else:
        lines += [f"sasl.mechanism={login.mechanism}", f"sasl.jaas.config={_jaas(login.mechanism)}"]
    if login.mechanism == "OAUTHBEARER":
        handler = f"{MODULES}.oauthbearer.internals.unsecured.OAuthBearerUnsecuredLoginCallbackHandler"
        lines.append(f"sasl.login.callback.handler.class={handler}")
    path = secured.directory / f"java-{login.mechanism.replace(' ', '-')}-{login.protocol}.properties"
    path.write_text("\n".join(lines) + "\n")
    return path


def _jaas(mechanism: str) -> str:
    if mechanism == "OAUTHBEARER":
        return (
            f'{MODULES}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="{USER}";'
        )
    package, module = ("plain", "PlainLoginModule") if mechanism == "PLAIN" else ("scram", "ScramLoginModule")
    return f'{MODULES}.{package}.{module} required username="{USER}" password="{PASSWORD}";'


@every_login
def test_javas_tools_log_in(secured: Secured, login: Login) -> None:
    topic = unique_name("java")
    properties = str(java_properties(secured, login))
    common = ["--bootstrap-server", secured.address(login), "--topic", topic]
    run_tool(
        "org.apache.kafka.tools.ConsoleProducer", *common, "--command-config", properties, stdin="from java\n"
    )
    done = run_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *common,
        "--command-config",
        properties,
        "--from-beginning",
        "--max-messages",
        "1",
        "--timeout-ms",
        "120000",
    )
    assert done.stdout.strip() == "from java"


def test_kafka_configs_sets_describes_and_deletes_a_scram_user(secured: Secured) -> None:
    common = [
        "--bootstrap-server",
        secured.broker.bootstrap,
        "--entity-type",
        "users",
        "--entity-name",
        "zoe",
    ]
    tool = "kafka.admin.ConfigCommand"
    run_tool(tool, *common, "--alter", "--add-config", "SCRAM-SHA-512=[iterations=8192,password=zoes-secret]")
    assert "SCRAM-SHA-512" in run_tool(tool, *common, "--describe").stdout
    producer = Producer(
        {
            "bootstrap.servers": secured.address(Login("SCRAM-SHA-512")),
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(secured.directory / "ca.pem"),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "zoe",
            "sasl.password": "zoes-secret",
        }
    )
    assert producer.list_topics(timeout=WAIT_S).brokers
    run_tool(tool, *common, "--alter", "--delete-config", "SCRAM-SHA-512")
    with Wire(secured.broker.bootstrap) as wire:
        users = [row.user for row in wire.ask(DescribeUserScramCredentialsRequest(users=None)).results]
    assert users == [USER]
