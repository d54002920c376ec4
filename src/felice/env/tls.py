"""TLS contexts from keys and certificates in memory.

Keeps true: a private key is never written to a disk: OpenSSL, which reads keys from files only, reads it from an
            anonymous file in memory.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from felice.dataclass import dataclass
from felice.env.key_stores import Identity, TlsError

VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
CLIENT_AUTH: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
# Python cannot choose among these: OpenSSL offers all of them, or TLS 1.3 is off.
_TLS13_SUITES = frozenset(
    ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")
)


@dataclass(frozen=True, slots=True)
class TlsVersions:
    """The allowed TLS versions, and the cipher suites by Java's names; no names mean OpenSSL's choice."""

    protocols: Sequence[str] = ("TLSv1.2", "TLSv1.3")
    cipher_suites: Sequence[str] = ()


def server_context(
    identity: Identity, trust: bytes | None, client_auth: str, versions: TlsVersions
) -> ssl.SSLContext:
    """The context of a listener. Raises `TlsError`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _limit(context, versions)
    _load_identity(context, identity)
    if trust is not None:
        _load_trust(context, trust)
    context.verify_mode = CLIENT_AUTH[client_auth]
    return context


def client_context(
    identity: Identity | None,
    trust: bytes | None,
    versions: TlsVersions,
    *,
    verify: bool = True,
    check_hostname: bool = True,
) -> ssl.SSLContext:
    """The context of connections to servers. Without `trust` the authorities of this machine are trusted.

    Raises `TlsError`.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = check_hostname and verify
    context.verify_mode = ssl.CERT_REQUIRED if verify else ssl.CERT_NONE
    _limit(context, versions)
    if identity is not None:
        _load_identity(context, identity)
    if trust is not None:
        _load_trust(context, trust)
    elif verify:
        context.load_default_certs()
    return context


def _limit(context: ssl.SSLContext, versions: TlsVersions) -> None:
    unknown = [name for name in versions.protocols if name not in VERSIONS]
    if unknown or not versions.protocols:
        raise TlsError(
            f"ssl.enabled.protocols: {unknown or 'nothing'} is not supported; use {', '.join(VERSIONS)}"
        )
    allowed = {VERSIONS[name] for name in versions.protocols}
    if versions.cipher_suites:
        allowed &= _limit_suites(context, versions.cipher_suites)
    if not allowed:
        raise TlsError("ssl.cipher.suites: none of them belongs to a version in ssl.enabled.protocols")
    context.minimum_version, context.maximum_version = min(allowed), max(allowed)


def _limit_suites(context: ssl.SSLContext, names: Sequence[str]) -> set[ssl.TLSVersion]:
    """Allows only these suites. Returns the TLS versions that have some of them."""
    wanted, older = _TLS13_SUITES & set(names), [name for name in names if name not in _TLS13_SUITES]
    if wanted and wanted != _TLS13_SUITES:
        raise TlsError(
            "ssl.cipher.suites: the suites of TLS 1.3 cannot be chosen one by one; name none of them, or all: "
            + ",".join(sorted(_TLS13_SUITES))
        )
    for name in older:
        _check_suite(name)
    if older:
        context.set_ciphers(":".join(map(openssl_name, older)))
    return ({ssl.TLSVersion.TLSv1_3} if wanted else set()) | ({ssl.TLSVersion.TLSv1_2} if older else set())


def _check_suite(name: str) -> None:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).set_ciphers(openssl_name(name))
    except ssl.SSLError:
        raise TlsError(
            f"ssl.cipher.suites: OpenSSL does not offer {name}; use names such as "
            "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"
        ) from None


def openssl_name(suite: str) -> str:
    """OpenSSL's name of a suite of TLS 1.2: ECDHE-RSA-AES128-GCM-SHA256 for TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256."""
    exchange, separator, rest = suite.removeprefix("TLS_").partition("_WITH_")
    if not separator:
        return suite
    cipher = rest.replace("AES_128", "AES128").replace("AES_256", "AES256")
    cipher = cipher.replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305").replace("_CBC", "")
    return f"{exchange}_{cipher}".removeprefix("RSA_").replace("_", "-")


def _load_identity(context: ssl.SSLContext, identity: Identity) -> None:
    password = identity.key_password or ""
    with _in_memory(identity.certificates) as chain, _in_memory(identity.key) as key:
        try:
            # Without a password OpenSSL would ask for one on the terminal.
            context.load_cert_chain(chain, key, lambda: password)
        except ssl.SSLError as error:
            if "KEY_VALUES_MISMATCH" in str(error):
                raise TlsError("the private key does not belong to the first certificate") from None
            raise TlsError(
                "the private key cannot be read; check the key, and ssl.key.password if it is encrypted"
            ) from None


def _load_trust(context: ssl.SSLContext, trust: bytes) -> None:
    try:
        context.load_verify_locations(cadata=trust.decode("ascii", "replace"))
    except (ssl.SSLError, ValueError):
        raise TlsError("a certificate of the trust store cannot be read") from None


@contextmanager
def _in_memory(data: bytes) -> Iterator[str]:
    """The path of an anonymous file with this content."""
    descriptor = os.memfd_create("tls", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, data)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def why_not_accepted(server: ssl.SSLContext, client: ssl.SSLContext) -> str | None:
    """The reason why these two contexts cannot agree, or None: a handshake within memory, without host names."""
    checks_hostname, client.check_hostname = client.check_hostname, False
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    try:
        while ends:
            ends = [end for end in ends if not _has_shaken(end)]
    except ssl.SSLCertVerificationError as error:
        return error.verify_message
    except ssl.SSLError as error:
        return (error.reason or str(error)).lower().replace("_", " ")
    finally:
        client.check_hostname = checks_hostname
    return None


def _has_shaken(end: ssl.SSLObject) -> bool:
    try:
        end.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True
