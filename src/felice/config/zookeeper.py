"""Options of a broker whose metadata is kept by ZooKeeper, by the names that Kafka 3.x gives them.

`zookeeper.digest.auth` is ours: Kafka takes user and password from a file of the JVM.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from felice.config.option import ConfigError, Kind, option

DEFAULT_PORT = 2181
_TO_PEM = (
    "only PEM can be read; convert it with: keytool -importkeystore -srckeystore {path} -destkeystore store.p12 "
    "-deststoretype PKCS12 && openssl pkcs12 -in store.p12 -nodes -out store.pem"
)


@dataclass(frozen=True, slots=True)
class ZooKeeperOptions:
    """Without `zookeeper.connect` none of the others has a meaning."""

    zookeeper_connect: str | None = option(
        "zookeeper.connect", Kind.STRING, None,
        "The ZooKeeper ensemble that keeps the cluster's metadata: host:port,host:port/chroot. Not set: the broker "
        "stands alone and keeps them itself.",
    )  # fmt: skip
    zookeeper_session_timeout_ms: int = option(
        "zookeeper.session.timeout.ms", Kind.INT, 18_000,
        "How long ZooKeeper waits for a broker that it does not hear before the others take it for dead.", minimum=1,
    )  # fmt: skip
    zookeeper_connection_timeout_ms: int | None = option(
        "zookeeper.connection.timeout.ms", Kind.INT, None,
        "How long a broker that starts waits for ZooKeeper; as long as a session if not set.", minimum=1,
    )  # fmt: skip
    zookeeper_max_in_flight_requests: int = option(
        "zookeeper.max.in.flight.requests", Kind.INT, 10,
        "Requests to ZooKeeper that may wait for their answers at the same time.", minimum=1, maximum=100,
    )  # fmt: skip
    zookeeper_set_acl: bool = option(
        "zookeeper.set.acl", Kind.BOOLEAN, False,
        "Whether only this cluster's brokers may change the nodes that it makes, and read those with passwords.",
    )  # fmt: skip
    zookeeper_digest_auth: str | None = option(
        "zookeeper.digest.auth", Kind.PASSWORD, None, "user:password of ZooKeeper's digest authentication."
    )
    zookeeper_ssl_client_enable: bool = option(
        "zookeeper.ssl.client.enable", Kind.BOOLEAN, False, "Whether ZooKeeper is spoken to by TLS."
    )
    zookeeper_ssl_keystore_location: str | None = option(
        "zookeeper.ssl.keystore.location", Kind.STRING, None,
        "A PEM file with this broker's private key and certificates, where ZooKeeper asks for them.",
    )  # fmt: skip
    zookeeper_ssl_keystore_password: str | None = option(
        "zookeeper.ssl.keystore.password", Kind.PASSWORD, None, "The password of the private key."
    )
    zookeeper_ssl_keystore_type: str | None = option(
        "zookeeper.ssl.keystore.type", Kind.STRING, None, "PEM; told by the file's name if not set."
    )
    zookeeper_ssl_truststore_location: str | None = option(
        "zookeeper.ssl.truststore.location", Kind.STRING, None,
        "A PEM file with the certificates that are trusted; those of this machine if not set.",
    )  # fmt: skip
    zookeeper_ssl_truststore_type: str | None = option(
        "zookeeper.ssl.truststore.type", Kind.STRING, None, "PEM; told by the file's name if not set."
    )
    zookeeper_ssl_endpoint_identification_algorithm: str = option(
        "zookeeper.ssl.endpoint.identification.algorithm", Kind.STRING, "HTTPS",
        "HTTPS: the certificate must be the host's. Empty: any trusted certificate does.",
    )  # fmt: skip

    @property
    def zookeeper_hosts(self) -> tuple[str, ...]:
        return parse_connect(self.zookeeper_connect or "")[0]

    @property
    def zookeeper_chroot(self) -> str:
        return parse_connect(self.zookeeper_connect or "")[1]

    def check_zookeeper(self) -> None:
        """Raises `ConfigError` for what could not work."""
        if self.zookeeper_connect is None:
            return
        parse_connect(self.zookeeper_connect)
        if self.zookeeper_digest_auth is not None and ":" not in self.zookeeper_digest_auth:
            raise ConfigError("zookeeper.digest.auth", "[hidden]", "expected user:password")
        has_certificate = self.zookeeper_ssl_client_enable and self.zookeeper_ssl_keystore_location
        if self.zookeeper_set_acl and not (self.zookeeper_digest_auth or has_certificate):
            raise ConfigError(
                "zookeeper.set.acl", "true",
                "ZooKeeper must know who asks: set zookeeper.digest.auth, or a keystore for TLS",
            )  # fmt: skip
        self._check_tls()

    def _check_tls(self) -> None:
        for what, location, kind in self._stores():
            if location is None:
                continue
            if not self.zookeeper_ssl_client_enable:
                raise ConfigError(
                    f"zookeeper.ssl.{what}.location", location,
                    "it has no effect unless zookeeper.ssl.client.enable=true",
                )  # fmt: skip
            if (kind or Path(location).suffix.removeprefix(".")).upper() != "PEM":
                name = f"zookeeper.ssl.{what}.{'type' if kind else 'location'}"
                raise ConfigError(name, kind or location, _TO_PEM.format(path=location))
        if self.zookeeper_ssl_endpoint_identification_algorithm.upper() not in ("HTTPS", ""):
            raise ConfigError(
                "zookeeper.ssl.endpoint.identification.algorithm",
                self.zookeeper_ssl_endpoint_identification_algorithm,
                "expected HTTPS, or nothing",
            )

    def _stores(self) -> Iterator[tuple[str, str | None, str | None]]:
        yield "keystore", self.zookeeper_ssl_keystore_location, self.zookeeper_ssl_keystore_type
        yield "truststore", self.zookeeper_ssl_truststore_location, self.zookeeper_ssl_truststore_type


def parse_connect(text: str) -> tuple[tuple[str, ...], str]:
    """`a:2181,b/kafka` as hosts with their ports, and the chroot (empty for none); raises `ConfigError`."""
    servers, slash, path = text.partition("/")
    chroot = (slash + path).rstrip("/")
    if "," in path:
        # Else the other hosts would be part of a path, and this broker the first of a new cluster there.
        raise _refused(text, "the path goes once, behind the last host")
    if any(part in ("", ".", "..") for part in chroot.split("/")[1:]):
        raise _refused(text, f"{slash}{path} is not the path of a node")
    return tuple(_server(text, server.strip()) for server in servers.split(",")), chroot


def _server(text: str, server: str) -> str:
    host, colon, port = server.rpartition(":")
    if not colon or server.endswith("]"):
        host, port = server, str(DEFAULT_PORT)
    if not host or (":" in host and not (host.startswith("[") and host.endswith("]"))):
        raise _refused(text, f"{server} names no host" if server else "a host is missing")
    if not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65_536:
        raise _refused(text, f"{port} is no port" if port else "a port is missing")
    return f"{host}:{port}"


def _refused(text: str, reason: str) -> ConfigError:
    return ConfigError("zookeeper.connect", text, f"expected host:port,host:port/chroot; {reason}")
