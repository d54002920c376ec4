"""Address and credentials of a ZooKeeper ensemble. Does not import kazoo."""

from __future__ import annotations

import ssl
from dataclasses import field
from pathlib import Path

from felice.config.jaas import BadJaas, JaasModule, parse_jaas_file
from felice.dataclass import dataclass
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
class SaslLogin:
    """User and password for SASL with DIGEST-MD5."""

    user: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class JaasSettings:
    """The section of a JAAS file that has the login at ZooKeeper."""

    file: Path
    section: str = "Client"

    def login(self) -> SaslLogin:
        """Reads the file. Raises `StoreError` that says what is missing in it."""
        module = self._module()
        if module.name != "DigestLoginModule":
            raise self._unusable(f"{module.name} is not supported; only DigestLoginModule is")
        user, password = (module.options.get(name, "") for name in ("username", "password"))
        if not user or not password:
            raise self._unusable("DigestLoginModule needs username and password")
        return SaslLogin(user, password)

    def _module(self) -> JaasModule:
        try:
            sections = parse_jaas_file(self.file.read_text())
        except (OSError, UnicodeDecodeError) as error:
            raise self._unusable(getattr(error, "strerror", None) or "it is not text in UTF-8") from None
        except BadJaas as error:
            raise self._unusable(str(error)) from None
        modules = sections.get(self.section)
        if modules is None:
            raise self._unusable(
                "the section is missing; zookeeper.sasl.client=false connects without a login"
            )
        if len(modules) != 1:
            raise self._unusable(f"expected one login module, found {len(modules)}")
        return modules[0]

    def _unusable(self, reason: str) -> StoreError:
        return StoreError(
            str(self.file), f"java.security.auth.login.config, section {self.section}: {reason}"
        )


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
    jaas: JaasSettings | None = None

    @property
    def where(self) -> str:
        """The connection string, for log lines and errors; it holds no credentials."""
        return ",".join(self.hosts) + self.chroot


def _unusable(option: str, path: Path, error: Exception) -> StoreError:
    reason = getattr(error, "strerror", None) or str(error)
    return StoreError(str(path), f"{option} is no PEM file that can be used: {reason}")
