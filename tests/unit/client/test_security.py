"""The client's TLS and SASL against a real broker, with librdkafka's and Java's names of the keys."""

from __future__ import annotations

import asyncio
import logging
import pickle
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from felice.cli.main import felice, run
from felice.client import Consumer, KafkaError, KafkaException, Producer
from felice.client.admin import AdminClient, NewTopic
from felice.client.blocking import BlockingClient, BlockingConfig
from felice.client.blocking import link as link_module
from felice.client.blocking.link import BlockingLink
from felice.client.net import connection as connection_module
from felice.client.net.connection import Connection
from felice.client.options import ConsumerSettings
from felice.client.security import Security
from felice.protocol.messages.metadata import MetadataRequest
from felice.security.sasl.login import REAUTHENTICATION_SHARE
from felice.security.sasl.plain import PlainClient
from felice.server.process.embedded import EmbeddedBroker
from peers.authority import Authority, common_name
from waiting import LIMIT_S

AUTHORITY = Authority()
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
LOGIN = {"sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": "alices-secret"}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("security")
    AUTHORITY.issue().write_pem(path / "broker.pem")
    AUTHORITY.write_trust(path / "ca.pem")
    alice = AUTHORITY.issue(common_name("alice"))
    alice.write_pem(path / "alice.pem")
    alice.write_pem(path / "locked.pem", "keys-secret")
    alice.write_pkcs12(path / "alice.p12", "stores-secret", AUTHORITY)
    (path / "alice.key").write_text(alice.key_pem("keys-secret"))
    (path / "alice.crt").write_text(alice.certificate_pem)
    return path


@pytest.fixture(scope="module")
def broker(directory: Path) -> Iterator[EmbeddedBroker]:
    properties = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0,MUTUAL://127.0.0.1:0,SASL_SSL://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,MUTUAL:SSL,SASL_SSL:SASL_SSL",
        "inter.broker.listener.name": "PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(directory / "broker.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(directory / "ca.pem"),
        "listener.name.mutual.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.sasl_ssl.connections.max.reauth.ms": "60000",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{MODULE} required user_alice="alices-secret";',
    }
    with EmbeddedBroker(directory / "data", properties=properties) as found:
        yield found


def config(broker: EmbeddedBroker, listener: str, directory: Path, **more: str) -> dict[str, object]:
    protocol = "SSL" if listener == "MUTUAL" else listener
    return {
        "bootstrap.servers": f"127.0.0.1:{broker.broker.port(listener)}",
        "security.protocol": protocol,
        "ssl.ca.location": str(directory / "ca.pem"),
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def topics_seen(settings: dict[str, object]) -> bool:
    admin = AdminClient(settings)
    try:
        return bool(admin.list_topics(timeout=60).brokers)
    finally:
        admin.close()


def test_a_client_reads_what_it_wrote_over_tls(broker: EmbeddedBroker, directory: Path) -> None:
    settings = config(broker, "SSL", directory)
    producer = Producer(settings)
    for number in range(200):
        producer.produce("t", b"%d" % number + bytes(10_000))
    assert producer.flush(60) == 0
    consumer = Consumer(settings | {"group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    found = 0
    deadline = time.monotonic() + 120
    while found < 200 and time.monotonic() < deadline:
        found += len([message for message in consumer.consume(200, 1.0) if not message.error()])
    consumer.close()
    assert found == 200


IDENTITIES = {
    "librdkafka's files": {
        "ssl.certificate.location": "alice.crt",
        "ssl.key.location": "alice.key",
        "ssl.key.password": "keys-secret",
    },
    "a PKCS12 key store": {
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": "alice.p12",
        "ssl.keystore.password": "stores-secret",
    },
    "Java's PEM key store": {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": "locked.pem",
        "ssl.key.password": "keys-secret",
    },
}


@pytest.mark.parametrize("keys", IDENTITIES.values(), ids=IDENTITIES)
def test_a_client_shows_its_certificate(
    broker: EmbeddedBroker, directory: Path, keys: dict[str, str]
) -> None:
    located = {
        name: str(directory / text) if name.endswith("location") else text for name, text in keys.items()
    }
    assert topics_seen(config(broker, "MUTUAL", directory) | located)


def test_certificates_may_be_in_the_configuration(broker: EmbeddedBroker, directory: Path) -> None:
    settings = config(broker, "MUTUAL", directory)
    del settings["ssl.ca.location"]
    settings |= {
        "ssl.ca.pem": AUTHORITY.certificate_pem,
        "ssl.key.pem": (directory / "alice.key").read_text(),
        "ssl.certificate.pem": (directory / "alice.crt").read_text(),
        "ssl.key.password": "keys-secret",
    }
    assert topics_seen(settings)


def refusal(settings: dict[str, object]) -> KafkaError:
    with pytest.raises(KafkaException) as caught:
        topics_seen(settings)
    error: KafkaError = caught.value.args[0]
    for secret in ("alices-secret", "wrong-secret", "keys-secret", "PRIVATE KEY"):
        assert secret not in error.str()
    return error


def test_a_broker_that_is_not_trusted_is_refused(broker: EmbeddedBroker, directory: Path) -> None:
    other = Authority("other").write_trust(directory / "other.pem")
    settings = config(broker, "SSL", directory) | {"ssl.ca.location": str(other)}
    error = refusal(settings)
    assert error.code() == KafkaError._SSL
    assert "certificate is not accepted" in error.str() and "see ssl.ca.location" in error.str()
    assert topics_seen(settings | {"enable.ssl.certificate.verification": "false"})


def test_a_broker_with_another_name_is_refused(tmp_path: Path, directory: Path) -> None:
    AUTHORITY.issue("elsewhere", names=["elsewhere"]).write_pem(tmp_path / "broker.pem")
    properties = {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.endpoint.identification.algorithm": "",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(tmp_path / "broker.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(directory / "ca.pem"),
    }
    with EmbeddedBroker(tmp_path / "data", properties=properties) as broker:
        settings = config(broker, "SSL", directory)
        assert refusal(settings).code() == KafkaError._SSL
        assert topics_seen(settings | {"ssl.endpoint.identification.algorithm": "none"})


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_client_logs_in(broker: EmbeddedBroker, directory: Path, mechanism: str) -> None:
    from unit.server.test_sasl import set_password

    set_password(broker, "alice", "alices-secret")
    settings = config(broker, "SASL_SSL", directory)
    assert topics_seen(settings | LOGIN | {"sasl.mechanism": mechanism})
    jaas = 'org.ScramLoginModule required username="alice" password="alices-secret";'
    assert topics_seen(settings | {"sasl.mechanisms": mechanism, "sasl.jaas.config": jaas})


def test_a_wrong_password_fails_at_once_with_the_brokers_reason(
    broker: EmbeddedBroker, directory: Path
) -> None:
    began = time.monotonic()
    error = refusal(config(broker, "SASL_SSL", directory) | LOGIN | {"sasl.password": "wrong-secret"})
    assert time.monotonic() - began < 40
    assert error.code() == KafkaError._AUTHENTICATION
    assert "Invalid username or password" in error.str()


def test_a_wrong_password_fails_a_record_at_once(broker: EmbeddedBroker, directory: Path) -> None:
    """Not only after the time for the metadata of a topic: Kafka's producer reports a failed login at once, too."""
    wrong = {"sasl.password": "wrong-secret", "topic.metadata.propagation.max.ms": 3_600_000}
    errors: list[KafkaError] = []
    with Producer(config(broker, "SASL_SSL", directory) | LOGIN | wrong) as producer:
        producer.produce("refused", b"x", on_delivery=lambda error, _: error and errors.append(error))
        assert producer.flush(60) == 0
    assert [error.code() for error in errors] == [KafkaError._AUTHENTICATION]


@pytest.fixture
def renewals(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The client ids of the connections that authenticated again; for blocking clients also the first time.

    They do so after 2.5 s, long before their session of a minute ends: on a slow machine a short session would end.
    """
    found: list[str] = []
    renew, log_in = Connection._authenticate_again, BlockingLink._authenticate

    async def note(connection: Connection, timeout_s: float) -> None:
        await renew(connection, timeout_s)
        found.append(connection._frames._client_id or "")

    def note_blocking(opened: BlockingLink) -> None:
        log_in(opened)
        found.append(opened._frames._client_id or "")

    monkeypatch.setattr(Connection, "_authenticate_again", note)
    monkeypatch.setattr(BlockingLink, "_authenticate", note_blocking)
    for module in (connection_module, link_module):
        monkeypatch.setattr(module, "REAUTHENTICATION_SHARE", 2.5 / 60)
    return found


def test_clients_authenticate_again_before_their_session_ends() -> None:
    assert REAUTHENTICATION_SHARE <= 0.9


def test_a_client_goes_on_while_it_authenticates_again(
    broker: EmbeddedBroker, directory: Path, renewals: list[str]
) -> None:
    """Each client works for 7 seconds."""
    settings = config(broker, "SASL_SSL", directory) | LOGIN
    failures_before = broker.broker.services.security.logins.failures
    producer = Producer(settings | {"client.id": "one", "acks": "1", "enable.idempotence": False})
    unanswered = Producer(settings | {"client.id": "none", "acks": "0", "enable.idempotence": False})
    errors: list[object] = []
    end, sent = time.monotonic() + 7, 0
    while (now := time.monotonic()) < end or (now < end + LIMIT_S and not {"one", "none"} <= set(renewals)):
        for one in (producer, unanswered):
            one.produce("again", b"x", on_delivery=lambda error, _: error and errors.append(error))
            one.poll(0.005)
        sent += 2
    assert producer.flush(60) == 0
    assert unanswered.flush(60) == 0
    assert errors == []
    assert {"one", "none"} <= set(renewals)
    producer.close()
    unanswered.close()
    reading = {"client.id": "reader", "group.id": "again", "auto.offset.reset": "earliest"}
    consumer = Consumer(settings | reading)
    consumer.subscribe(["again"])
    found, began = 0, time.monotonic()
    while (passed := time.monotonic() - began) < 7 or (
        passed < 120 and (found < sent or "reader" not in renewals)
    ):
        found += len([message for message in consumer.consume(500, 0.2) if not message.error()])
    consumer.close()
    assert found == sent
    assert "reader" in renewals
    assert broker.broker.services.security.logins.failures == failures_before


def test_the_blocking_client_goes_on_while_it_authenticates_again(
    broker: EmbeddedBroker, directory: Path, renewals: list[str]
) -> None:
    settings = ConsumerSettings.parse(config(broker, "SASL_SSL", directory) | LOGIN)
    blocking = BlockingConfig(settings.bootstrap_servers, security=settings.tls_and_sasl)
    assert "alices-secret" not in repr(blocking)
    with BlockingClient(pickle.loads(pickle.dumps(blocking))) as client:
        link = client._brokers.link(client._brokers._bootstrap[0])
        end = time.monotonic() + 5
        while (now := time.monotonic()) < end or (now < end + LIMIT_S and len(renewals) < 2):
            link.send(MetadataRequest(topics=[]))
            link.send(MetadataRequest(topics=[]))
            assert link.receive().brokers and link.receive().brokers
            time.sleep(0.05)
        assert len(renewals) >= 2, "the first is its first login"
        assert not link.closed
    wrong = replace(blocking, security=replace(settings.tls_and_sasl, sasl_password="wrong-secret"))
    with BlockingClient(wrong) as client, pytest.raises(KafkaException, match="Invalid username or password"):
        client._brokers.link(client._brokers._bootstrap[0])


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"security.protocol": "SASL_SSL"}, '"sasl.mechanism" is required'),
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}, '"sasl.password"'),
        ({"security.protocol": "TLS"}, "expected one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ({"sasl.mechanism": "GSSAPI"}, "expected one of PLAIN"),
        (
            {"security.protocol": "SSL", "ssl.ca.location": "/nowhere"},
            "ssl.ca.location: /nowhere cannot be read",
        ),
        (
            {"security.protocol": "SSL", "ssl.ca.location": str(Path(__file__).parent)},
            "ssl.ca.location: the directory",
        ),
        (
            {"security.protocol": "SSL", "ssl.key.pem": "keys-secret"},
            "ssl.certificate.location: a key and its",
        ),
        ({"security.protocol": "SSL", "ssl.key.pem": 7}, r"Invalid value \[hidden\]"),
        (
            {
                **LOGIN,
                "security.protocol": "SASL_SSL",
                "sasl.jaas.config": 'M required password="keys-secret',
            },
            "quotation mark",
        ),
    ],
)
def test_a_configuration_that_cannot_be_used_is_refused(keys: dict[str, object], reason: str) -> None:
    with pytest.raises(KafkaException, match=reason) as caught:
        ConsumerSettings.parse({"bootstrap.servers": "h:1", **keys})
    assert "keys-secret" not in str(caught.value)


def test_settings_show_no_secrets() -> None:
    settings = ConsumerSettings.parse(
        {"bootstrap.servers": "h:1", "security.protocol": "SASL_PLAINTEXT", **LOGIN}
    )
    assert "alices-secret" not in repr(settings)


def test_a_plain_client_at_a_secure_listener_learns_the_reason(
    broker: EmbeddedBroker, directory: Path
) -> None:
    error = refusal({"bootstrap.servers": f"127.0.0.1:{broker.broker.port('SSL')}"})
    assert "closed" in error.str() or "TLS" in error.str()


def test_commands_log_in_with_a_file(
    broker: EmbeddedBroker,
    directory: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    file = tmp_path / "client.properties"
    values = config(broker, "SASL_SSL", directory) | LOGIN
    file.write_text(
        "".join(f"{name}={text}\n" for name, text in values.items() if name != "bootstrap.servers")
    )
    address = str(values["bootstrap.servers"])
    common = ["--bootstrap-server", address, "--command-config", str(file)]
    assert run(felice, ["topics", "create", "by-command", "--partitions", "2", *common]) == 0
    assert run(felice, ["topics", "list", *common]) == 0
    assert "by-command" in capsys.readouterr().out
    file.write_text(file.read_text().replace("alices-secret", "wrong-secret"))
    assert run(felice, ["topics", "list", *common]) == 1
    shown = capsys.readouterr().err
    assert "Invalid username or password" in shown
    assert len(shown.strip().splitlines()) == 1
    assert "secret" not in shown + caplog.text


def test_the_asyncio_client_logs_in(broker: EmbeddedBroker, directory: Path) -> None:
    from felice.client.aio import AIOProducer

    async def produce() -> int:
        async with AIOProducer(config(broker, "SASL_SSL", directory) | LOGIN) as producer:
            delivered = await producer.produce("aio", b"x")
            await producer.flush()
            return int((await delivered).offset() or 0)

    admin = AdminClient(config(broker, "SASL_SSL", directory) | LOGIN)
    admin.create_topics([NewTopic("aio", 1, 1)])["aio"].result(60)
    admin.close()
    assert asyncio.run(produce()) == 0


class Recorded(asyncio.Transport):
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += bytes(data)

    def is_closing(self) -> bool:
        return False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def abort(self) -> None:
        pass


def test_requests_wait_in_their_order_while_the_connection_authenticates_again() -> None:
    async def scenario() -> bytes:
        connection = Connection("h:1", "c", security=Security(None, lambda: PlainClient("a", "b")))
        transport = Recorded()
        connection.connection_made(transport)
        assert connection._gate is not None
        async with connection._gate:
            calls = [
                asyncio.create_task(connection.call_version(MetadataRequest(topics=[]), version, 60))
                for version in (4, 5)
            ]
            await asyncio.sleep(0.01)
            assert transport.written == b""
        await asyncio.sleep(0.01)
        connection.close()
        await asyncio.gather(*calls, return_exceptions=True)
        return transport.written

    written = asyncio.run(scenario())
    versions = [written[start + 7] for start in (0, 4 + int.from_bytes(written[:4], "big"))]
    assert versions == [4, 5]
