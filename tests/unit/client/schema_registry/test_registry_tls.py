"""TLS to a registry: trusted authorities, certificates of clients, and what happens if they do not fit."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from felice.client.schema_registry import SchemaRegistryClient
from peers.authority import Authority
from unit.client.schema_registry.scripted_registry import Registry, served


@dataclass(frozen=True)
class Secured:
    url: str
    registry: Registry
    ca: Path
    client: Path
    locked_client: Path


@pytest.fixture(params=[False, True], ids=["any client", "clients with certificates"])
def secured(request: pytest.FixtureRequest, tmp_path: Path, authority: Authority) -> Iterator[Secured]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.issue().write_pem(tmp_path / "server.pem"))
    ca = authority.write_trust(tmp_path / "ca.pem")
    if request.param:
        context.load_verify_locations(ca)
        context.verify_mode = ssl.CERT_REQUIRED
    client = authority.issue("client").write_pem(tmp_path / "client.pem")
    locked = authority.issue("client").write_pem(tmp_path / "locked.pem", "pass")
    registry = Registry()
    with served(registry, context) as url:
        yield Secured(url, registry, ca, client, locked)


def subjects(secured: Secured, **conf: Any) -> Any:
    given = {name.replace("_", "."): value for name, value in conf.items()}
    with SchemaRegistryClient({"url": secured.url, "max.retries": 0, **given}) as client:
        return client.get_subjects()


def test_a_trusted_registry_answers(secured: Secured) -> None:
    own = {"ssl_certificate_location": str(secured.client)}
    assert subjects(secured, ssl_ca_location=str(secured.ca), **own) == []
    assert subjects(secured, ssl_ca_location=False, **own) == []
    # The list of the system, which SSL_CERT_FILE names here.
    assert subjects(secured, **own) == []


def test_an_encrypted_key_is_read_with_its_password(secured: Secured) -> None:
    own = {"ssl_certificate_location": str(secured.locked_client)}
    assert subjects(secured, ssl_key_password="pass", **own) == []
    with pytest.raises(ssl.SSLError):
        subjects(secured, ssl_key_password="wrong", **own)
    with pytest.raises(ssl.SSLError):
        subjects(secured, **own)


def test_an_unknown_authority_is_not_trusted(secured: Secured, tmp_path: Path) -> None:
    other = Authority().write_trust(tmp_path / "other.pem")
    with pytest.raises(httpx2.ConnectError, match="certificate"):
        subjects(secured, ssl_ca_location=str(other))
    assert secured.registry.seen == []


def test_a_directory_of_authorities_may_be_empty(secured: Secured, tmp_path: Path) -> None:
    with pytest.raises(httpx2.ConnectError, match="certificate"):
        subjects(secured, ssl_ca_location=str(tmp_path))


@pytest.mark.parametrize(
    ("properties", "why"),
    [
        ({"ssl.ca.location": "/no/ca.pem"}, "ssl.ca.location /no/ca.pem: No such file"),
        (
            {"ssl.certificate.location": "/no/cert.pem", "ssl.key.location": "/no/key.pem"},
            "ssl.certificate.location /no/cert.pem and /no/key.pem: No such file",
        ),
    ],
)
def test_a_file_that_cannot_be_read_is_named(properties: dict[str, str], why: str) -> None:
    with pytest.raises(FileNotFoundError, match=why):
        SchemaRegistryClient({"url": "https://127.0.0.1:1", **properties})
