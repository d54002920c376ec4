"""HTTPS with the options of listeners."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import httpx2
import pytest

import strangers
from felice.config.option import ConfigError
from felice.env.key_stores import TlsError
from felice.web.application import application
from felice.web.serving import WebServer
from felice.web.tls import server_tls
from peers.authority import Authority
from unit.web.serving_app import ROUTES, NoAnswer, parse, request_of

AUTHORITY = Authority()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    issued = AUTHORITY.issue()
    issued.write_pem(tmp_path / "server.pem")
    issued.write_pkcs12(tmp_path / "server.p12", "stores-secret", AUTHORITY)
    issued.write_pem(tmp_path / "locked.pem", "keys-secret")
    (tmp_path / "chain.pem").write_text(issued.certificate_pem)
    (tmp_path / "key.pem").write_text(issued.key_pem())
    AUTHORITY.write_trust(tmp_path / "ca.pem")
    AUTHORITY.issue("alice").write_pem(tmp_path / "alice.pem")
    return tmp_path


PEM = {"ssl.keystore.type": "PEM", "ssl.keystore.location": "server.pem"}
MUTUAL = {
    **PEM,
    "ssl.truststore.type": "PEM",
    "ssl.truststore.location": "ca.pem",
    "ssl.client.auth": "required",
}


@asynccontextmanager
async def secured(directory: Path, options: Mapping[str, str]) -> AsyncIterator[WebServer]:
    app = application(ROUTES)
    async with asyncio.timeout(120):
        async with WebServer(app, "127.0.0.1", 0, tls=server_tls(options, directory)) as server:
            yield server


def client_context(directory: Path, certificate: str | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(directory / "ca.pem"))
    if certificate is not None:
        context.load_cert_chain(directory / certificate)
    return context


async def ask(server: WebServer, context: ssl.SSLContext, request: bytes) -> tuple[int, bytes, ssl.SSLObject]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=context)
    try:
        writer.write(request)
        status, _, body = parse(await reader.read())
        return status, body, writer.get_extra_info("ssl_object")
    finally:
        writer.close()


@pytest.mark.parametrize(
    "options",
    [
        PEM,
        {"ssl.keystore.location": "server.p12", "ssl.keystore.password": "stores-secret"},
        {**PEM, "ssl.keystore.location": "locked.pem", "ssl.key.password": "keys-secret"},
    ],
)
def test_requests_arrive_over_tls(directory: Path, options: Mapping[str, str]) -> None:
    async def scenario() -> None:
        async with secured(directory, options) as server:
            assert server.url.startswith("https://127.0.0.1:")
            for request, expected in (
                (request_of("GET", "/hello"), b"hello\n"),
                (request_of("GET", "/large"), b"x" * 5_000_000),
                (request_of("POST", "/count", b"x" * 2_000_000), b'{"bytes":2000000}'),
            ):
                status, body, _ = await ask(server, client_context(directory), request)
                assert (status, body) == (200, expected)

    asyncio.run(scenario())


@pytest.mark.parametrize(("speaks_http2", "version"), [(True, "HTTP/2"), (False, "HTTP/1.1")])
def test_http2_is_chosen_over_tls_by_alpn(directory: Path, speaks_http2: bool, version: str) -> None:
    async def scenario() -> None:
        async with (
            secured(directory, PEM) as server,
            httpx2.AsyncClient(
                http2=speaks_http2, verify=client_context(directory), trust_env=False
            ) as client,
        ):
            for path, expected in (("/hello", b"hello\n"), ("/large", b"x" * 5_000_000)):
                answer = await client.get(server.url + path)
                assert (answer.http_version, answer.status_code, answer.content) == (version, 200, expected)
            counted = await client.post(server.url + "/count", content=b"x" * 2_000_000)
            assert counted.json() == {"bytes": 2_000_000}

    asyncio.run(scenario())


def test_keys_may_stand_in_the_options(directory: Path) -> None:
    options = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": (directory / "chain.pem").read_text(),
        "ssl.keystore.key": (directory / "key.pem").read_text(),
    }

    async def scenario() -> None:
        async with secured(directory, options) as server:
            assert (await ask(server, client_context(directory), request_of("GET", "/hello")))[0] == 200

    asyncio.run(scenario())


def test_a_client_without_a_required_certificate_gets_no_answer(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "felice.web")

    async def scenario() -> None:
        async with secured(directory, MUTUAL) as server:
            request = request_of("GET", "/hello")
            assert (await ask(server, client_context(directory, "alice.pem"), request))[0] == 200
            with pytest.raises((OSError, NoAnswer)):  # TLS 1.3 tells a client after its handshake
                await ask(server, client_context(directory), request)

    asyncio.run(scenario())
    assert [record.__dict__["reason"] for record in caplog.records if "handshake" in record.msg]


def test_versions_are_limited(directory: Path) -> None:
    async def scenario() -> None:
        async with secured(directory, {**PEM, "ssl.enabled.protocols": "TLSv1.2"}) as server:
            _, _, found = await ask(server, client_context(directory), request_of("GET", "/hello"))
            assert found.version() == "TLSv1.2"

    asyncio.run(scenario())


def test_a_renewed_certificate_counts_for_the_next_connection(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def serial(server: WebServer) -> str:
        _, _, found = await ask(server, client_context(directory), request_of("GET", "/hello"))
        certificate = found.getpeercert()
        assert certificate is not None
        return str(certificate["serialNumber"])

    def replace(text: str) -> None:
        (directory / "new").write_text(text)
        os.replace(directory / "new", directory / "server.pem")

    async def scenario() -> None:
        async with secured(directory, PEM) as server:
            first = await serial(server)
            issued = AUTHORITY.issue()
            replace(issued.key_pem() + issued.certificate_pem)
            second = await serial(server)
            assert second != first
            expired = AUTHORITY.issue(ends=timedelta(days=-0.5))
            for text in ("nothing", expired.key_pem() + expired.certificate_pem):
                replace(text)
                assert [await serial(server), await serial(server)] == [second, second]

    asyncio.run(scenario())
    reasons = [record.__dict__["reason"] for record in caplog.records if record.levelno == logging.ERROR]
    assert len(reasons) == 2  # once for each change
    assert "server.pem is not PEM" in reasons[0]
    assert "expired on" in reasons[1]


def test_a_client_without_tls_gets_no_answer_and_harms_nobody(directory: Path) -> None:
    async def scenario() -> None:
        async with secured(directory, PEM) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(request_of("GET", "/hello"))
            assert b"hello" not in await reader.read()
            writer.close()
            assert (await ask(server, client_context(directory), request_of("GET", "/hello")))[0] == 200

    asyncio.run(scenario())


def test_strangers_in_the_middle_of_a_handshake_keep_nobody_out(directory: Path) -> None:
    async def scenario() -> None:
        async with secured(directory, PEM) as server:
            with strangers.strangers(server.port, "silence", 300):
                for _ in range(3):
                    answer = await ask(server, client_context(directory), request_of("GET", "/hello"))
                    assert answer[:2] == (200, b"hello\n")

    asyncio.run(scenario())


def test_without_options_there_is_no_tls() -> None:
    assert server_tls({}) is None


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"ssl.keystore.type": "PEM"}, r"^ssl.keystore.location: a listener with TLS needs a private key"),
        (
            {**PEM, "ssl.keystore.location": "none.pem"},
            r"none.pem cannot be read: no such file or directory$",
        ),
        ({**PEM, "ssl.keystore.type": "PKCS12"}, r"server.pem is PEM; set ssl.keystore.type=PEM"),
        (
            {**PEM, "ssl.client.auth": "required"},
            r"^ssl.client.auth=required needs .* ssl.truststore.location$",
        ),
    ],
)
def test_keys_that_cannot_be_used_are_refused_by_the_name_of_their_option(
    directory: Path, options: Mapping[str, str], reason: str
) -> None:
    with pytest.raises(TlsError, match=reason):
        server_tls(options, directory)


@pytest.mark.parametrize(
    "options",
    [
        {"ssl.keystore.locations": "server.pem"},
        {**PEM, "ssl.principal.mapping.rules": "DEFAULT"},
        {**PEM, "listener.name.web.ssl.client.auth": "none"},
        {**PEM, "ssl.client.auth": "sometimes"},
    ],
)
def test_options_that_have_no_effect_or_no_meaning_are_refused(
    directory: Path, options: Mapping[str, str]
) -> None:
    with pytest.raises(ConfigError):
        server_tls(options, directory)
