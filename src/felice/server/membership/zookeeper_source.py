"""Opens a broker's session with the ZooKeeper ensemble of its configuration.

Keeps true: only a broker with `zookeeper.connect` imports kazoo. If the ensemble cannot be used, the error is one line
            with the reason.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from felice.config import BrokerConfig
from felice.env import Clock
from felice.metadata.store import MetadataStore, StoreError
from felice.server.startup import StartupError

if TYPE_CHECKING:
    from felice.metadata.zookeeper import ZooKeeperSettings, ZooKeeperStore


class ZooKeeperSource:
    """A session with the ensemble of `zookeeper.connect`."""

    stands_alone = False

    def __init__(self, config: BrokerConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._store: ZooKeeperStore | None = None

    @property
    def where(self) -> str:
        """The option with its value, for messages."""
        return f"zookeeper.connect={self._config.zookeeper_connect}"

    @property
    def session_timeout_ms(self) -> int:
        """The granted timeout, rounded up to ZooKeeper's next tick. A session lasts at least two ticks."""
        granted = self._store.session_timeout_ms if self._store else self._config.zookeeper_session_timeout_ms
        return granted * 3 // 2

    async def open(self) -> MetadataStore:
        """Raises `StartupError` without kazoo, or if the ensemble cannot be reached."""
        try:
            from felice.metadata.zookeeper import ZooKeeperStore
        except ImportError as error:
            if error.name is None or not error.name.startswith(("kazoo", "puresasl")):
                raise
            raise StartupError(
                "zookeeper.connect needs kazoo and pure-sasl, which are not installed; "
                "try: pip install 'felice[zookeeper]'"
            ) from None
        try:
            self._store = await ZooKeeperStore.open(zookeeper_settings(self._config), self._clock)
        except StoreError as error:
            raise StartupError(f"{self.where}: {error}") from error
        return self._store

    def release(self) -> None:
        """Does nothing: the store is not on this machine."""


def zookeeper_settings(config: BrokerConfig) -> ZooKeeperSettings:
    """Returns the settings of the connection from the broker's configuration."""
    from felice.metadata.zookeeper import JaasSettings, TlsSettings, ZooKeeperSettings

    def path_of(text: str | None) -> Path | None:
        return config.path_of(text) if text is not None else None

    session_timeout_ms, jaas_file = config.zookeeper_session_timeout_ms, config.zookeeper_jaas_file
    tls = None
    if config.zookeeper_ssl_client_enable:
        tls = TlsSettings(
            path_of(config.zookeeper_ssl_truststore_location),
            path_of(config.zookeeper_ssl_keystore_location),
            config.zookeeper_ssl_keystore_password,
            bool(config.zookeeper_ssl_endpoint_identification_algorithm),
        )
    return ZooKeeperSettings(
        config.zookeeper_hosts,
        config.zookeeper_chroot,
        session_timeout_ms,
        config.zookeeper_connection_timeout_ms or session_timeout_ms,
        config.zookeeper_max_in_flight_requests,
        config.zookeeper_digest_auth,
        config.zookeeper_set_acl,
        tls,
        jaas=(
            JaasSettings(config.path_of(jaas_file), config.zookeeper_sasl_clientconfig) if jaas_file else None
        ),
    )
