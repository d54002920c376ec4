"""Mistakes in the security of real processes: one line says what to do, and no listener opens."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path

import pytest

from conformance.live_process import LiveProcess
from conformance.secured import AUTHORIZER
from conformance.wire import Wire
from felice.protocol.messages.metadata import MetadataRequest
from peers.apache_kafka import free_port
from peers.authority import Authority

pytestmark = pytest.mark.felice_only

FELICE = (str(Path(sys.executable).with_name("felice")),)
AUTHORITY = Authority()
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
JAAS = "listener.name.external.plain.sasl.jaas.config"
DEADLINE_S = 120


def felice(*words: str, text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run([*FELICE, *words], input=text, capture_output=True, text=True, timeout=DEADLINE_S)


def secured(directory: Path, port: int) -> dict[str, str]:
    """A broker with a plain listener for itself, and one with TLS and PLAIN for clients."""
    key = AUTHORITY.issue().write_pem(directory / "broker.pem")
    AUTHORITY.write_trust(directory / "ca.pem")
    return {
        "log.dirs": str(directory / "data"),
        "listeners": f"INTERNAL://127.0.0.1:{free_port()},EXTERNAL://127.0.0.1:{port}",
        "listener.security.protocol.map": "INTERNAL:PLAINTEXT,EXTERNAL:SASL_SSL",
        "inter.broker.listener.name": "INTERNAL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(key),
        "sasl.enabled.mechanisms": "PLAIN",
        JAAS: f'{PLAIN} required user_alice="alices-secret";',
    }


def write(path: Path, properties: Mapping[str, str]) -> str:
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    return str(path)


def expired(directory: Path) -> dict[str, str]:
    issued = AUTHORITY.issue(begins=timedelta(days=-3), ends=timedelta(days=-1))
    return {"ssl.keystore.location": str(issued.write_pem(directory / "expired.pem"))}


def key_of_another_certificate(directory: Path) -> dict[str, str]:
    path = directory / "mixed.pem"
    path.write_text(AUTHORITY.issue().key_pem() + AUTHORITY.issue().certificate_pem)
    return {"ssl.keystore.location": str(path)}


def wrong_password_of_the_key(directory: Path) -> dict[str, str]:
    path = AUTHORITY.issue().write_pem(directory / "locked.pem", "right-secret")
    return {"ssl.keystore.location": str(path), "ssl.key.password": "wrong-secret"}


def no_key_store(directory: Path) -> dict[str, str]:
    return {"ssl.keystore.location": ""}


def no_mechanisms(directory: Path) -> dict[str, str]:
    return {"sasl.enabled.mechanisms": ""}


def no_users(directory: Path) -> dict[str, str]:
    return {JAAS: ""}


def an_unfinished_line_of_users(directory: Path) -> dict[str, str]:
    return {JAAS: f'{PLAIN} required user_alice="alices-secret'}


def a_listener_without_protocol(directory: Path) -> dict[str, str]:
    return {"listener.security.protocol.map": "INTERNAL:PLAINTEXT"}


def a_misspelt_listener(directory: Path) -> dict[str, str]:
    return {"listener.name.extrenal.ssl.client.auth": "required"}


def no_trusted_certificates(directory: Path) -> dict[str, str]:
    return {"listener.name.external.ssl.client.auth": "required"}


def an_unknown_authorizer(directory: Path) -> dict[str, str]:
    return {"authorizer.class.name": "com.example.Authorizer"}


@pytest.mark.parametrize(
    ("mistake", "advice"),
    [
        (expired, "expired on"),
        (key_of_another_certificate, "ssl.keystore.location"),
        (wrong_password_of_the_key, "password"),
        (no_key_store, "a listener with TLS needs"),
        (no_mechanisms, "name the mechanisms that clients may use"),
        (no_users, "PLAIN needs this"),
        (an_unfinished_line_of_users, "quotation mark"),
        (a_listener_without_protocol, "add EXTERNAL:"),
        (a_misspelt_listener, "there are INTERNAL, EXTERNAL"),
        (no_trusted_certificates, "needs the certificates"),
        (an_unknown_authorizer, "authorizer.class.name"),
    ],
)
def test_a_broker_that_cannot_be_secured_opens_no_listener(
    tmp_path: Path, mistake: object, advice: str
) -> None:
    port = free_port()
    changed = secured(tmp_path, port) | mistake(tmp_path)  # type: ignore[operator]
    done = felice("broker", write(tmp_path / "server.properties", {k: v for k, v in changed.items() if v}))
    assert done.returncode == 1
    lines = [line for line in done.stderr.splitlines() if " INFO " not in line and " WARNING " not in line]
    assert len(lines) == 1 and advice in lines[0], done.stderr
    assert "secret" not in done.stderr + done.stdout
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), DEADLINE_S)


def test_two_listeners_on_one_port_are_refused(tmp_path: Path) -> None:
    port = free_port()
    both = {"listeners": f"INTERNAL://127.0.0.1:{port},EXTERNAL://127.0.0.1:{port}"}
    done = felice("broker", write(tmp_path / "server.properties", secured(tmp_path, port) | both))
    assert done.returncode == 1
    assert "has the same port" in done.stderr.splitlines()[-1]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveProcess]:
    """A broker with an authorizer, whose anonymous clients are super users; PLAIN without TLS."""
    directory = tmp_path_factory.mktemp("secured")
    options = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.plaintext.plain.sasl.jaas.config": (
            f'{PLAIN} required username="admin" password="admins-secret" user_admin="admins-secret";'
        ),
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:admin",
    }
    with LiveProcess(directory / "data", options=options) as running:
        yield running


def login(path: Path, password: str = "admins-secret") -> str:
    return write(
        path,
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "admin",
            "sasl.password": password,
        },
    )


def test_a_wrong_password_of_a_command_is_told_in_one_line(broker: LiveProcess, tmp_path: Path) -> None:
    wrong = login(tmp_path / "wrong.properties", "another-secret")
    done = felice("topics", "list", "-b", broker.bootstrap, "--command-config", wrong)
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert "Invalid username or password" in line and "secret" not in line


def test_a_command_without_a_login_is_told_what_is_missing(broker: LiveProcess) -> None:
    done = felice("topics", "list", "-b", broker.bootstrap)
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert "security.protocol" in line
    with Wire(broker.bootstrap) as wire:
        wire.send(MetadataRequest(topics=[]))
        assert wire.is_closed_by_peer()


def test_a_quota_of_zero_is_refused_in_one_line(broker: LiveProcess, tmp_path: Path) -> None:
    config = ("-b", broker.bootstrap, "--command-config", login(tmp_path / "admin.properties"))
    done = felice("quotas", "alter", "--user", "alice", "--set", "producer_byte_rate=0", *config)
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert "producer_byte_rate must be greater than 0" in line
    described = felice("quotas", "describe", *config)
    assert (described.stdout, described.stderr) == ("", "There are no quotas.\n")


def test_a_rule_for_an_unknown_user_waits_for_that_user(broker: LiveProcess, tmp_path: Path) -> None:
    config = ("-b", broker.bootstrap, "--command-config", login(tmp_path / "admin.properties"))
    rule = ("--allow-principal", "User:nobody-yet", "--operation", "Read", "--topic", "t")
    assert felice("acls", "add", *rule, *config).returncode == 0
    assert "User:nobody-yet" in felice("acls", "list", *config).stdout
    without_kind = ("--allow-principal", "nobody-yet", "--operation", "Read", "--topic", "t")
    done = felice("acls", "add", *without_kind, *config)
    assert done.returncode != 0
    assert "principalType:principalName but got nobody-yet" in done.stderr.splitlines()[-1]
