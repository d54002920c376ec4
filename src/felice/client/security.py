"""How a client secures its connections: the keys of TLS and SASL, and what they configure.

Keeps true:  A configuration that cannot be used is refused when the client is made, with the key and what to do. No
             error and no `repr` has a password or a key.
Names are librdkafka's and Java's. Files are read once, when the client is made.
"""

from __future__ import annotations

import re
import secrets
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from felice.client.error import KafkaError, KafkaException, failure
from felice.client.keys import boolean, function, invalid, key, named, text, upper_of
from felice.config.jaas import BadJaas, parse_jaas
from felice.dataclass import dataclass
from felice.env.key_stores import (
    Identity,
    StoreSource,
    TlsError,
    identity_of_pem,
    read_identity,
    read_trust,
    trust_of_pem,
)
from felice.env.tls import TlsVersions, client_context
from felice.security.sasl.mechanism import AuthenticationFailed, ClientMechanism
from felice.security.sasl.oauthbearer import NAME as OAUTHBEARER
from felice.security.sasl.oauthbearer import OAuthClient, unsecured_token
from felice.security.sasl.plain import PlainClient
from felice.security.sasl.scram import HASHES, ScramClient

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", *HASHES, OAUTHBEARER)

_CLAIM_PREFIX = "unsecuredLoginStringClaim_"
_UNSECURED_LIFETIME_S = 3600
_RENEWED_AT_SHARE = 0.8

_IDENTIFICATION = {"https": "https", "none": "none", "": "none"}


@dataclass(frozen=True, slots=True)
class SecuritySettings:
    """The keys of TLS and SASL. The functions below read the files and lists that the texts name."""

    security_protocol: str = key("security.protocol", upper_of(*PROTOCOLS), "PLAINTEXT")
    sasl_mechanism: str | None = key(
        "sasl.mechanism", upper_of(*MECHANISMS), None, aliases=("sasl.mechanisms",)
    )
    ssl_endpoint_identification_algorithm: str = key(
        "ssl.endpoint.identification.algorithm", named(_IDENTIFICATION), "https"
    )
    enable_ssl_certificate_verification: bool = key("enable.ssl.certificate.verification", boolean, True)
    oauth_cb: Callable[..., Any] | None = key("oauth_cb", function)
    sasl_username: str | None = key("sasl.username", text)
    sasl_password: str | None = key("sasl.password", text, secret=True)
    sasl_jaas_config: str | None = key("sasl.jaas.config", text, secret=True)
    sasl_oauthbearer_config: str | None = key("sasl.oauthbearer.config", text)
    ssl_ca_location: str | None = key("ssl.ca.location", text)
    ssl_ca_pem: str | None = key("ssl.ca.pem", text)
    ssl_certificate_location: str | None = key("ssl.certificate.location", text)
    ssl_certificate_pem: str | None = key("ssl.certificate.pem", text)
    ssl_key_location: str | None = key("ssl.key.location", text)
    ssl_key_pem: str | None = key("ssl.key.pem", text, secret=True)
    ssl_key_password: str | None = key("ssl.key.password", text, secret=True)
    ssl_keystore_location: str | None = key("ssl.keystore.location", text)
    ssl_keystore_password: str | None = key("ssl.keystore.password", text, secret=True)
    ssl_keystore_type: str | None = key("ssl.keystore.type", text)
    ssl_keystore_key: str | None = key("ssl.keystore.key", text, secret=True)
    ssl_keystore_certificate_chain: str | None = key("ssl.keystore.certificate.chain", text)
    ssl_truststore_location: str | None = key("ssl.truststore.location", text)
    ssl_truststore_password: str | None = key("ssl.truststore.password", text, secret=True)
    ssl_truststore_type: str | None = key("ssl.truststore.type", text)
    ssl_truststore_certificates: str | None = key("ssl.truststore.certificates", text)
    ssl_cipher_suites: str | None = key("ssl.cipher.suites", text)
    ssl_enabled_protocols: str | None = key("ssl.enabled.protocols", text)


class Security:
    """The security of all connections of one client."""

    def __init__(self, tls: ssl.SSLContext | None, start_login: Callable[[], ClientMechanism] | None) -> None:
        self.tls = tls
        self._start_login = start_login

    @property
    def has_login(self) -> bool:
        """Whether connections log in."""
        return self._start_login is not None

    def login(self) -> ClientMechanism:
        """Start a login: return the client's side of the SASL exchange."""
        assert self._start_login is not None
        return self._start_login()


PLAIN_TEXT = Security(None, None)
"""Connections without TLS and login."""


def make_security(settings: SecuritySettings) -> Security:
    """Reads keys and certificates, and checks the login. Raises `KafkaException` (_INVALID_ARG)."""
    protocol = settings.security_protocol
    return Security(
        _context(settings) if protocol.endswith("SSL") else None,
        _login(settings) if protocol.startswith("SASL_") else None,
    )


# SASL


def _login(settings: SecuritySettings) -> Callable[[], ClientMechanism]:
    mechanism = settings.sasl_mechanism
    if mechanism is None:
        raise invalid(f'"sasl.mechanism" is required: one of {", ".join(MECHANISMS)}')
    if mechanism == OAUTHBEARER:
        return _token_login(settings)
    user, password = _credentials(settings)
    if user is None or password is None:
        raise invalid(
            f'"sasl.username" and "sasl.password" (or "sasl.jaas.config") are required for {mechanism}'
        )
    if mechanism in HASHES:
        is_token = _is_token(settings)
        return lambda: ScramClient(mechanism, user, password, secrets.token_hex(20), is_token=is_token)
    return lambda: PlainClient(user, password)


def _token_login(settings: SecuritySettings) -> Callable[[], ClientMechanism]:
    """A login with a token: that of `oauth_cb`, or an unsigned token with the claims in `sasl.jaas.config`."""
    callback = settings.oauth_cb
    if callback is not None:
        return _TokenOfCallback(callback, settings.sasl_oauthbearer_config or "").login
    options = {} if settings.sasl_jaas_config is None else _jaas_options(settings.sasl_jaas_config)
    claims = {
        name.removeprefix(_CLAIM_PREFIX): text
        for name, text in options.items()
        if name.startswith(_CLAIM_PREFIX)
    }
    if "sub" not in claims:
        raise invalid(
            f'"oauth_cb" is required for OAUTHBEARER (or "sasl.jaas.config" with {_CLAIM_PREFIX}sub, for tokens '
            "without a signature)"
        )

    def login() -> ClientMechanism:
        """A login with a new token."""
        now_s = time.time()
        return OAuthClient(unsecured_token({"iat": now_s, "exp": now_s + _UNSECURED_LIFETIME_S, **claims}))

    return login


class _TokenOfCallback:
    """Asks the application for tokens, and uses each for most of its life."""

    def __init__(self, callback: Callable[[str], tuple[Any, ...]], config: str) -> None:
        self._callback = callback
        self._config = config
        self._lock = threading.Lock()
        self._token = ""
        self._extensions: Mapping[str, str] = {}
        self._renew_at_s = 0.0

    def login(self) -> ClientMechanism:
        """A login with the current token, or with a new one. Raises `AuthenticationFailed`."""
        with self._lock:
            if time.time() >= self._renew_at_s:
                self._ask()
            return OAuthClient(self._token, self._extensions)

    def _ask(self) -> None:
        try:
            token, expires_s, *more = self._callback(self._config)
        except Exception as error:
            raise AuthenticationFailed(f"oauth_cb raised {type(error).__name__}: {error}") from error
        now_s = time.time()
        self._token = str(token)
        self._extensions = dict(more[1]) if len(more) > 1 else {}
        self._renew_at_s = now_s + max(0.0, float(expires_s) - now_s) * _RENEWED_AT_SHARE


def _credentials(settings: SecuritySettings) -> tuple[str | None, str | None]:
    text = settings.sasl_jaas_config
    if text is None:
        return settings.sasl_username, settings.sasl_password
    options = _jaas_options(text)
    return options.get("username"), options.get("password")


def _is_token(settings: SecuritySettings) -> bool:
    """Whether user and password are those of a delegation token: `tokenauth="true"` in the JAAS text."""
    text = settings.sasl_jaas_config
    return text is not None and _jaas_options(text).get("tokenauth", "").lower() == "true"


def _jaas_options(text: str) -> Mapping[str, str]:
    try:
        return parse_jaas(text).options
    except BadJaas as error:
        raise invalid(f'"sasl.jaas.config": {error}') from None


# TLS


def _context(settings: SecuritySettings) -> ssl.SSLContext:
    try:
        return client_context(
            _identity(settings),
            _trust(settings),
            _versions(settings),
            verify=settings.enable_ssl_certificate_verification,
            check_hostname=settings.ssl_endpoint_identification_algorithm == "https",
        )
    except TlsError as error:
        raise invalid(str(error)) from None


def _versions(settings: SecuritySettings) -> TlsVersions:
    given = {
        "protocols": _list_of(settings.ssl_enabled_protocols),
        "cipher_suites": _list_of(settings.ssl_cipher_suites),
    }
    return TlsVersions(**{name: value for name, value in given.items() if value})


def _list_of(text: str | None) -> list[str]:
    return [part.strip() for part in re.split("[,:]", text or "") if part.strip()]


def _trust(settings: SecuritySettings) -> bytes | None:
    location = settings.ssl_ca_location
    if location is not None and location != "probe":
        return b"".join(_files_of(location))
    if settings.ssl_ca_pem is not None:
        return trust_of_pem(StoreSource("ca", "PEM"), settings.ssl_ca_pem.encode())
    if settings.ssl_truststore_certificates is not None:
        return trust_of_pem(StoreSource("truststore", "PEM"), settings.ssl_truststore_certificates.encode())
    if settings.ssl_truststore_location is not None:
        return read_trust(
            _store(
                "truststore",
                settings.ssl_truststore_type,
                settings.ssl_truststore_location,
                settings.ssl_truststore_password,
            )
        )
    return None


def _files_of(location: str) -> Iterator[bytes]:
    """The certificates of a file, or of all files of a directory."""
    path = Path(location)
    paths = [path]
    if path.is_dir():
        paths = sorted(file for file in path.iterdir() if file.suffix in (".pem", ".crt", ".cer"))
        if not paths:
            raise TlsError(f"ssl.ca.location: the directory {path} has no file *.pem, *.crt or *.cer")
    for file in paths:
        yield trust_of_pem(StoreSource("ca", "PEM", str(file)), _read("ssl.ca.location", str(file)))


def _identity(settings: SecuritySettings) -> Identity | None:
    password = settings.ssl_key_password
    if settings.ssl_keystore_location is not None:
        store = _store(
            "keystore",
            settings.ssl_keystore_type,
            settings.ssl_keystore_location,
            settings.ssl_keystore_password,
        )
        return read_identity(store, password)
    certificate = _content(
        "ssl.certificate.location",
        settings.ssl_certificate_location,
        settings.ssl_certificate_pem,
        settings.ssl_keystore_certificate_chain,
    )
    private = _content(
        "ssl.key.location", settings.ssl_key_location, settings.ssl_key_pem, settings.ssl_keystore_key
    )
    if certificate is None and private is None:
        return None
    if certificate is None or private is None:
        missing = "ssl.certificate.location" if certificate is None else "ssl.key.location"
        raise TlsError(f"{missing}: a key and its certificate go together; set this key, too")
    return identity_of_pem(StoreSource("keystore", "PEM"), certificate, private, password)


def _content(location_key: str, location: str | None, *inline: str | None) -> bytes | None:
    """The content of a file, or of one of the keys that hold the content themselves."""
    if location is not None:
        return _read(location_key, location)
    content = next((content for content in inline if content is not None), None)
    return None if content is None else content.encode()


def _read(key: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise TlsError(f"{key}: {path} cannot be read: {reason}") from None


def _store(name: str, kind: str | None, location: str, password: str | None) -> StoreSource:
    return StoreSource(name, (kind or "JKS").upper(), location, password)


def tls_failure(address: str, error: ssl.SSLError) -> KafkaException:
    """The error for a TLS handshake that failed."""
    if isinstance(error, ssl.SSLCertVerificationError):
        reason = f"the broker's certificate is not accepted: {error.verify_message}; see ssl.ca.location"
        return failure(KafkaError._SSL, f"{address}: {reason}")
    reason = (error.reason or str(error)).lower().replace("_", " ")
    return failure(KafkaError._SSL, f"{address}: the TLS handshake failed: {reason}", retriable=True)
