"""A client that has not logged in gets an error of the protocol or a closed connection, and nothing else.

A broker runs as a process of its own, with SASL listeners with and without TLS. Hypothesis makes conversations over
real sockets: tokens of every mechanism, whole and damaged, at the right and the wrong time, and damaged TLS handshakes.
After each conversation the client is still unknown: its Metadata request is refused. In the end the process has not
grown, has closed every connection, and its log has no trace of a failed request.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import socket
import ssl
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jwt.algorithms import RSAAlgorithm

from conformance.wire import Wire, request_header
from felice.protocol.messages.metadata import MetadataRequest
from peers.apache_kafka import free_port
from peers.authority import Authority
from waiting import LIMIT_S, wait_until

MEBIBYTE = 1 << 20
MEMORY_GROWTH_BYTES = 64 * MEBIBYTE
ANSWER_TIMEOUT_S = 60.0
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
MODULES = "org.apache.kafka.common.security"
HANDSHAKE_KEY, AUTHENTICATE_KEY, VERSIONS_KEY = 17, 36, 18


def key_set_entry() -> dict[str, Any]:
    """A key of an issuer, who signs nothing in these tests."""
    public = rsa.generate_private_key(public_exponent=65537, key_size=2048).public_key()
    found: dict[str, Any] = RSAAlgorithm.to_jwk(public, as_dict=True)
    return {**found, "kid": "x", "use": "sig", "alg": "RS256"}


class SecuredProcess:
    """A broker whose listeners PLAIN and TLS require a login, with an open listener for the test itself."""

    def __init__(self, directory: Path) -> None:
        self.ports = {name: free_port() for name in ("INTERNAL", "PLAIN", "TLS")}
        self.authority = Authority()
        self.authority.issue().write_pem(directory / "broker.pem")
        (directory / "keys.json").write_text(json.dumps({"keys": [key_set_entry()]}))
        properties = directory / "server.properties"
        properties.write_text(
            "".join(f"{key}={value}\n" for key, value in self._properties(directory).items())
        )
        self._log = directory / "log"
        with self._log.open("wb") as log:
            command = [sys.executable, "-m", "felice.cli.main", "broker", str(properties)]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        wait_until(self._listens, 120)

    def _properties(self, directory: Path) -> dict[str, str]:
        jaas = {
            "plain": f'{MODULES}.plain.PlainLoginModule required user_alice="alices-secret";',
            "oauthbearer": f"{MODULES}.oauthbearer.OAuthBearerLoginModule required;",
        }
        per_listener: dict[str, str] = {}
        for name in ("plain", "tls"):
            prefix = f"listener.name.{name}."
            for mechanism, text in jaas.items():
                per_listener[f"{prefix}{mechanism}.sasl.jaas.config"] = text
            oauth = f"{prefix}oauthbearer.sasl."
            per_listener[f"{oauth}server.callback.handler.class"] = (
                f"{MODULES}.oauthbearer.OAuthBearerValidatorCallbackHandler"
            )
            per_listener[f"{oauth}oauthbearer.jwks.endpoint.url"] = (directory / "keys.json").as_uri()
            per_listener[f"{oauth}oauthbearer.expected.audience"] = "kafka"
        return {
            "node.id": "1",
            "log.dirs": str(directory / "data"),
            "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in self.ports.items()),
            "listener.security.protocol.map": "INTERNAL:PLAINTEXT,PLAIN:SASL_PLAINTEXT,TLS:SASL_SSL",
            "inter.broker.listener.name": "INTERNAL",
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "connection.failed.authentication.delay.ms": "0",
            "felice.tls.handshake.timeout.ms": "3000",
            "listener.name.tls.ssl.keystore.type": "PEM",
            "listener.name.tls.ssl.keystore.location": str(directory / "broker.pem"),
            **per_listener,
        }

    def _listens(self) -> bool:
        assert self._process.poll() is None, self.log()
        try:
            self.ask()
        except OSError:
            return False
        return True

    def ask(self) -> None:
        """A client of the open listener is served."""
        with Wire(f"127.0.0.1:{self.ports['INTERNAL']}", ANSWER_TIMEOUT_S) as wire:
            assert wire.ask(MetadataRequest(topics=[])).brokers

    def connect(self, listener: str) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.ports[listener]), timeout=ANSWER_TIMEOUT_S)

    def connect_tls(self) -> ssl.SSLSocket:
        """Tries again if the broker cut a handshake off: on a slow machine one may reach its time limit."""
        context = ssl.create_default_context(cadata=self.authority.certificate_pem)
        context.check_hostname = False
        deadline = time.monotonic() + LIMIT_S
        while True:
            try:
                return context.wrap_socket(self.connect("TLS"))
            except (ssl.SSLError, ConnectionError):
                if time.monotonic() >= deadline:
                    raise
            time.sleep(0.1)

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def memory_bytes(self) -> int:
        pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def open_files(self) -> int:
        return len(list(Path(f"/proc/{self._process.pid}/fd").iterdir()))

    def stop(self) -> int:
        self._process.terminate()
        return self._process.wait(120)


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredProcess]:
    running = SecuredProcess(tmp_path_factory.mktemp("before-login"))
    try:
        yield running
        assert running.stop() == 0
    finally:
        running._process.kill()
    log = running.log()
    assert "Traceback" not in log and "request failed" not in log, log[-4000:]
    assert "alices-secret" not in log


@pytest.fixture
def unharmed(process: SecuredProcess) -> Iterator[SecuredProcess]:
    process.ask()
    weight, files = process.memory_bytes(), process.open_files()
    yield process
    process.ask()
    # A busy broker sees the ends of many connections a little later than their clients.
    wait_until(lambda: process.memory_bytes() - weight < MEMORY_GROWTH_BYTES)
    wait_until(lambda: process.open_files() <= files + 4)


# What clients send


def encoded(value: Any) -> bytes:
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(text).rstrip(b"=")


DEEP = b"[" * 50_000 + b"]" * 50_000
numbers = st.sampled_from(
    [b"0", b"-1", b"1e400", b"NaN", b"Infinity", b"9" * 5000, b"1.5", b'"x"', b"null", b"{}"]
)
claims = st.one_of(
    st.binary(max_size=60),
    st.just(DEEP),
    st.just(b'{"a":' * 20_000),
    numbers.map(lambda number: b'{"sub":"alice","iat":1,"exp":' + number + b"}"),
    st.sampled_from([b"{}", b"[]", b"null", b'"\\ud800"', b'{"sub":"\\ud800","iat":1,"exp":9e9}']),
)
headers = st.one_of(
    st.binary(max_size=40),
    st.sampled_from(
        [b'{"alg":"none"}', b'{"alg":"RS256","kid":"x"}', b'{"alg":[]}', b'{"alg":null}', b"{}", DEEP]
    ),
)
jwts = st.one_of(
    st.binary(max_size=80),
    st.tuples(headers, claims, st.binary(max_size=30)).map(lambda parts: b".".join(map(encoded, parts))),
)
texts = st.one_of(
    st.sampled_from([b"alice", b"", b"=2C", b"=", b"=XX", b"a=2Cb", b"\xff\xfe"]), st.binary(max_size=30)
)
plain_tokens = st.tuples(texts, texts, texts).map(b"\0".join)
scram_tokens = st.one_of(
    st.tuples(
        st.sampled_from([b"n,,", b"n,a=alice,", b"y,,", b"p=tls-unique,,", b"n", b""]), texts, texts, texts
    ).map(lambda parts: parts[0] + b"n=" + parts[1] + b",r=" + parts[2] + b"," + parts[3]),
    st.tuples(texts, texts, texts).map(
        lambda parts: b"c=" + parts[0] + b",r=" + parts[1] + b",p=" + parts[2]
    ),
    st.integers(1, 60_000).map(lambda count: b"n,,n=alice,r=" + b"," * count),
    st.integers(1, 60_000).map(lambda count: b"n,,n=" + b"=2C" * count + b",r=x"),
)
bearer_tokens = st.one_of(
    jwts.map(lambda jwt: b"n,,\1auth=Bearer " + jwt + b"\1\1"),
    st.tuples(texts, jwts).map(
        lambda parts: b"n,a=" + parts[0] + b",\1auth=bearer " + parts[1] + b"\1k=v\1\1"
    ),
    st.integers(1, 60_000).map(lambda count: b"n,,\1" + b"k=v\1" * count + b"\1"),
    st.just(b"\1"),
)
tokens = st.one_of(st.binary(max_size=300), plain_tokens, scram_tokens, bearer_tokens)


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def handshake(mechanism: str, version: int) -> bytes:
    name = mechanism.encode()
    return framed(request_header(HANDSHAKE_KEY, version, 1, "fuzz", 1) + struct.pack(">h", len(name)) + name)


def authenticate(token: bytes, version: int) -> bytes:
    size = struct.pack(">i", len(token))
    return framed(request_header(AUTHENTICATE_KEY, version, 2, "fuzz", 1) + size + token)


names = st.one_of(st.sampled_from([*MECHANISMS, "GSSAPI", "", "plain", "x" * 3000]), st.text(max_size=10))
steps = st.one_of(
    st.tuples(names, st.integers(0, 1)).map(lambda parts: handshake(*parts)),
    st.tuples(tokens, st.integers(0, 1)).map(lambda parts: authenticate(*parts)),
    tokens.map(framed),
    st.integers(0, 5).map(lambda version: framed(request_header(VERSIONS_KEY, version, 3, "fuzz", 1))),
    st.binary(max_size=60),
    st.integers(-(2**31), 2**31 - 1).map(lambda size: struct.pack(">i", size) + b"\0" * 20),
)
# Most conversations begin as a login begins, so that tokens reach the mechanisms.
logins = st.tuples(
    st.sampled_from(MECHANISMS), st.integers(0, 1), st.lists(tokens, min_size=1, max_size=3)
).map(
    lambda parts: (
        [handshake(parts[0], parts[1])]
        + [framed(token) if parts[1] == 0 else authenticate(token, 1) for token in parts[2]]
    )
)
conversations = st.one_of(logins, logins, st.lists(steps, min_size=1, max_size=5))


def is_refused(connection: socket.socket, sent: list[bytes]) -> bool:
    """Sends a conversation and then a Metadata request; whether no broker's host is in the responses."""
    metadata = framed(request_header(3, 1, 99, "fuzz", 1) + struct.pack(">i", 0))
    received = bytearray()
    with contextlib.suppress(OSError):
        for data in (*sent, metadata):
            connection.sendall(data)
        shut_for_writing(connection)
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        while chunk := connection.recv(65536):
            received += chunk
            assert len(received) < MEBIBYTE
    connection.close()
    return b"127.0.0.1" not in received


def shut_for_writing(connection: socket.socket) -> None:
    """The broker does not wait for the rest of an unfinished frame. TLS stays in place for what it still sends."""
    socket.socket.shutdown(connection, socket.SHUT_WR)


fuzzed = settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@fuzzed
@given(conversations)
def test_no_conversation_without_a_secret_is_a_login(process: SecuredProcess, sent: list[bytes]) -> None:
    assert is_refused(process.connect("PLAIN"), sent)


def test_the_host_is_in_the_response_to_a_client_that_has_logged_in(process: SecuredProcess) -> None:
    sent = [handshake("PLAIN", 1), authenticate(b"\0alice\0alices-secret", 1)]
    assert not is_refused(process.connect("PLAIN"), sent)
    assert not is_refused(process.connect_tls(), sent)


@fuzzed
@given(conversations)
def test_nor_is_one_over_tls(process: SecuredProcess, sent: list[bytes]) -> None:
    assert is_refused(process.connect_tls(), sent)


@pytest.mark.parametrize("listener", ["PLAIN", "TLS"])
@pytest.mark.parametrize(
    "sent", [[handshake("PLAIN", 1)], [handshake("PLAIN", 1), authenticate(b"\0a\0b", 1)]]
)
def test_a_client_that_closes_its_side_after_a_failed_login_is_closed(
    process: SecuredProcess, listener: str, sent: list[bytes]
) -> None:
    assert is_refused(process.connect_tls() if listener == "TLS" else process.connect(listener), sent)


def client_hello() -> bytes:
    """The first bytes of a TLS client."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


HELLO = client_hello()


def damaged(parts: tuple[int, int, bytes]) -> bytes:
    place, length, replacement = parts
    return HELLO[:place] + replacement + HELLO[place + length :]


records = st.tuples(st.integers(0, 255), st.integers(0, 65535), st.binary(max_size=100)).map(
    lambda parts: struct.pack(">BHH", parts[0], 0x0303, parts[1]) + parts[2]
)
tls_garbage = st.one_of(
    st.binary(max_size=300),
    st.integers(0, len(HELLO)).map(lambda end: HELLO[:end]),
    st.tuples(st.integers(0, len(HELLO)), st.integers(0, 40), st.binary(max_size=40)).map(damaged),
    st.tuples(st.just(HELLO), records).map(b"".join),
    st.tuples(records, records).map(b"".join),
    st.just(handshake("PLAIN", 1)),
)


@fuzzed
@given(tls_garbage)
def test_damaged_tls_handshakes_are_closed(process: SecuredProcess, sent: bytes) -> None:
    assert is_refused(process.connect("TLS"), [sent])


@fuzzed
@given(st.binary(max_size=200))
def test_bytes_that_are_no_tls_after_a_handshake_are_closed(process: SecuredProcess, sent: bytes) -> None:
    secured = process.connect_tls()
    bare = socket.socket(fileno=secured.detach())
    bare.settimeout(ANSWER_TIMEOUT_S)
    assert is_refused(bare, [sent])


def test_many_clients_before_their_login_take_little_memory(unharmed: SecuredProcess) -> None:
    """Each sends almost the largest request that is accepted before a login; together they would be 125 MB."""
    size = 500_000
    start = framed(request_header(AUTHENTICATE_KEY, 1, 1, "fuzz", 1) + bytes(size))[:-1]
    weight = unharmed.memory_bytes()
    connections = []
    for _ in range(250):
        connection = unharmed.connect("PLAIN")
        connection.setblocking(False)
        with contextlib.suppress(OSError):
            connection.sendall(handshake("PLAIN", 1))
        connections.append(connection)
    most = weight
    for place in range(0, len(start), 50_000):
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.send(start[place : place + 50_000])
        most = max(most, unharmed.memory_bytes())
    unharmed.ask()
    most = max(most, unharmed.memory_bytes())
    for connection in connections:
        connection.close()
    assert most - weight < 2 * MEMORY_GROWTH_BYTES


def test_many_half_handshakes_are_cut_and_disturb_nobody(unharmed: SecuredProcess) -> None:
    connections = [unharmed.connect("TLS") for _ in range(200)]
    for number, connection in enumerate(connections):
        connection.sendall(HELLO[: number % len(HELLO)])
    unharmed.ask()
    unharmed.connect_tls().close()
    for connection in connections:
        with contextlib.suppress(ConnectionError):
            while connection.recv(4096):
                continue
        connection.close()
