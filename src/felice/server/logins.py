"""The SASL mechanisms that each listener offers, with the users that may log in.

Keeps true: a login uses the configuration and the SCRAM credentials of its moment. A changed password counts for new
            logins; connections that are open live on.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Mapping

from felice.config import BrokerConfig
from felice.config.security import ListenerSecurity
from felice.env import Random
from felice.metadata import ClusterImage
from felice.metadata.client_entity import ClientEntity
from felice.security.sasl import plain
from felice.security.sasl.exchange import Offered
from felice.security.sasl.mechanism import ServerMechanism
from felice.security.sasl.plain import PlainServer
from felice.security.sasl.scram import HASHES, ScramCredential, ScramServer
from felice.server.settings import Settings

_log = logging.getLogger("felice.server")

_NONCE_BITS = 160


class Logins:
    """The logins of one broker's listeners."""

    def __init__(self, settings: Settings, image: Callable[[], ClusterImage], random: Random) -> None:
        self.failures = 0
        """How many logins have failed since the broker started."""
        self._settings = settings
        self._image = image
        self._random = random
        self._config: BrokerConfig | None = None
        self._offered: dict[str, Mapping[str, Offered]] = {}

    def offered(self, listener: str) -> Mapping[str, Offered]:
        """The mechanisms of a listener, in the order of `sasl.enabled.mechanisms`."""
        if self._config is not self._settings.config:
            self._config, self._offered = self._settings.config, {}
        found = self._offered.get(listener)
        if found is None:
            found = self._offered[listener] = self._offers(self._config.security_of(listener))
        return found

    def max_receive_bytes(self, listener: str) -> int:
        """The largest request before a login has succeeded."""
        return self._settings.config.security_of(listener).options.sasl_server_max_receive_size

    def on_failure(self) -> None:
        """Counts a login that has failed."""
        self.failures += 1

    def _offers(self, security: ListenerSecurity) -> dict[str, Offered]:
        return {
            mechanism: Offered(
                self._starter(mechanism, security),
                security.options_of_mechanism(mechanism).connections_max_reauth_ms,
            )
            for mechanism in security.mechanisms
        }

    def _starter(self, mechanism: str, security: ListenerSecurity) -> Callable[[], ServerMechanism]:
        if mechanism in HASHES:
            return lambda: ScramServer(
                mechanism, lambda user: self._credential(user, mechanism), self._nonce()
            )
        module = security.jaas(mechanism)
        users = plain.users_of(module.options if module is not None else {})
        return lambda: PlainServer(users)

    def _nonce(self) -> str:
        random_bytes = self._random.getrandbits(_NONCE_BITS).to_bytes(_NONCE_BITS // 8, "big")
        return base64.b64encode(random_bytes).decode().rstrip("=").replace("/", "-").replace("+", "_")

    def _credential(self, user: str, mechanism: str) -> ScramCredential | None:
        # An empty name means the default of all users.
        config = self._image().client_configs.get(ClientEntity(user), {}) if user else {}
        text = config.get(mechanism)
        if text is None:
            return None
        try:
            return ScramCredential.parse(text)
        except ValueError:
            _log.error(
                "a SCRAM credential in the metadata store cannot be read",
                extra={"user": user, "mechanism": mechanism},
            )
            return None
