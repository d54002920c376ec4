"""Address and credentials of a ZooKeeper ensemble. Does not import kazoo."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from pathlib import Path

from felice.metadata.store import StoreError


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """PEM files. Without a truststore, the machine's trusted certificates count."""

    truststore: Path | None = None
    keystore: Path | None = None
    keystore_password: str | None = field(default=None, repr=False)
    checks_hostname: bool = True

    def context(self) -> ssl.SSLContext:
        """Raises `StoreError` that names the file that cannot be used."""
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH)
        context.check_hostname = self.checks_hostname
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.truststore is not None:
            context = self._trusting_only(self.truststore)
        if self.keystore is not None:
            try:
                context.load_cert_chain(self.keystore, password=self.keystore_password or "")
            except (OSError, ValueError) as error:
                raise _unusable("zookeeper.ssl.keystore.location", self.keystore, error) from None
        return context

    def _trusting_only(self, truststore: Path) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = self.checks_hostname
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_verify_locations(truststore)
        except OSError as error:
            raise _unusable("zookeeper.ssl.truststore.location", truststore, error) from None
        return context


@dataclass(frozen=True, slots=True)
class ZooKeeperSettings:
    """How to reach an ensemble: `hosts` are `host:port`, `chroot` is the path that Felice's root stands for."""

    hosts: tuple[str, ...]
    chroot: str = ""
    session_timeout_ms: int = 18_000
    connection_timeout_ms: int = 18_000
    max_in_flight_requests: int = 10
    # `user:password` of ZooKeeper's digest scheme.
    digest: str | None = field(default=None, repr=False)
    sets_acl: bool = False
    tls: TlsSettings | None = None
    # False for commands that only read: they do not create missing nodes.
    makes_chroot: bool = True

    @property
    def where(self) -> str:
        """The connection string, for log lines and errors; it holds no credentials."""
        return ",".join(self.hosts) + self.chroot


def _unusable(option: str, path: Path, error: Exception) -> StoreError:
    reason = getattr(error, "strerror", None) or str(error)
    return StoreError(str(path), f"{option} is no PEM file that can be used: {reason}")
