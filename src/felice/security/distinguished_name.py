"""The subject of a certificate as text in the form of RFC 2253 that Java prints: `CN=a,OU=b`.

`ssl.principal.mapping.rules`, ACLs and quotas that were written for Kafka compare this text, so every escape and the
order must be Java's: the last attribute first; attributes without a well-known keyword as `OID=#hex`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography.x509 import NameAttribute, RelativeDistinguishedName

_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
_ESCAPED = frozenset(',=+<>#;"\\')
_LONG_LENGTH = 0x80


def subject_of(certificate: bytes) -> str:
    """The subject of a certificate in DER. Raises `ValueError` if it cannot be read."""
    from cryptography.x509 import load_der_x509_certificate

    subject = load_der_x509_certificate(certificate).subject
    return ",".join(_relative_name(relative) for relative in reversed(subject.rdns))


def _relative_name(relative: RelativeDistinguishedName) -> str:
    return "+".join(_attribute(attribute) for attribute in relative)


def _attribute(attribute: NameAttribute[str | bytes]) -> str:
    oid = attribute.oid.dotted_string
    keyword = _KEYWORDS.get(oid)
    if keyword is None or not isinstance(attribute.value, str):
        return f"{oid}=#{_der_value(attribute).hex()}"
    return f"{keyword}={_escape(attribute.value)}"


def _escape(value: str) -> str:
    text = "".join(f"\\{character}" if character in _ESCAPED else character for character in value)
    leading = len(text) - len(text.lstrip(" "))
    if leading == len(text):
        return "\\ " * leading
    trailing = len(text) - len(text.rstrip(" "))
    return "\\ " * leading + text[leading : len(text) - trailing] + "\\ " * trailing


def _der_value(attribute: NameAttribute[str | bytes]) -> bytes:
    """The attribute's value as in the certificate: behind the OID, inside of three nested structures."""
    from cryptography.x509 import Name

    data = Name([attribute]).public_bytes()
    for _ in range(3):
        data = data[_header_bytes(data) :]
    return data[_header_bytes(data) + data[1] :]


def _header_bytes(data: bytes) -> int:
    length = data[1]
    return 2 if length < _LONG_LENGTH else 2 + (length & ~_LONG_LENGTH)
