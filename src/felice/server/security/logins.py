"""The SASL mechanisms that each listener offers, with the users that may log in.

Keeps true: a login uses the configuration and the SCRAM credentials that are in force when it happens. A changed
            password applies to new logins; open connections stay open.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING

from felice.config import BrokerConfig
from felice.config.security import ListenerSecurity
from felice.env import Random
from felice.metadata import ClusterImage
from felice.metadata.client_entity import ClientEntity
from felice.security.principal import USER, Principal
from felice.security.sasl import plain
from felice.security.sasl.exchange import Offered
from felice.security.sasl.mechanism import ServerMechanism
from felice.security.sasl.oauthbearer import NAME as OAUTHBEARER
from felice.security.sasl.oauthbearer import OAuthServer, UnsecuredTokens, Validate
from felice.security.sasl.plain import PlainServer
from felice.security.sasl.scram import HASHES, ScramCredential, ScramServer, ScramUser
from felice.server.configs.settings import Settings
from felice.server.security.delegation_tokens import DelegationTokens
from felice.server.startup import StartupError

if TYPE_CHECKING:
    from felice.server.security.token_keys import TokenKeys

_log = logging.getLogger("felice.server")

_NONCE_BITS = 160


class Logins:
    """The logins of one broker's listeners."""

    def __init__(
        self,
        settings: Settings,
        image: Callable[[], ClusterImage],
        tokens: DelegationTokens,
        random: Random,
    ) -> None:
        self.failures = 0
        """How many logins have failed since the broker started."""
        self.successes = 0
        """How many have succeeded, also of clients that logged in again."""
        self._settings = settings
        self._image = image
        self._tokens = tokens
        self._random = random
        self._keys: dict[str, TokenKeys] = {}
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
                mechanism,
                lambda name: self._scram_user(name, mechanism),
                lambda token_id: self._tokens.user(token_id, mechanism),
                self._nonce(),
            )
        module = security.jaas(mechanism)
        if mechanism == OAUTHBEARER:
            validate = self._validator(security, module.options if module is not None else {})
            return lambda: OAuthServer(validate)
        users = plain.users_of(module.options if module is not None else {})
        return lambda: PlainServer(users)

    async def start(self) -> None:
        """Reads the keys of signed tokens. Raises `StartupError`."""
        config = self._settings.config
        for listener in config.parsed_listeners:
            security = config.security_of(listener.name)
            if OAUTHBEARER not in security.mechanisms:
                continue
            if security.checks_signatures(OAUTHBEARER):
                self._keys[listener.name] = await _load_keys(security)
            else:
                _log.warning(
                    "clients may log in with tokens that nobody has signed: for development only",
                    extra={"listener": listener.name},
                )

    def stop(self) -> None:
        """Stops reading keys."""
        for keys in self._keys.values():
            keys.close()

    def _validator(self, security: ListenerSecurity, options: Mapping[str, str]) -> Validate:
        keys = self._keys.get(security.name)
        if keys is None:
            return UnsecuredTokens(options).validate
        from felice.security.sasl.signed_tokens import Claims, SignedTokens

        found = security.options_of_mechanism(OAUTHBEARER)
        claims = Claims(
            found.sasl_oauthbearer_expected_issuer,
            found.sasl_oauthbearer_expected_audience,
            found.sasl_oauthbearer_sub_claim_name,
            found.sasl_oauthbearer_scope_claim_name,
            found.sasl_oauthbearer_clock_skew_seconds,
        )
        return SignedTokens(lambda: keys.keys, keys.read_again_soon, claims).validate

    def _nonce(self) -> str:
        random_bytes = self._random.getrandbits(_NONCE_BITS).to_bytes(_NONCE_BITS // 8, "big")
        return base64.b64encode(random_bytes).decode().rstrip("=").replace("/", "-").replace("+", "_")

    def _scram_user(self, name: str, mechanism: str) -> ScramUser | None:
        credential = self._credential(name, mechanism)
        return None if credential is None else ScramUser(credential, Principal(USER, name))

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


async def _load_keys(security: ListenerSecurity) -> TokenKeys:
    if find_spec("jwt") is None or find_spec("cryptography") is None:
        raise StartupError("signed tokens need the library PyJWT; install it: pip install 'felice[security]'")
    from felice.env.web import CannotRead
    from felice.security.sasl.signed_tokens import BadKeys
    from felice.server.security.token_keys import TokenKeys

    options = security.options_of_mechanism(OAUTHBEARER)
    url = options.sasl_oauthbearer_jwks_endpoint_url
    assert url is not None, "the configuration was checked"
    keys = TokenKeys(url, options.sasl_oauthbearer_jwks_endpoint_refresh_ms / 1000)
    try:
        await keys.load()
    except (CannotRead, BadKeys) as error:
        raise StartupError(f"{security.key('sasl.oauthbearer.jwks.endpoint.url')}: {error}") from None
    return keys
