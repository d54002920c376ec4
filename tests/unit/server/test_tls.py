"""Listeners with TLS: what they accept, how certificates are renewed, and when a broker refuses to start."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from conformance.wire import ConnectionClosed, Wire
from felice.config import BrokerConfig, ConfigError
from felice.protocol.errors import ErrorCode
from felice.protocol.messages.describe_cluster import DescribeClusterRequest
from felice.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from felice.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from felice.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from felice.protocol.messages.metadata import MetadataRequest
from felice.server.process.embedded import EmbeddedBroker, embedded_config
from felice.server.security.tls import SecuredListener, TlsListeners
from felice.server.startup import StartupError
from peers.authority import Authority, common_name
from waiting import LIMIT_S, until, wait_until

AUTHORITY = Authority()
BROKER = 4
LISTENERS = "PLAINTEXT://127.0.0.1:0,EXTERNAL://127.0.0.1:0"
PROTOCOLS = "PLAINTEXT:PLAINTEXT,EXTERNAL:SSL"
PREFIX = "listener.name.external."


class TlsWire(Wire):
    """A `Wire` whose socket is encrypted."""

    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        super().__init__(f"127.0.0.1:{port}")
        self.socket = context.wrap_socket(self.socket, server_hostname="localhost")

    @property
    def serial(self) -> int:
        """The serial number of the broker's certificate."""
        assert isinstance(self.socket, ssl.SSLSocket)
        found: Any = self.socket.getpeercert()
        return int(found["serialNumber"], 16)


def client_tls(path: Path | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=AUTHORITY.certificate_pem)
    if path is not None:
        context.load_cert_chain(path)
    return context


def settings(directory: Path, **more: str) -> dict[str, str]:
    """A listener EXTERNAL with TLS beside a plain one."""
    key = directory / "broker.pem"
    if not key.exists():
        AUTHORITY.issue().write_pem(key)
    return {
        "listeners": LISTENERS,
        "listener.security.protocol.map": PROTOCOLS,
        "inter.broker.listener.name": "PLAINTEXT",
        f"{PREFIX}ssl.keystore.type": "PEM",
        f"{PREFIX}ssl.keystore.location": str(key),
        f"{PREFIX}ssl.truststore.type": "PEM",
        f"{PREFIX}ssl.truststore.location": str(AUTHORITY.write_trust(directory / "ca.pem")),
        **{f"{PREFIX}{name.replace('_', '.')}": value for name, value in more.items()},
    }


@contextlib.contextmanager
def running(directory: Path, properties: Mapping[str, str]) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(directory / "data", properties=properties) as broker:
        yield broker


def port(broker: EmbeddedBroker) -> int:
    return broker.broker.port("EXTERNAL")


def refuses(port: int, context: ssl.SSLContext) -> bool:
    """Whether a client gets no answer, because the handshake or its first request fails."""
    try:
        with TlsWire(port, context) as wire:
            wire.ask(MetadataRequest(topics=[]))
    except (ConnectionClosed, OSError):
        return True
    return False


def principals(broker: EmbeddedBroker) -> list[str]:
    return [str(session.principal) for session in broker.broker.sessions]


def test_a_client_produces_and_consumes_over_tls(tmp_path: Path) -> None:
    """More than one turn's worth of records, so that a fetch is sent in several turns."""
    with running(tmp_path, settings(tmp_path)) as broker:
        common = {
            "bootstrap.servers": f"localhost:{port(broker)}",
            "security.protocol": "SSL",
            "ssl.ca.location": str(tmp_path / "ca.pem"),
            "broker.address.family": "v4",
        }
        producer = Producer(common)
        for number in range(300):
            producer.produce("t", b"%03d" % number + bytes(20_000))
        assert producer.flush(60) == 0
        consumer = Consumer(common | {"group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["t"])
        found: list[bytes] = []
        deadline = time.monotonic() + 120
        while len(found) < 300 and time.monotonic() < deadline:
            found += [message.value()[:3] for message in consumer.consume(300, 1.0) if not message.error()]
        consumer.close()
        assert found == [b"%03d" % number for number in range(300)]


def test_clients_learn_the_addresses_of_their_own_listener(tmp_path: Path) -> None:
    with running(tmp_path, settings(tmp_path)) as broker:
        plain, tls = Wire(broker.bootstrap), TlsWire(port(broker), client_tls())
        with plain, tls:
            for wire, expected in ((plain, broker.port), (tls, port(broker))):
                assert [row.port for row in wire.ask(MetadataRequest(topics=[])).brokers] == [expected]


def test_a_certificate_gives_the_principal(tmp_path: Path) -> None:
    alice = AUTHORITY.issue(common_name("alice")).write_pem(tmp_path / "alice.pem")
    rules = "RULE:^CN=(.*)$/$1/U,DEFAULT"
    secured = settings(tmp_path, ssl_client_auth="requested") | {
        f"{PREFIX}ssl.principal.mapping.rules": rules
    }
    with running(tmp_path, secured) as broker:
        with TlsWire(port(broker), client_tls(alice)) as wire:
            wire.ask(MetadataRequest(topics=[]))
            assert principals(broker) == ["User:ALICE"]
        wait_until(lambda: not principals(broker))
        with TlsWire(port(broker), client_tls()) as wire:
            wire.ask(MetadataRequest(topics=[]))
            assert principals(broker) == ["User:ANONYMOUS"]


def test_a_subject_that_no_rule_matches_cannot_connect(tmp_path: Path) -> None:
    alice = AUTHORITY.issue(common_name("alice")).write_pem(tmp_path / "alice.pem")
    secured = settings(tmp_path, ssl_client_auth="required") | {
        f"{PREFIX}ssl.principal.mapping.rules": "RULE:CN=bob/bob/"
    }
    with running(tmp_path, secured) as broker:
        assert refuses(port(broker), client_tls(alice))


def test_a_client_without_a_required_certificate_gets_no_bytes_of_kafka(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stranger = Authority("other").issue(common_name("alice")).write_pem(tmp_path / "stranger.pem")
    with running(tmp_path, settings(tmp_path, ssl_client_auth="required")) as broker:
        for path in (None, stranger):
            assert refuses(port(broker), client_tls(path))
        assert not broker.broker.sessions
        wait_until(lambda: "TLS handshake failed" in caplog.text)


def test_an_unprefixed_client_auth_holds_for_listeners_with_tls(tmp_path: Path) -> None:
    secured = settings(tmp_path) | {"ssl.client.auth": "required"}
    with running(tmp_path, secured) as broker:
        assert refuses(port(broker), client_tls())


def test_a_client_that_does_not_speak_tls_is_closed(tmp_path: Path) -> None:
    with running(tmp_path, settings(tmp_path)) as broker:
        with Wire(f"127.0.0.1:{port(broker)}") as wire, pytest.raises((ConnectionClosed, OSError)):
            wire.ask(MetadataRequest(topics=[]))
        with TlsWire(port(broker), client_tls()) as wire:
            wire.ask(MetadataRequest(topics=[]))


def is_open(connection: socket.socket) -> bool:
    """Whether the broker has not closed a connection on which it sends nothing."""
    connection.setblocking(False)
    try:
        connection.recv(100)
    except BlockingIOError:
        return True
    except ConnectionResetError:
        pass
    return False


def test_silent_clients_delay_no_others(tmp_path: Path) -> None:
    secured = settings(tmp_path) | {"felice.tls.handshake.timeout.ms": "60000"}
    with running(tmp_path, secured) as broker:
        silent = [socket.create_connection(("127.0.0.1", port(broker))) for _ in range(20)]
        with TlsWire(port(broker), client_tls()) as wire:
            wire.ask(MetadataRequest(topics=[]))
        assert all(map(is_open, silent)), "the other was served only after the time limit of the handshakes"
        for connection in silent:
            connection.close()


def test_silent_clients_are_cut(tmp_path: Path) -> None:
    secured = settings(tmp_path) | {"felice.tls.handshake.timeout.ms": "1500"}
    with running(tmp_path, secured) as broker:
        silent = [socket.create_connection(("127.0.0.1", port(broker))) for _ in range(20)]
        for connection in silent:
            connection.settimeout(LIMIT_S)
            with contextlib.suppress(ConnectionResetError):
                assert connection.recv(100) == b""
            connection.close()


# Renewal


def alter(broker: EmbeddedBroker, values: Mapping[str, str]) -> tuple[int, str | None]:
    configs = [AlterableConfig(name=name, config_operation=0, value=text) for name, text in values.items()]
    resource = AlterConfigsResource(resource_type=BROKER, resource_name="0", configs=configs)
    with Wire(broker.bootstrap) as wire:
        [row] = wire.ask(IncrementalAlterConfigsRequest(resources=[resource])).responses
    return row.error_code, row.error_message


def test_a_renewed_file_is_read_again_when_its_location_is_set_again(tmp_path: Path) -> None:
    with running(tmp_path, settings(tmp_path)) as broker:
        old = TlsWire(port(broker), client_tls())
        renewed = AUTHORITY.issue()
        location = str(renewed.write_pem(tmp_path / "broker.pem"))
        with TlsWire(port(broker), client_tls()) as wire:
            assert wire.serial == old.serial
        for _ in range(2):  # the second change sets the value that is in force
            assert alter(broker, {f"{PREFIX}ssl.keystore.location": location}) == (0, None)
            with TlsWire(port(broker), client_tls()) as wire:
                assert wire.serial == renewed.certificate.serial_number
            renewed = AUTHORITY.issue()
            renewed.write_pem(tmp_path / "broker.pem")
        old.ask(MetadataRequest(topics=[]))
        old.close()


class SlowTls(TlsListeners):
    """Finishes reading the store at a location when a test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.may_finish: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)

    async def prepare(self, config: BrokerConfig, listeners: Collection[str]) -> dict[str, SecuredListener]:
        made = await super().prepare(config, listeners)
        await self.may_finish[made["EXTERNAL"].texts["ssl.keystore.location"]].wait()
        return made


def test_the_newest_of_two_quick_changes_counts(tmp_path: Path) -> None:
    original, older, newer = (
        str(AUTHORITY.issue().write_pem(tmp_path / name)) for name in ("broker.pem", "older.pem", "newer.pem")
    )

    def changed(location: str) -> BrokerConfig:
        properties = {**settings(tmp_path), f"{PREFIX}ssl.keystore.location": location}
        return embedded_config(tmp_path / "data", 0, properties)

    async def scenario() -> None:
        for newest in (newer, original):
            tls = SlowTls()
            tls.load(changed(original))
            tls.follow(changed(older))
            tls.follow(changed(newest))
            tls.may_finish[newest].set()
            await until(lambda: tls["EXTERNAL"].texts["ssl.keystore.location"] == newest)  # noqa: B023
            tls.may_finish[older].set()
            await until(lambda: not tls._loading)  # noqa: B023
            assert tls["EXTERNAL"].texts["ssl.keystore.location"] == newest

    asyncio.run(scenario())


def test_a_changed_trust_store_counts_for_new_connections(tmp_path: Path) -> None:
    other = Authority("other")
    bob = other.issue(common_name("bob")).write_pem(tmp_path / "bob.pem")
    with running(tmp_path, settings(tmp_path, ssl_client_auth="required")) as broker:
        assert refuses(port(broker), client_tls(bob))
        trusted = other.write_trust(tmp_path / "other.pem")
        assert alter(broker, {f"{PREFIX}ssl.truststore.location": str(trusted)}) == (0, None)
        with TlsWire(port(broker), client_tls(bob)) as wire:
            wire.ask(MetadataRequest(topics=[]))


def test_a_renewal_that_cannot_be_used_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    with running(tmp_path, settings(tmp_path)) as broker:
        with TlsWire(port(broker), client_tls()) as wire:
            serial = wire.serial
        bad = {
            "subject": AUTHORITY.issue("elsewhere"),
            "alternative names": AUTHORITY.issue(names=["localhost"]),
            "expired": AUTHORITY.issue(begins=timedelta(days=-3), ends=timedelta(days=-1)),
        }
        for reason, issued in bad.items():
            path = issued.write_pem(tmp_path / f"{reason}.pem")
            code, message = alter(broker, {f"{PREFIX}ssl.keystore.location": str(path)})
            assert code == ErrorCode.INVALID_REQUEST
            assert reason in str(message)
        code, message = alter(broker, {f"{PREFIX}ssl.keystore.location": "/nowhere.pem"})
        assert (code, "cannot be read" in str(message)) == (ErrorCode.INVALID_REQUEST, True)
        code, message = alter(broker, {"ssl.keystore.location": str(tmp_path / "broker.pem")})
        assert (code, "using the listener prefix" in str(message)) == (ErrorCode.INVALID_REQUEST, True)
        with TlsWire(port(broker), client_tls()) as wire:
            assert wire.serial == serial


def test_another_subject_may_be_allowed(tmp_path: Path) -> None:
    secured = settings(tmp_path) | {"ssl.allow.dn.changes": "true", "ssl.allow.san.changes": "true"}
    with running(tmp_path, secured) as broker:
        path = AUTHORITY.issue("elsewhere", names=["localhost"]).write_pem(tmp_path / "new.pem")
        assert alter(broker, {f"{PREFIX}ssl.keystore.location": str(path)}) == (0, None)


def test_passwords_and_keys_are_never_described(tmp_path: Path) -> None:
    issued = AUTHORITY.issue()
    secured = settings(tmp_path)
    del secured[f"{PREFIX}ssl.keystore.location"]
    secured |= {
        f"{PREFIX}ssl.keystore.key": issued.key_pem("hidden-password"),
        f"{PREFIX}ssl.keystore.certificate.chain": issued.certificate_pem,
        f"{PREFIX}ssl.key.password": "hidden-password",
    }
    with running(tmp_path, secured) as broker, Wire(broker.bootstrap) as wire:
        asked = DescribeConfigsResource(resource_type=BROKER, resource_name="0", configuration_keys=None)
        request = DescribeConfigsRequest(resources=[asked], include_synonyms=True, include_documentation=True)
        [result] = wire.ask(request).results
        rows = {row.name: row for row in result.configs}
        for name in ("ssl.keystore.key", "ssl.keystore.certificate.chain", "ssl.key.password"):
            row = rows[f"{PREFIX}{name}"]
            assert (row.value, row.is_sensitive, row.config_type) == (None, True, 9)
        assert rows[f"{PREFIX}ssl.keystore.type"].value == "PEM"
        assert "hidden-password" not in str(result)
        assert "hidden-password" not in repr(broker.broker.config)
        assert "PRIVATE KEY" not in repr(broker.broker.config)


# Refusals


def refusal(directory: Path, properties: Mapping[str, str]) -> str:
    with pytest.raises((StartupError, ConfigError)) as caught:
        EmbeddedBroker(directory / "data", properties=properties).stop()
    message = str(caught.value)
    assert "\n" not in message
    return message


def without(properties: dict[str, str], *names: str) -> dict[str, str]:
    return {name: text for name, text in properties.items() if name.removeprefix(PREFIX) not in names}


def test_a_broker_that_cannot_secure_a_listener_does_not_start(tmp_path: Path) -> None:
    good = settings(tmp_path)
    assert f"{PREFIX}ssl.keystore.location: a listener with TLS needs" in refusal(
        tmp_path, without(good, "ssl.keystore.location")
    )
    assert "ssl.client.auth=required needs the certificates" in refusal(
        tmp_path,
        without(
            good | {f"{PREFIX}ssl.client.auth": "required"}, "ssl.truststore.location", "ssl.truststore.type"
        ),
    )
    assert "set either a file, or the key" in refusal(tmp_path, good | {f"{PREFIX}ssl.keystore.key": "x"})
    half = without(good, "ssl.keystore.location") | {f"{PREFIX}ssl.keystore.key": "x"}
    assert "the key and its certificate chain go together" in refusal(tmp_path, half)
    assert "no listener is named EXTRENAL; there are PLAINTEXT, EXTERNAL" in refusal(
        tmp_path, good | {"listener.name.extrenal.ssl.client.auth": "required"}
    )
    assert "String must be one of: none, requested, required" in refusal(
        tmp_path, good | {f"{PREFIX}ssl.client.auth": "require"}
    )
    assert "ssl.principal.mapping.rules: expected RULE" in refusal(
        tmp_path, good | {f"{PREFIX}ssl.principal.mapping.rules": "CN=a"}
    )
    expired = AUTHORITY.issue(begins=timedelta(days=-3), ends=timedelta(days=-1))
    expired.write_pem(tmp_path / "broker.pem")
    assert "expired on" in refusal(tmp_path, good)


def test_listeners_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    good = settings(tmp_path)
    assert "has the same port" in refusal(
        tmp_path, good | {"listeners": "PLAINTEXT://127.0.0.1:19092,EXTERNAL://127.0.0.1:19092"}
    )
    assert "add EXTERNAL:SSL" in refusal(
        tmp_path, good | {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT"}
    )
    assert "security protocol TLS is not supported" in refusal(
        tmp_path, good | {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,EXTERNAL:TLS"}
    )


def test_a_broker_whose_own_trust_store_refuses_its_certificate_does_not_start(tmp_path: Path) -> None:
    properties = settings(tmp_path) | {"inter.broker.listener.name": "EXTERNAL"}
    properties[f"{PREFIX}ssl.truststore.location"] = str(
        Authority("other").write_trust(tmp_path / "other.pem")
    )
    assert "other brokers would not accept the certificate of this broker" in refusal(tmp_path, properties)


def test_the_registration_names_the_security_protocol(tmp_path: Path) -> None:
    with running(tmp_path, settings(tmp_path)) as broker, Wire(broker.bootstrap) as wire:
        assert wire.ask(DescribeClusterRequest()).error_code == 0
        protocols = broker.broker.membership._description().security_protocols
        assert protocols == {"PLAINTEXT": "PLAINTEXT", "EXTERNAL": "SSL"}


def test_no_key_appears_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    key = AUTHORITY.issue().write_pem(tmp_path / "broker.pem", "hidden-password")
    secured = settings(tmp_path) | {f"{PREFIX}ssl.key.password": "hidden-password"}
    with running(tmp_path, secured) as broker:
        assert alter(broker, {f"{PREFIX}ssl.keystore.location": str(key)}) == (0, None)
        code, _ = alter(broker, {f"{PREFIX}ssl.key.password": "another-password"})
        assert code == ErrorCode.INVALID_REQUEST
    assert "PRIVATE KEY" not in caplog.text
    assert "hidden-password" not in caplog.text
    assert "another-password" not in caplog.text


def test_a_large_response_arrives_whole_at_a_slow_reader(tmp_path: Path) -> None:
    """Tens of MB in one response: more than the kernel's buffers and more than one turn of the event loop."""
    with running(tmp_path, settings(tmp_path)) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 20})
        for number in range(40):
            producer.produce("t", bytes([number]) * 900_000)
        assert producer.flush(60) == 0
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=50_000_000,
            session_epoch=-1,
            topics=[
                FetchTopic(
                    topic="t",
                    partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=50_000_000)],
                )
            ],
        )
        with Wire(broker.bootstrap) as plain, TlsWire(port(broker), client_tls()) as wire:
            [expected] = plain.ask(request, 12).responses[0].partitions
            correlation_id = wire.send(request, 12)
            received = bytearray()
            while len(received) < 4 or len(received) < 4 + int.from_bytes(received[:4], "big"):
                data = wire.socket.recv(100_000)
                assert data, "the broker closed the connection"
                received += data
                time.sleep(0.0005)
            assert int.from_bytes(received[4:8], "big") == correlation_id
            assert bytes(expected.records) in received
            assert len(expected.records) > 30_000_000
            assert wire.ask(MetadataRequest(topics=[])).brokers
