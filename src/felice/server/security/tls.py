"""The TLS contexts of a broker's listeners, and their replacement while the broker runs.

Keeps true: a listener opens only with a key, a certificate and a trust store that can be used as configured. A change
            that cannot be used is refused, and the listener keeps its configuration. Open connections stay open.
Leaves:     reading keys to `felice.security.listener_keys`, the handshake to `felice.env.listening`.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Collection, Iterable, Mapping

from felice.config import BrokerConfig
from felice.config.security import ListenerSecurity
from felice.dataclass import dataclass
from felice.env.key_stores import CertificateNames, TlsError
from felice.env.tls import client_context, why_not_accepted
from felice.security.mapping import BadRule, Rule, parse_rules

_log = logging.getLogger("felice.server")


@dataclass(frozen=True, slots=True)
class SecuredListener:
    """What one listener needs for TLS."""

    context: ssl.SSLContext
    client: ssl.SSLContext | None
    """For connections to the other brokers, if they use this listener."""
    asks_for_certificates: bool
    rules: tuple[Rule, ...]
    names: CertificateNames
    texts: Mapping[str, str]


class TlsListeners:
    """The listeners of one broker that use TLS."""

    def __init__(self) -> None:
        self._secured: dict[str, SecuredListener] = {}
        self._wanted: dict[str, dict[str, str]] = {}  # the TLS options of the newest configuration
        self._loading: set[asyncio.Task[None]] = set()

    def load(self, config: BrokerConfig) -> None:
        """Prepares every listener that uses TLS, and the endpoint for metrics. Raises `TlsError`."""
        self._secured = _make_all(config, config.secured_names)

    def load_one(self, config: BrokerConfig, listener: str) -> None:
        """`load` for one listener: the endpoint for metrics opens before the others. Raises `TlsError`."""
        self._secured.update(_make_all(config, [listener]))

    def uses_tls(self, listener: str) -> bool:
        """Whether connections of this listener are encrypted."""
        return listener in self._secured

    def __getitem__(self, listener: str) -> SecuredListener:
        return self._secured[listener]

    def client_context(self, listener: str) -> ssl.SSLContext | None:
        """The context for connections to other brokers at this listener; None if it has no TLS."""
        secured = self._secured.get(listener)
        return None if secured is None else secured.client

    async def prepare(self, config: BrokerConfig, listeners: Collection[str]) -> dict[str, SecuredListener]:
        """Builds the TLS contexts of these listeners from a changed configuration, for `apply`. Raises `TlsError`."""
        loop = asyncio.get_running_loop()
        made = await loop.run_in_executor(None, _make_all, config, listeners)
        for name, secured in made.items():
            old = self._secured.get(name)
            if old is not None:
                _check_names(config.security_of(name), old, secured)
        return made

    def apply(self, made: Mapping[str, SecuredListener]) -> None:
        """Uses the results of `prepare` for all later connections."""
        self._secured.update(made)
        for name in made:
            _log.info("keys and certificates were read again", extra={"listener": name})

    def follow(self, config: BrokerConfig) -> None:
        """Reloads, in the background, the listeners whose TLS options differ. Call it after each dynamic change."""
        self._wanted = {name: _texts(config, name) for name in self._secured}
        changed = [name for name, made in self._secured.items() if self._wanted[name] != made.texts]
        if changed:
            task = asyncio.get_running_loop().create_task(self._reload(config, changed))
            self._loading.add(task)
            task.add_done_callback(self._loading.discard)

    async def _reload(self, config: BrokerConfig, listeners: list[str]) -> None:
        try:
            made = await self.prepare(config, listeners)
        except TlsError as error:
            _log.error("a change of TLS is ignored", extra={"reason": str(error)})
            return
        # Meanwhile a newer change may have come, or the handler of the request may have applied this one.
        self.apply(
            {n: new for n, new in made.items() if self._secured[n].texts != new.texts == self._wanted[n]}
        )


def _make_all(config: BrokerConfig, listeners: Iterable[str]) -> dict[str, SecuredListener]:
    found = {name: config.security_of(name) for name in listeners}
    return {
        name: _make(security, config.inter_broker_listener, _texts(config, name))
        for name, security in found.items()
        if security.uses_tls
    }


def _texts(config: BrokerConfig, listener: str) -> dict[str, str]:
    security = config.security_of(listener)
    return {k: v for k, v in {**security.of_all, **security.own}.items() if k.startswith("ssl.")}


def _make(security: ListenerSecurity, inter_broker: str, texts: Mapping[str, str]) -> SecuredListener:
    # The start of a broker without TLS does not need this module.
    from felice.security.listener_keys import read_keys

    keys = read_keys(security)
    context = keys.server_context()
    client = None
    if security.name == inter_broker:
        client = client_context(
            keys.identity,
            keys.trust,
            keys.versions,
            check_hostname=bool(security.options.ssl_endpoint_identification_algorithm),
        )
        _check_accepted(security, context, client)
    return SecuredListener(
        context,
        client,
        security.client_auth != "none",
        _rules(security),
        keys.names,
        texts,
    )


def _check_accepted(security: ListenerSecurity, server: ssl.SSLContext, client: ssl.SSLContext) -> None:
    """The other brokers have the same trust store: they must accept the certificate of this broker."""
    if (reason := why_not_accepted(server, client)) is not None:
        raise TlsError(
            f"{security.key('ssl.truststore.location')}: other brokers would not accept the certificate of this "
            f"broker: {reason}"
        )


def _rules(security: ListenerSecurity) -> tuple[Rule, ...]:
    try:
        return parse_rules(security.options.ssl_principal_mapping_rules)
    except BadRule as error:
        raise TlsError(f"{security.key('ssl.principal.mapping.rules')}: {error}") from None


def _check_names(security: ListenerSecurity, old: SecuredListener, new: SecuredListener) -> None:
    """A renewed certificate must stay the same broker's, as in Kafka."""
    options = security.options
    if new.names.subject != old.names.subject and not options.ssl_allow_dn_changes:
        raise TlsError(
            f"{security.prefix}ssl.keystore.location: the subject of the certificate was {old.names.subject} and would "
            f"be {new.names.subject}; set ssl.allow.dn.changes=true to allow this"
        )
    if not old.names.alternatives <= new.names.alternatives and not options.ssl_allow_san_changes:
        raise TlsError(
            f"{security.prefix}ssl.keystore.location: the certificate lacks alternative names of the old one; set "
            "ssl.allow.san.changes=true to allow this"
        )
