"""HTTPS from the options that brokers' listeners have: `ssl.keystore.location` and so on.

Keeps true: the server does not start without usable keys. A renewed file counts for the next connection. If it cannot
            be used, the keys before stay, and the log says why once.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from felice.config.option import ConfigError
from felice.config.security import OPTIONS, ListenerSecurity
from felice.env.key_stores import TlsError
from felice.env.listening import ServerTls
from felice.env.tls import client_context
from felice.security.listener_keys import read_keys
from felice.web.http2.switching import alpn_protocols

_log = logging.getLogger("felice.web")

_HANDSHAKE_S: Final = 10.0
# Options of listeners that are about Kafka's principals and about other brokers.
_OF_BROKERS: Final = frozenset(
    (
        "ssl.allow.dn.changes",
        "ssl.allow.san.changes",
        "ssl.endpoint.identification.algorithm",
        "ssl.principal.mapping.rules",
    )
)
TLS_OPTIONS: Final = frozenset(
    name for name in OPTIONS if name.startswith("ssl.") and name not in _OF_BROKERS
)
"""The names of the options."""


def server_tls(options: Mapping[str, str], working_directory: Path = Path()) -> ServerTls | None:
    """How to serve HTTPS with these options (`TLS_OPTIONS`); None without any. Relative paths begin at the directory.

    Raises `ConfigError` for an unknown option or value, and `TlsError` for keys that cannot be used.
    """
    if not options:
        return None
    return ServerTls(_Context(_security(options, working_directory)).current, _HANDSHAKE_S, _on_failure)


def peer_tls(
    options: Mapping[str, str], working_directory: Path, authorities: bytes | None
) -> ssl.SSLContext:
    """For requests to a server of the same kind, with the key of `server_tls` as the client's own certificate.

    `authorities` are the certificates (PEM) that verify the server; None for those that the options trust, or else the
    system's. Raises as `server_tls`. A renewed key counts after a restart.
    """
    keys = read_keys(_security(options, working_directory))
    trust = keys.trust if authorities is None else authorities
    return client_context(keys.identity, trust, keys.versions)


def _security(options: Mapping[str, str], working_directory: Path) -> ListenerSecurity:
    for name in options:
        if name not in TLS_OPTIONS:
            raise ConfigError(name, "[hidden]", f"HTTPS has only {', '.join(sorted(TLS_OPTIONS))}")
    return ListenerSecurity("", "SSL", {}, options, {}, working_directory)


class _Context:
    """The context of the newest usable keys."""

    def __init__(self, security: ListenerSecurity) -> None:
        self._security = security
        self._seen = self._versions()
        self._context = _context(security)

    def current(self) -> ssl.SSLContext:
        """The context for a new connection."""
        versions = self._versions()
        if versions != self._seen:
            self._seen = versions
            try:
                self._context = _context(self._security)
                _log.info("keys and certificates were read again")
            except TlsError as error:
                _log.error("renewed keys cannot be used", extra={"reason": str(error)})
        return self._context

    def _versions(self) -> list[tuple[int, int, int]]:
        options = self._security.options
        locations = (options.ssl_keystore_location, options.ssl_truststore_location)
        return [_version(self._security.working_directory / path) for path in locations if path is not None]


def _context(security: ListenerSecurity) -> ssl.SSLContext:
    context = read_keys(security).server_context()
    context.set_alpn_protocols(alpn_protocols())
    return context


def _version(path: Path) -> tuple[int, int, int]:
    try:
        found = path.stat()
    except OSError:
        return 0, 0, 0
    return found.st_mtime_ns, found.st_size, found.st_ino


def _on_failure(client: str, reason: str) -> None:
    _log.info("a TLS handshake failed", extra={"client": client, "reason": reason})
