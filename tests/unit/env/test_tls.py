"""Key stores and TLS contexts: every wrong configuration has an error that says what to do."""

from __future__ import annotations

import contextlib
import ssl
from datetime import timedelta
from pathlib import Path

import pytest

from felice.env.key_stores import (
    Identity,
    StoreSource,
    TlsError,
    check_identity,
    identity_of_pem,
    read_identity,
    read_trust,
)
from felice.env.tls import TlsVersions, client_context, openssl_name, server_context, why_not_accepted
from peers.authority import Authority, Issued

AUTHORITY = Authority()
SERVER = AUTHORITY.issue()
BOTH = TlsVersions()


def identity_of(issued: Issued) -> Identity:
    return Identity(issued.certificate_pem.encode(), issued.key_pem().encode())


def source(kind: str, path: Path, password: str | None = None) -> StoreSource:
    return StoreSource("keystore", kind, str(path), password)


def trust() -> bytes:
    return AUTHORITY.certificate_pem.encode()


@pytest.mark.parametrize("password", [None, "key secret"])
def test_a_pem_file_holds_key_and_certificates(tmp_path: Path, password: str | None) -> None:
    path = SERVER.write_pem(tmp_path / "a.pem", password)
    identity = read_identity(source("PEM", path), password)
    check_identity(source("PEM", path), identity)
    server = server_context(identity, None, "none", BOTH)
    assert why_not_accepted(server, client_context(None, trust(), BOTH)) is None


@pytest.mark.parametrize("kind", ["PKCS12", "JKS"])
def test_a_pkcs12_file_holds_key_and_chain(tmp_path: Path, kind: str) -> None:
    path = SERVER.write_pkcs12(tmp_path / "a.p12", "secret", AUTHORITY)
    identity = read_identity(source(kind, path, "secret"), None)
    assert identity.certificates.count(b"BEGIN CERTIFICATE") == 2
    server = server_context(identity, None, "none", BOTH)
    assert why_not_accepted(server, client_context(None, trust(), BOTH)) is None
    assert read_trust(StoreSource("truststore", kind, str(path), "secret")).count(b"BEGIN CERTIFICATE") == 2


def refused(tmp_path: Path, content: bytes, kind: str = "PEM", password: str | None = None) -> str:
    path = tmp_path / "store"
    path.write_bytes(content)
    with pytest.raises(TlsError) as caught:
        check_identity(source(kind, path, password), read_identity(source(kind, path, password), None))
    return str(caught.value)


def pem(issued: Issued, password: str | None = None) -> bytes:
    return (issued.key_pem(password) + issued.certificate_pem).encode()


def test_a_key_store_that_cannot_be_used_is_refused_with_the_reason(tmp_path: Path) -> None:
    expired = AUTHORITY.issue(begins=timedelta(days=-3), ends=timedelta(days=-2))
    later = AUTHORITY.issue(begins=timedelta(days=1))
    mismatched = (SERVER.key_pem() + later.certificate_pem).encode()
    assert "the certificate of CN=localhost expired on 20" in refused(tmp_path, pem(expired))
    assert "is valid only from 20" in refused(tmp_path, pem(later))
    foreign = (SERVER.key_pem() + AUTHORITY.issue().certificate_pem).encode()
    assert "does not belong to the first certificate" in refused(tmp_path, foreign)
    assert "is valid only from" in refused(tmp_path, mismatched)
    assert "ssl.key.password: the private key is encrypted" in refused(tmp_path, pem(SERVER, "x"))
    assert "has no private key" in refused(tmp_path, SERVER.certificate_pem.encode())
    assert "has no certificate" in refused(tmp_path, SERVER.key_pem().encode())
    assert "ssl.keystore.type=PEM" in refused(tmp_path, pem(SERVER), "JKS")
    assert "is not PEM" in refused(tmp_path, b"0\x82")
    assert "ssl.keystore.password: a PEM key store has none" in refused(tmp_path, pem(SERVER), "PEM", "x")
    assert "keytool -importkeystore" in refused(tmp_path, bytes.fromhex("feedfeed00000002"), "JKS")
    assert "cannot be opened with this password" in refused(tmp_path, b"0\x82junk", "PKCS12", "x")


def test_a_wrong_password_is_not_repeated(tmp_path: Path) -> None:
    path = SERVER.write_pem(tmp_path / "a.pem", "right")
    with pytest.raises(TlsError, match="cannot be read with this password") as caught:
        check_identity(source("PEM", path), read_identity(source("PEM", path), "wrong-secret"))
    assert "wrong-secret" not in str(caught.value)
    with pytest.raises(TlsError) as loaded:
        server_context(read_identity(source("PEM", path), "wrong-secret"), None, "none", BOTH)
    assert "wrong-secret" not in str(loaded.value)
    assert "wrong-secret" not in repr(read_identity(source("PEM", path), "wrong-secret"))
    p12 = SERVER.write_pkcs12(tmp_path / "a.p12", "right")
    with pytest.raises(TlsError) as refused_p12:
        read_identity(source("PKCS12", p12, "wrong-secret"), None)
    assert "wrong-secret" not in str(refused_p12.value)


def test_a_missing_file_is_named() -> None:
    with pytest.raises(TlsError, match=r"ssl.keystore.location: /nowhere/a.pem cannot be read: no such file"):
        read_identity(source("PEM", Path("/nowhere/a.pem")), None)


def test_a_key_without_certificate_in_the_configuration_is_refused() -> None:
    inline = StoreSource("keystore", "PEM")
    with pytest.raises(TlsError, match=r"ssl.keystore.certificate.chain: its value has no certificate"):
        identity_of_pem(inline, b"", SERVER.key_pem().encode(), None)


def test_the_certificate_of_an_unknown_authority_is_not_accepted() -> None:
    server = server_context(identity_of(SERVER), None, "none", BOTH)
    reason = why_not_accepted(server, client_context(None, Authority().certificate_pem.encode(), BOTH))
    assert reason == "unable to get local issuer certificate"


def test_a_client_without_the_required_certificate_is_not_accepted() -> None:
    server = server_context(identity_of(SERVER), trust(), "required", BOTH)
    assert why_not_accepted(server, client_context(None, trust(), BOTH)) is not None
    assert why_not_accepted(server, client_context(identity_of(AUTHORITY.issue()), trust(), BOTH)) is None


@pytest.mark.parametrize(
    ("protocols", "suites", "expected"),
    [
        (("TLSv1.2", "TLSv1.3"), (), ("TLSv1.3", None)),
        (("TLSv1.2",), (), ("TLSv1.2", None)),
        (("TLSv1.3",), (), ("TLSv1.3", None)),
        (
            ("TLSv1.2", "TLSv1.3"),
            ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",),
            ("TLSv1.2", "ECDHE-ECDSA-AES256-GCM-SHA384"),
        ),
        (
            ("TLSv1.2", "TLSv1.3"),
            ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"),
            ("TLSv1.3", None),
        ),
    ],
)
def test_only_the_allowed_versions_and_suites_are_negotiated(
    protocols: tuple[str, ...], suites: tuple[str, ...], expected: tuple[str, str | None]
) -> None:
    server = server_context(identity_of(SERVER), None, "none", TlsVersions(protocols, suites))
    client = client_context(None, trust(), BOTH, check_hostname=False)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [client.wrap_bio(to_client, to_server), server.wrap_bio(to_server, to_client, server_side=True)]
    for _ in range(4):
        for end in ends:
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
    cipher = ends[0].cipher()
    assert cipher is not None
    assert ends[0].version() == expected[0]
    assert expected[1] in (None, cipher[0])


@pytest.mark.parametrize(
    ("versions", "reason"),
    [
        (TlsVersions(("TLSv1.1",)), "TLSv1.1.* is not supported"),
        (TlsVersions(()), "nothing is not supported"),
        (TlsVersions(cipher_suites=("TLS_AES_128_GCM_SHA256",)), "cannot be chosen one by one"),
        (TlsVersions(cipher_suites=("TLS_NONE_SUCH",)), "OpenSSL does not offer TLS_NONE_SUCH"),
        (
            TlsVersions(("TLSv1.3",), ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",)),
            "none of them belongs to a version",
        ),
    ],
)
def test_versions_and_suites_that_cannot_be_had_are_refused(versions: TlsVersions, reason: str) -> None:
    with pytest.raises(TlsError, match=reason):
        server_context(identity_of(SERVER), None, "none", versions)


@pytest.mark.parametrize(
    ("java", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
        ("TLS_DHE_RSA_WITH_AES_256_GCM_SHA384", "DHE-RSA-AES256-GCM-SHA384"),
        ("TLS_RSA_WITH_AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
        ("TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384", "ECDHE-RSA-AES256-SHA384"),
        ("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
    ],
)
def test_suites_have_javas_names(java: str, openssl: str) -> None:
    assert openssl_name(java) == openssl
