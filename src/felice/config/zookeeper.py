"""Options of a broker whose metadata is stored in ZooKeeper, under the names of Kafka 3.x.

Kafka reads some of them as system properties of the JVM: `java.security.auth.login.config`, `zookeeper.sasl.client` and
`zookeeper.sasl.clientconfig`. Here they are options of the broker, with the same names. `zookeeper.digest.auth` is an
option of Felice only.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from felice.config.option import ConfigError, Kind, option
from felice.dataclass import dataclass

DEFAULT_PORT = 2181
_TO_PEM = (
    "only PEM can be read; convert it with: keytool -importkeystore -srckeystore {path} -destkeystore store.p12 "
    "-deststoretype PKCS12 && openssl pkcs12 -in store.p12 -nodes -out store.pem"
)


@dataclass(frozen=True, slots=False)
class ZooKeeperOptions:
    """Options of the connection to ZooKeeper. They have an effect only if `zookeeper.connect` is set."""

    zookeeper_connect: str | None = option(
        "zookeeper.connect",
        Kind.STRING,
        None,
        "The ZooKeeper ensemble that stores the cluster's metadata: host:port,host:port/chroot. Not set: the broker "
        "is a cluster of one and stores its metadata itself.",
    )
    zookeeper_session_timeout_ms: int = option(
        "zookeeper.session.timeout.ms",
        Kind.INT,
        18_000,
        "How long ZooKeeper waits for a silent broker before it ends the session, which fences the broker.",
        minimum=1,
    )
    zookeeper_connection_timeout_ms: int | None = option(
        "zookeeper.connection.timeout.ms",
        Kind.INT,
        None,
        "How long a starting broker waits for ZooKeeper; the session timeout if not set.",
        minimum=1,
    )
    zookeeper_max_in_flight_requests: int = option(
        "zookeeper.max.in.flight.requests",
        Kind.INT,
        10,
        "Requests to ZooKeeper that may be in flight at the same time.",
        minimum=1,
        maximum=100,
    )
    zookeeper_set_acl: bool = option(
        "zookeeper.set.acl",
        Kind.BOOLEAN,
        False,
        "Whether only brokers of this cluster may change the nodes that they create, and read nodes with passwords.",
    )
    zookeeper_digest_auth: str | None = option(
        "zookeeper.digest.auth", Kind.PASSWORD, None, "user:password of ZooKeeper's digest authentication."
    )
    java_security_auth_login_config: str | None = option(
        "java.security.auth.login.config",
        Kind.STRING,
        None,
        "A JAAS file with the login at ZooKeeper: user and password of DigestLoginModule, in the section Client. A "
        "system property of the JVM in Kafka.",
    )
    zookeeper_sasl_client: bool = option(
        "zookeeper.sasl.client",
        Kind.BOOLEAN,
        True,
        "Whether the broker logs in at ZooKeeper if there is a JAAS file. A system property of the JVM in Kafka.",
    )
    zookeeper_sasl_clientconfig: str = option(
        "zookeeper.sasl.clientconfig",
        Kind.STRING,
        "Client",
        "The section of the JAAS file with the login at ZooKeeper. A system property of the JVM in Kafka.",
    )
    zookeeper_ssl_client_enable: bool = option(
        "zookeeper.ssl.client.enable", Kind.BOOLEAN, False, "Whether connections to ZooKeeper use TLS."
    )
    zookeeper_ssl_keystore_location: str | None = option(
        "zookeeper.ssl.keystore.location",
        Kind.STRING,
        None,
        "A PEM file with this broker's private key and certificates, if ZooKeeper requires them.",
    )
    zookeeper_ssl_keystore_password: str | None = option(
        "zookeeper.ssl.keystore.password", Kind.PASSWORD, None, "The password of the private key."
    )
    zookeeper_ssl_keystore_type: str | None = option(
        "zookeeper.ssl.keystore.type", Kind.STRING, None, "PEM; derived from the file name if not set."
    )
    zookeeper_ssl_truststore_location: str | None = option(
        "zookeeper.ssl.truststore.location",
        Kind.STRING,
        None,
        "A PEM file with the trusted certificates; those of the operating system if not set.",
    )
    zookeeper_ssl_truststore_type: str | None = option(
        "zookeeper.ssl.truststore.type", Kind.STRING, None, "PEM; derived from the file name if not set."
    )
    zookeeper_ssl_endpoint_identification_algorithm: str = option(
        "zookeeper.ssl.endpoint.identification.algorithm",
        Kind.STRING,
        "HTTPS",
        "HTTPS: the certificate must be the host's. Empty: any trusted certificate does.",
    )

    @property
    def zookeeper_jaas_file(self) -> str | None:
        """The JAAS file with the login at ZooKeeper, or None if the broker does not log in by SASL."""
        return self.java_security_auth_login_config if self.zookeeper_sasl_client else None

    @property
    def zookeeper_hosts(self) -> tuple[str, ...]:
        """`host:port` of each server in `zookeeper.connect`."""
        return parse_connect(self.zookeeper_connect or "")[0]

    @property
    def zookeeper_chroot(self) -> str:
        """The path behind the last host of `zookeeper.connect`; empty for none."""
        return parse_connect(self.zookeeper_connect or "")[1]

    def check_zookeeper(self) -> None:
        """Raises `ConfigError` if these options cannot work together."""
        if self.zookeeper_connect is None:
            return
        parse_connect(self.zookeeper_connect)
        if self.zookeeper_digest_auth is not None and ":" not in self.zookeeper_digest_auth:
            raise ConfigError("zookeeper.digest.auth", "[hidden]", "expected user:password")
        has_certificate = self.zookeeper_ssl_client_enable and self.zookeeper_ssl_keystore_location
        identities = (self.zookeeper_digest_auth, self.zookeeper_jaas_file, has_certificate)
        if self.zookeeper_set_acl and not any(identities):
            raise ConfigError(
                "zookeeper.set.acl",
                "true",
                "ZooKeeper must know the broker's identity: set zookeeper.digest.auth, or "
                "java.security.auth.login.config=FILE with a section Client, or a keystore for TLS",
            )
        self._check_tls()

    def _check_tls(self) -> None:
        for what, location, kind in self._stores():
            if location is None:
                continue
            if not self.zookeeper_ssl_client_enable:
                raise ConfigError(
                    f"zookeeper.ssl.{what}.location",
                    location,
                    "it has no effect unless zookeeper.ssl.client.enable=true",
                )
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
    """Parses `a:2181,b/kafka`; returns the hosts with their ports, and the chroot (empty for none).

    Raises `ConfigError`.
    """
    servers, slash, path = text.partition("/")
    chroot = (slash + path).rstrip("/")
    if "," in path:
        # Otherwise the other hosts would become part of the chroot, and this broker would start a new cluster there.
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
