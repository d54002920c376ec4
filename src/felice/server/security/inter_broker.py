"""How this broker secures its connections to other brokers: the TLS context and the login of their common listener."""

from __future__ import annotations

import ssl
from collections.abc import Callable

from felice.env import Random
from felice.security.sasl.mechanism import ClientMechanism
from felice.security.sasl.oauthbearer import NAME as OAUTHBEARER
from felice.security.sasl.oauthbearer import OAuthClient, unsecured_token
from felice.security.sasl.plain import PlainClient
from felice.security.sasl.scram import HASHES, ScramClient
from felice.server.configs.settings import Settings
from felice.server.security.tls import TlsListeners

_NONCE_BITS = 160
_TOKEN_LIFETIME_S = 3600


class InterBrokerSecurity:
    """Reads the configuration of the moment for each new connection."""

    def __init__(
        self, settings: Settings, tls: TlsListeners, random: Random, now_ms: Callable[[], int]
    ) -> None:
        self._now_ms = now_ms
        self._settings = settings
        self._tls = tls
        self._random = random

    def tls(self) -> ssl.SSLContext | None:
        """The TLS context; None for a connection without TLS."""
        return self._tls.client_context(self._settings.config.inter_broker_listener)

    def login(self) -> ClientMechanism | None:
        """The start of a login; None for a connection without SASL."""
        config = self._settings.config
        security = config.security_of(config.inter_broker_listener)
        if not security.uses_sasl:
            return None
        mechanism = config.sasl_mechanism_inter_broker_protocol
        module = security.jaas(mechanism)
        assert module is not None, "the configuration was checked"
        if mechanism == OAUTHBEARER:
            name = module.options["unsecuredLoginStringClaim_sub"]
            now_s = self._now_ms() / 1000
            return OAuthClient(unsecured_token({"sub": name, "iat": now_s, "exp": now_s + _TOKEN_LIFETIME_S}))
        user, password = module.options["username"], module.options["password"]
        if mechanism in HASHES:
            return ScramClient(mechanism, user, password, f"{self._random.getrandbits(_NONCE_BITS):040x}")
        return PlainClient(user, password)
