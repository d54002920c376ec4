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
from felice.config.jaas import BadJaas, parse_jaas
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

SECRETS = frozenset(
    (
        "sasl.password",
        "sasl.jaas.config",
        "ssl.key.password",
        "ssl.key.pem",
        "ssl.keystore.key",
        "ssl.keystore.password",
        "ssl.truststore.password",
    )
)
"""The keys whose values appear in no error and in no `repr`."""

_CLAIM_PREFIX = "unsecuredLoginStringClaim_"
_UNSECURED_LIFETIME_S = 3600
_RENEWED_AT_SHARE = 0.8

TEXT_KEYS = (
    "sasl.username",
    "sasl.password",
    "sasl.jaas.config",
    "sasl.oauthbearer.config",
    "ssl.ca.location",
    "ssl.ca.pem",
    "ssl.certificate.location",
    "ssl.certificate.pem",
    "ssl.key.location",
    "ssl.key.pem",
    "ssl.key.password",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.type",
    "ssl.keystore.key",
    "ssl.keystore.certificate.chain",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.type",
    "ssl.truststore.certificates",
    "ssl.cipher.suites",
    "ssl.enabled.protocols",
)
"""The keys that accept any text here; the functions below read the files and lists that it names."""

DEFAULTS: Mapping[str, Any] = {
    "security.protocol": "PLAINTEXT",
    "sasl.mechanism": None,
    "oauth_cb": None,
    "ssl.endpoint.identification.algorithm": "https",
    "enable.ssl.certificate.verification": True,
    **dict.fromkeys(TEXT_KEYS),
}
"""The default of every key of this module."""


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


def make_security(settings: Mapping[str, Any]) -> Security:
    """Reads keys and certificates, and checks the login. Raises `KafkaException` (_INVALID_ARG)."""
    protocol = settings["security.protocol"]
    return Security(
        _context(settings) if protocol.endswith("SSL") else None,
        _login(settings) if protocol.startswith("SASL_") else None,
    )


# SASL


def _login(settings: Mapping[str, Any]) -> Callable[[], ClientMechanism]:
    mechanism = settings["sasl.mechanism"]
    if mechanism is None:
        raise _invalid(f'"sasl.mechanism" is required: one of {", ".join(MECHANISMS)}')
    if mechanism == OAUTHBEARER:
        return _token_login(settings)
    user, password = _credentials(settings)
    if user is None or password is None:
        raise _invalid(
            f'"sasl.username" and "sasl.password" (or "sasl.jaas.config") are required for {mechanism}'
        )
    if mechanism in HASHES:
        is_token = _is_token(settings)
        return lambda: ScramClient(mechanism, user, password, secrets.token_hex(20), is_token=is_token)
    return lambda: PlainClient(user, password)


def _token_login(settings: Mapping[str, Any]) -> Callable[[], ClientMechanism]:
    """A login with a token: that of `oauth_cb`, or an unsigned token with the claims in `sasl.jaas.config`."""
    callback = settings["oauth_cb"]
    if callback is not None:
        return _TokenOfCallback(callback, settings["sasl.oauthbearer.config"] or "").login
    options = {} if settings["sasl.jaas.config"] is None else _jaas_options(settings["sasl.jaas.config"])
    claims = {
        name.removeprefix(_CLAIM_PREFIX): text
        for name, text in options.items()
        if name.startswith(_CLAIM_PREFIX)
    }
    if "sub" not in claims:
        raise _invalid(
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


def _credentials(settings: Mapping[str, Any]) -> tuple[str | None, str | None]:
    text = settings["sasl.jaas.config"]
    if text is None:
        return settings["sasl.username"], settings["sasl.password"]
    options = _jaas_options(text)
    return options.get("username"), options.get("password")


def _is_token(settings: Mapping[str, Any]) -> bool:
    """Whether user and password are those of a delegation token: `tokenauth="true"` in the JAAS text."""
    text = settings["sasl.jaas.config"]
    return text is not None and _jaas_options(text).get("tokenauth", "").lower() == "true"


def _jaas_options(text: str) -> Mapping[str, str]:
    try:
        return parse_jaas(text).options
    except BadJaas as error:
        raise _invalid(f'"sasl.jaas.config": {error}') from None


# TLS


def _context(settings: Mapping[str, Any]) -> ssl.SSLContext:
    try:
        return client_context(
            _identity(settings),
            _trust(settings),
            _versions(settings),
            verify=settings["enable.ssl.certificate.verification"],
            check_hostname=settings["ssl.endpoint.identification.algorithm"] == "https",
        )
    except TlsError as error:
        raise _invalid(str(error)) from None


def _versions(settings: Mapping[str, Any]) -> TlsVersions:
    given = {
        "protocols": _list_of(settings["ssl.enabled.protocols"]),
        "cipher_suites": _list_of(settings["ssl.cipher.suites"]),
    }
    return TlsVersions(**{name: value for name, value in given.items() if value})


def _list_of(text: str | None) -> list[str]:
    return [part.strip() for part in re.split("[,:]", text or "") if part.strip()]


def _trust(settings: Mapping[str, Any]) -> bytes | None:
    location = settings["ssl.ca.location"]
    if location is not None and location != "probe":
        return b"".join(_files_of(location))
    if settings["ssl.ca.pem"] is not None:
        return trust_of_pem(StoreSource("ca", "PEM"), settings["ssl.ca.pem"].encode())
    if settings["ssl.truststore.certificates"] is not None:
        return trust_of_pem(
            StoreSource("truststore", "PEM"), settings["ssl.truststore.certificates"].encode()
        )
    if settings["ssl.truststore.location"] is not None:
        return read_trust(_store(settings, "truststore"))
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


def _identity(settings: Mapping[str, Any]) -> Identity | None:
    password = settings["ssl.key.password"]
    if settings["ssl.keystore.location"] is not None:
        return read_identity(_store(settings, "keystore"), password)
    certificate = _given(
        settings, "ssl.certificate.location", "ssl.certificate.pem", "ssl.keystore.certificate.chain"
    )
    key = _given(settings, "ssl.key.location", "ssl.key.pem", "ssl.keystore.key")
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        missing = "ssl.certificate.location" if certificate is None else "ssl.key.location"
        raise TlsError(f"{missing}: a key and its certificate go together; set this key, too")
    return identity_of_pem(StoreSource("keystore", "PEM"), certificate, key, password)


def _given(settings: Mapping[str, Any], location: str, *inline: str) -> bytes | None:
    """The content of a file, or of one of the keys that hold the content themselves."""
    if settings[location] is not None:
        return _read(location, settings[location])
    text = next((settings[name] for name in inline if settings[name] is not None), None)
    return None if text is None else str(text).encode()


def _read(key: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise TlsError(f"{key}: {path} cannot be read: {reason}") from None


def _store(settings: Mapping[str, Any], name: str) -> StoreSource:
    return StoreSource(
        name,
        (settings[f"ssl.{name}.type"] or "JKS").upper(),
        settings[f"ssl.{name}.location"],
        settings[f"ssl.{name}.password"],
    )


def _invalid(message: str) -> KafkaException:
    return failure(KafkaError._INVALID_ARG, message)


def tls_failure(address: str, error: ssl.SSLError) -> KafkaException:
    """The error for a TLS handshake that failed."""
    if isinstance(error, ssl.SSLCertVerificationError):
        reason = f"the broker's certificate is not accepted: {error.verify_message}; see ssl.ca.location"
        return failure(KafkaError._SSL, f"{address}: {reason}")
    reason = (error.reason or str(error)).lower().replace("_", " ")
    return failure(KafkaError._SSL, f"{address}: the TLS handshake failed: {reason}", retriable=True)
