"""The keys, certificates and trust of one listening address with TLS, as its options say.

Keeps true: keys are complete, valid now and belong together, or an error names the option and says what to do.
Leaves:     reading key stores and making contexts to `felice.env`.
"""

from __future__ import annotations

import ssl
from dataclasses import field

from felice.config.security import ListenerSecurity, SecurityOptions
from felice.dataclass import dataclass
from felice.env.key_stores import (
    CertificateNames,
    Identity,
    StoreSource,
    TlsError,
    check_identity,
    identity_of_pem,
    read_identity,
    read_trust,
    trust_of_pem,
)
from felice.env.tls import TlsVersions, server_context


@dataclass(frozen=True, slots=True)
class ListenerKeys:
    """What the options of a listener name, read and checked."""

    identity: Identity = field(repr=False)
    names: CertificateNames
    trust: bytes | None
    versions: TlsVersions
    client_auth: str

    def server_context(self) -> ssl.SSLContext:
        """The context for connections that the listener accepts. Raises `TlsError`."""
        return server_context(self.identity, self.trust, self.client_auth, self.versions)


def read_keys(security: ListenerSecurity) -> ListenerKeys:
    """Reads and checks the files and texts that the options of a listener name. Raises `TlsError`."""
    options = security.options
    key_source = _source("keystore", options, security)
    identity = _identity(key_source, options)
    names = check_identity(key_source, identity)
    trust = _trust(_source("truststore", options, security), options)
    if trust is None and security.client_auth != "none":
        raise TlsError(
            f"{security.key('ssl.client.auth')}={security.client_auth} needs the certificates that clients may have; "
            f"set {security.prefix}ssl.truststore.location"
        )
    versions = TlsVersions(options.ssl_enabled_protocols, options.ssl_cipher_suites)
    return ListenerKeys(identity, names, trust, versions, security.client_auth)


def _source(store: str, options: SecurityOptions, security: ListenerSecurity) -> StoreSource:
    prefix = security.key(f"ssl.{store}.location").removesuffix(f"{store}.location")
    location = getattr(options, f"ssl_{store}_location")
    return StoreSource(
        store,
        getattr(options, f"ssl_{store}_type"),
        None if location is None else str(security.working_directory / location),
        getattr(options, f"ssl_{store}_password"),
        prefix,
    )


def _identity(source: StoreSource, options: SecurityOptions) -> Identity:
    chain, key = options.ssl_keystore_certificate_chain, options.ssl_keystore_key
    if source.location is not None:
        if chain is not None or key is not None:
            raise source.error(
                "location", "set either a file, or the key and its certificate chain, not both"
            )
        return read_identity(source, options.ssl_key_password)
    if chain is None and key is None:
        raise source.error(
            "location", "a listener with TLS needs a private key and a certificate; set this option"
        )
    if chain is None or key is None:
        missing = "certificate.chain" if chain is None else "key"
        raise source.error(missing, "the key and its certificate chain go together; set this option, too")
    if source.kind != "PEM":
        raise source.error("type", "a key in the configuration is PEM; set this option to PEM")
    return identity_of_pem(source, chain.encode(), key.encode(), options.ssl_key_password)


def _trust(source: StoreSource, options: SecurityOptions) -> bytes | None:
    inline = options.ssl_truststore_certificates
    if source.location is not None:
        if inline is not None:
            raise source.error("location", "set either a file or the certificates, not both")
        return read_trust(source)
    if inline is None:
        return None
    if source.kind != "PEM":
        raise source.error("type", "certificates in the configuration are PEM; set this option to PEM")
    return trust_of_pem(source, inline.encode())
