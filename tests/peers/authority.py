"""A certificate authority for tests: issues certificates at once, with any subject, names and dates."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import NameOID


def name_of(*attributes: tuple[x509.ObjectIdentifier, str]) -> x509.Name:
    return x509.Name([x509.NameAttribute(oid, value) for oid, value in attributes])


def common_name(name: str) -> x509.Name:
    return name_of((NameOID.COMMON_NAME, name))


@dataclass(frozen=True)
class Issued:
    """A key and its certificate."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def certificate_pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(Encoding.DER)

    def key_pem(self, password: str | None = None) -> str:
        encryption: KeySerializationEncryption = NoEncryption()
        if password is not None:
            encryption = BestAvailableEncryption(password.encode())
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption).decode()

    def write_pem(self, path: Path, password: str | None = None) -> Path:
        """Writes key and certificate into one file."""
        path.write_text(self.key_pem(password) + self.certificate_pem)
        return path

    def write_pkcs12(self, path: Path, password: str, authority: Authority | None = None) -> Path:
        signers = [authority.certificate] if authority else None
        encryption = BestAvailableEncryption(password.encode())
        path.write_bytes(
            pkcs12.serialize_key_and_certificates(b"key", self.key, self.certificate, signers, encryption)
        )
        return path


class Authority(Issued):
    """Signs certificates that are valid for `localhost` and 127.0.0.1 unless told otherwise."""

    def __init__(self, name: str = "authority") -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = common_name(name)
        builder = _builder(subject, subject, key, timedelta(days=-1), timedelta(days=2))
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        builder = builder.add_extension(identifier, critical=False)
        super().__init__(key, builder.sign(key, hashes.SHA256()))

    def issue(
        self,
        subject: str | x509.Name = "localhost",
        names: Sequence[str] = ("localhost", "127.0.0.1"),
        begins: timedelta = timedelta(days=-1),
        ends: timedelta = timedelta(days=2),
    ) -> Issued:
        key = ec.generate_private_key(ec.SECP256R1())
        wanted = common_name(subject) if isinstance(subject, str) else subject
        builder = _builder(wanted, self.certificate.subject, key, begins, ends)
        if names:
            alternatives = x509.SubjectAlternativeName([_general_name(name) for name in names])
            builder = builder.add_extension(alternatives, critical=False)
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        builder = builder.add_extension(identifier, critical=False)
        return Issued(key, builder.sign(self.key, hashes.SHA256()))

    def write_trust(self, path: Path) -> Path:
        path.write_text(self.certificate_pem)
        return path


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    begins: timedelta,
    ends: timedelta,
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + begins)
        .not_valid_after(now + ends)
    )
