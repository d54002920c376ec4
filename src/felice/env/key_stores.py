"""Key stores and trust stores: reads PEM and PKCS12, and returns PEM bytes that `felice.env.tls` loads.

Keeps true: an error names the option that is wrong and what to do, in one line, and never repeats a password or a key.
Leaves:     Java's JKS format: the error has the command that converts a JKS file. PKCS12, and the checks of a
            certificate, need the library `cryptography` (`felice[security]`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import field
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from felice.dataclass import dataclass

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates
    from cryptography.x509 import Certificate

KINDS: Final = ("JKS", "PKCS12", "PEM")
_JKS_MAGIC = bytes.fromhex("feedfeed")
_PEM_BEGIN = b"-----BEGIN "
_CERTIFICATE = rb"(?s)-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----"
_PRIVATE_KEY = rb"(?s)-----BEGIN (?:\w+ )*PRIVATE KEY-----.+?-----END (?:\w+ )*PRIVATE KEY-----"
_TO_PKCS12 = (
    "keytool -importkeystore -srckeystore {path} -destkeystore {path}.p12 -deststoretype PKCS12, "
    "and name that file here"
)


class TlsError(Exception):
    """TLS cannot be set up as configured. The text names the option and says what to do."""


@dataclass(frozen=True, slots=True)
class StoreSource:
    """A key store or a trust store as configured. `name` is `keystore` or `truststore`, for errors."""

    name: str
    kind: str
    location: str | None = None
    password: str | None = field(default=None, repr=False)
    prefix: str = "ssl."

    def error(self, key: str, reason: str) -> TlsError:
        """An error about the option `key` of this store."""
        return TlsError(f"{self.prefix}{self.name}.{key}: {reason}")


@dataclass(frozen=True, slots=True)
class Identity:
    """A private key and its certificate, followed by the certificates that signed it, in PEM."""

    certificates: bytes
    key: bytes = field(repr=False)
    key_password: str | None = field(default=None, repr=False)


def read_identity(source: StoreSource, key_password: str | None) -> Identity:
    """Reads a key store from its file. Raises `TlsError`."""
    data = _read(source)
    if not _is_pem(source, data):
        return _identity_of_pkcs12(source, data)
    if source.password is not None:
        raise source.error(
            "password", "a PEM key store has none; set ssl.key.password if the key is encrypted"
        )
    return identity_of_pem(source, data, data, key_password)


def identity_of_pem(
    source: StoreSource, certificates: bytes, key: bytes, key_password: str | None
) -> Identity:
    """Finds certificates and key in PEM texts. Raises `TlsError`."""
    where = source.location or f"the value of {source.prefix}{source.name}.key"
    found_key = re.search(_PRIVATE_KEY, key)
    if found_key is None:
        raise source.error("location" if source.location else "key", f"{where} has no private key in PEM")
    chain = re.findall(_CERTIFICATE, certificates)
    if not chain:
        key_name = "location" if source.location else "certificate.chain"
        raise source.error(key_name, f"{source.location or 'its value'} has no certificate in PEM")
    return Identity(b"\n".join(chain) + b"\n", found_key[0] + b"\n", key_password)


def read_trust(source: StoreSource) -> bytes:
    """Reads the certificates of a trust store, in PEM. Raises `TlsError`."""
    data = _read(source)
    if not _is_pem(source, data):
        return _trust_of_pkcs12(source, data)
    if source.password is not None:
        raise source.error("password", "a PEM trust store has none")
    return trust_of_pem(source, data)


def trust_of_pem(source: StoreSource, data: bytes) -> bytes:
    """Finds the certificates in a PEM text. Raises `TlsError`."""
    found = re.findall(_CERTIFICATE, data)
    if not found:
        key = "location" if source.location else "certificates"
        raise source.error(key, f"{source.location or 'its value'} has no certificate in PEM")
    return b"\n".join(found) + b"\n"


def _read(source: StoreSource) -> bytes:
    assert source.location is not None
    try:
        return Path(source.location).read_bytes()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise source.error("location", f"{source.location} cannot be read: {reason}") from None


def _is_pem(source: StoreSource, data: bytes) -> bool:
    if data.startswith(_JKS_MAGIC):
        raise source.error(
            "location",
            f"{source.location} is a JKS file; convert it: {_TO_PKCS12.format(path=source.location)}",
        )
    looks_like_pem = _PEM_BEGIN in data
    if source.kind == "PEM" and not looks_like_pem:
        raise source.error("type", f"{source.location} is not PEM; set the type of the file, such as PKCS12")
    if source.kind != "PEM" and looks_like_pem:
        raise source.error("type", f"{source.location} is PEM; set {source.prefix}{source.name}.type=PEM")
    return looks_like_pem


def _pkcs12(source: StoreSource, data: bytes) -> PKCS12KeyAndCertificates:
    require_cryptography()
    from cryptography.hazmat.primitives.serialization import pkcs12

    try:
        return pkcs12.load_pkcs12(data, None if source.password is None else source.password.encode())
    except ValueError:
        reason = f"{source.location} cannot be opened with this password, or is not a PKCS12 file"
        raise source.error("password", reason) from None


def _identity_of_pkcs12(source: StoreSource, data: bytes) -> Identity:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    found = _pkcs12(source, data)
    if found.key is None or found.cert is None:
        raise source.error("location", f"{source.location} has no private key with a certificate")
    key = found.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    chain = [found.cert, *found.additional_certs]
    return Identity(b"".join(entry.certificate.public_bytes(Encoding.PEM) for entry in chain), key)


def _trust_of_pkcs12(source: StoreSource, data: bytes) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    found = _pkcs12(source, data)
    entries = [entry for entry in (found.cert, *found.additional_certs) if entry is not None]
    if not entries:
        raise source.error("location", f"{source.location} has no certificate")
    return b"".join(entry.certificate.public_bytes(Encoding.PEM) for entry in entries)


def require_cryptography() -> None:
    """Raises `TlsError` unless the library `cryptography` is installed."""
    if find_spec("cryptography") is None:
        raise TlsError("TLS needs the library cryptography; install it: pip install 'felice[security]'")


# Checks of a certificate


@dataclass(frozen=True, slots=True)
class CertificateNames:
    """What a renewed certificate must keep: its subject and its alternative names."""

    subject: str
    alternatives: frozenset[str]


def check_identity(source: StoreSource, identity: Identity) -> CertificateNames:
    """Raises `TlsError` if the certificate is not valid now, or the key does not belong to it."""
    require_cryptography()
    certificate = _certificates(source, identity.certificates)[0]
    now = datetime.now(UTC)
    if now > certificate.not_valid_after_utc:
        raise source.error(
            "location" if source.location else "certificate.chain",
            f"the certificate of {certificate.subject.rfc4514_string()} expired on "
            f"{certificate.not_valid_after_utc:%Y-%m-%d}; renew it",
        )
    if now < certificate.not_valid_before_utc:
        raise source.error(
            "location" if source.location else "certificate.chain",
            f"the certificate of {certificate.subject.rfc4514_string()} is valid only from "
            f"{certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC on; check the clock of this machine",
        )
    _check_key(source, identity, certificate)
    return CertificateNames(certificate.subject.rfc4514_string(), frozenset(_alternative_names(certificate)))


def _check_key(source: StoreSource, identity: Identity, certificate: Certificate) -> None:
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        PublicFormat,
        load_pem_private_key,
    )

    password = None if identity.key_password is None else identity.key_password.encode()
    try:
        key = load_pem_private_key(identity.key, password if b"ENCRYPTED" in identity.key else None)
    except TypeError:
        raise TlsError(
            f"{source.prefix}key.password: the private key is encrypted; set its password"
        ) from None
    except ValueError:
        raise TlsError(
            f"{source.prefix}key.password: the private key cannot be read with this password"
        ) from None
    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if key.public_key().public_bytes(*form) != certificate.public_key().public_bytes(*form):
        raise source.error(
            "location" if source.location else "key",
            "the private key does not belong to the first certificate; put the broker's certificate first",
        )


def _certificates(source: StoreSource, pem: bytes) -> Sequence[Certificate]:
    from cryptography.x509 import load_pem_x509_certificates

    try:
        return load_pem_x509_certificates(pem)
    except ValueError:
        raise source.error(
            "location" if source.location else "certificate.chain", "a certificate cannot be read"
        ) from None


def _alternative_names(certificate: Certificate) -> list[str]:
    from cryptography.x509 import ExtensionNotFound, SubjectAlternativeName

    try:
        found = certificate.extensions.get_extension_for_class(SubjectAlternativeName)
    except ExtensionNotFound:
        return []
    return [repr(name) for name in found.value]
