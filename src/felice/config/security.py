"""Options of TLS and SASL, and the prefixes that set them for one listener or one SASL mechanism.

Keeps true: the configuration of a listener is complete and consistent before the broker opens it. A security option
            with the prefix of a listener that does not exist is an error: it would otherwise leave a listener less
            secure than its operator believes.
How:        `SecurityOptions` declares the options once. A broker's file sets them for all listeners, the prefix
            `listener.name.NAME.` for one listener, and `listener.name.NAME.MECHANISM.` for one mechanism of it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from felice.config.jaas import BadJaas, JaasModule, parse_jaas
from felice.config.listener_limits import LISTENER_LIMITS
from felice.config.option import ConfigError, Kind, Option, Scope, construct, option, options_of, parse_all
from felice.dataclass import dataclass

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
"""The SASL mechanisms that Felice has."""
STORE_TYPES: Final = ("JKS", "PKCS12", "PEM")
CLIENT_AUTH: Final = ("none", "requested", "required")
PREFIX: Final = "listener.name."
LOGIN_MODULES: Final = {
    "PLAIN": "PlainLoginModule",
    "SCRAM-SHA-256": "ScramLoginModule",
    "SCRAM-SHA-512": "ScramLoginModule",
    "OAUTHBEARER": "OAuthBearerLoginModule",
}
VALIDATOR: Final = "OAuthBearerValidatorCallbackHandler"
_SKEW: Final = "unsecuredValidatorAllowableClockSkewMs"
_JAAS: Final = "sasl.jaas.config"
# The users of SCRAM are in the metadata store.
_NEEDS_JAAS: Final = {"PLAIN": ' user_alice="PASSWORD"', "OAUTHBEARER": ""}


@dataclass(frozen=True, slots=True)
class SecurityOptions:
    """Options that a listener may have for itself."""

    ssl_keystore_type: str = option(
        "ssl.keystore.type",
        Kind.STRING,
        "JKS",
        "The format of the key store: PEM, PKCS12, or JKS, which also stands for PKCS12, as in Java. Files in Java's "
        "own JKS format must be converted.",
        scope=Scope.PER_BROKER,
        choices=STORE_TYPES,
        ignores_case=True,
    )
    ssl_keystore_location: str | None = option(
        "ssl.keystore.location",
        Kind.STRING,
        None,
        "The file with the broker's private key and certificate chain. Setting it again rereads the file.",
        scope=Scope.PER_BROKER,
    )
    ssl_keystore_password: str | None = option(
        "ssl.keystore.password",
        Kind.PASSWORD,
        None,
        "The password of the key store; not with PEM.",
        scope=Scope.PER_BROKER,
    )
    ssl_key_password: str | None = option(
        "ssl.key.password",
        Kind.PASSWORD,
        None,
        "The password of the private key, if it is encrypted.",
        scope=Scope.PER_BROKER,
    )
    ssl_keystore_certificate_chain: str | None = option(
        "ssl.keystore.certificate.chain",
        Kind.PASSWORD,
        None,
        "The certificate chain in PEM, instead of a file.",
        scope=Scope.PER_BROKER,
    )
    ssl_keystore_key: str | None = option(
        "ssl.keystore.key",
        Kind.PASSWORD,
        None,
        "The private key in PEM, instead of a file.",
        scope=Scope.PER_BROKER,
    )
    ssl_truststore_type: str = option(
        "ssl.truststore.type",
        Kind.STRING,
        "JKS",
        "The format of the trust store, as for ssl.keystore.type.",
        scope=Scope.PER_BROKER,
        choices=STORE_TYPES,
        ignores_case=True,
    )
    ssl_truststore_location: str | None = option(
        "ssl.truststore.location",
        Kind.STRING,
        None,
        "The file with the certificates that the broker trusts. Setting it again rereads the file.",
        scope=Scope.PER_BROKER,
    )
    ssl_truststore_password: str | None = option(
        "ssl.truststore.password",
        Kind.PASSWORD,
        None,
        "The password of the trust store; not with PEM.",
        scope=Scope.PER_BROKER,
    )
    ssl_truststore_certificates: str | None = option(
        "ssl.truststore.certificates",
        Kind.PASSWORD,
        None,
        "The trusted certificates in PEM, instead of a file.",
        scope=Scope.PER_BROKER,
    )
    ssl_client_auth: str = option(
        "ssl.client.auth",
        Kind.STRING,
        "none",
        "Whether clients show certificates: none, requested or required. Without a listener's prefix it applies to "
        "listeners with SSL only.",
        choices=CLIENT_AUTH,
        scope=Scope.PER_BROKER,
    )
    ssl_enabled_protocols: tuple[str, ...] = option(
        "ssl.enabled.protocols",
        Kind.LIST,
        ("TLSv1.2", "TLSv1.3"),
        "The TLS versions that are accepted.",
        scope=Scope.PER_BROKER,
        choices=("TLSv1.2", "TLSv1.3"),
    )
    ssl_cipher_suites: tuple[str, ...] = option(
        "ssl.cipher.suites",
        Kind.LIST,
        (),
        "The cipher suites that are accepted, by Java's names; OpenSSL's choice if empty. The suites of TLS 1.3 can "
        "only be allowed all together.",
        scope=Scope.PER_BROKER,
    )
    ssl_endpoint_identification_algorithm: str = option(
        "ssl.endpoint.identification.algorithm",
        Kind.STRING,
        "https",
        "Whether a broker that connects to another compares its host name with the certificate: https, or empty.",
        choices=("https", ""),
        ignores_case=True,
        scope=Scope.PER_BROKER,
    )
    ssl_principal_mapping_rules: str = option(
        "ssl.principal.mapping.rules",
        Kind.STRING,
        "DEFAULT",
        "How the subject of a client's certificate becomes the name of its principal: DEFAULT, or "
        "RULE:pattern/replacement/ with an L or U at its end for lower or upper case; the first match counts.",
    )
    ssl_allow_dn_changes: bool = option(
        "ssl.allow.dn.changes",
        Kind.BOOLEAN,
        False,
        "Whether a renewed certificate may have another subject.",
    )
    ssl_allow_san_changes: bool = option(
        "ssl.allow.san.changes",
        Kind.BOOLEAN,
        False,
        "Whether a renewed certificate may lack alternative names of the old one.",
    )
    sasl_enabled_mechanisms: tuple[str, ...] = option(
        "sasl.enabled.mechanisms",
        Kind.LIST,
        (),
        "The SASL mechanisms that clients may use. Kafka's default is GSSAPI, which Felice does not have.",
        choices=MECHANISMS,
        scope=Scope.PER_BROKER,
    )
    sasl_jaas_config: str | None = option(
        "sasl.jaas.config",
        Kind.PASSWORD,
        None,
        "The login module of a mechanism and its options, with the prefix of listener and mechanism: the users of "
        "PLAIN (user_NAME=password), and with username and password the login of this broker at other brokers.",
        scope=Scope.PER_BROKER,
    )
    sasl_server_callback_handler_class: str | None = option(
        "sasl.server.callback.handler.class",
        Kind.CLASS,
        None,
        "OAuthBearerValidatorCallbackHandler makes OAUTHBEARER check signed tokens with keys from "
        "sasl.oauthbearer.jwks.endpoint.url. Without it unsigned tokens are accepted. Other classes cannot be run.",
    )
    sasl_server_max_receive_size: int = option(
        "sasl.server.max.receive.size",
        Kind.INT,
        524_288,
        "The largest request before a client has logged in.",
        minimum=1024,
    )
    sasl_oauthbearer_jwks_endpoint_url: str | None = option(
        "sasl.oauthbearer.jwks.endpoint.url",
        Kind.STRING,
        None,
        "Where the keys are that sign tokens (JWKS): an address of http or https, or file:///path.",
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = option(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        Kind.LONG,
        3_600_000,
        "How often these keys are read again.",
        minimum=1000,
    )
    sasl_oauthbearer_expected_issuer: str | None = option(
        "sasl.oauthbearer.expected.issuer", Kind.STRING, None, "The issuer (iss) that tokens must have."
    )
    sasl_oauthbearer_expected_audience: tuple[str, ...] = option(
        "sasl.oauthbearer.expected.audience",
        Kind.LIST,
        (),
        "Audiences (aud) of which tokens must have one.",
    )
    sasl_oauthbearer_sub_claim_name: str = option(
        "sasl.oauthbearer.sub.claim.name", Kind.STRING, "sub", "The claim with the name of the principal."
    )
    sasl_oauthbearer_scope_claim_name: str = option(
        "sasl.oauthbearer.scope.claim.name",
        Kind.STRING,
        "scope",
        "The claim with the scope, which must be a text or a list of texts.",
    )
    sasl_oauthbearer_clock_skew_seconds: int = option(
        "sasl.oauthbearer.clock.skew.seconds",
        Kind.INT,
        30,
        "By how much the clocks of issuer and broker may differ.",
        minimum=0,
    )
    connections_max_reauth_ms: int = option(
        "connections.max.reauth.ms",
        Kind.LONG,
        0,
        "How long a client may go on before it must authenticate again; 0: as long as its credential is valid.",
        minimum=0,
    )


OPTIONS: Final[dict[str, Option]] = options_of(SecurityOptions)
_PREFIXED: Final = OPTIONS | LISTENER_LIMITS
_MECHANISM_PREFIXES: Final = {name.lower(): name for name in MECHANISMS}


@dataclass(frozen=True, slots=True)
class PrefixedName:
    """The parts of a name such as `listener.name.internal.scram-sha-256.sasl.jaas.config`."""

    listener: str
    mechanism: str | None
    key: str

    @property
    def is_security(self) -> bool:
        """Whether it is an option of TLS or SASL, and not a limit of the listener."""
        return self.key in OPTIONS


def split_name(name: str) -> PrefixedName | None:
    """Returns the parts of an option's name with a prefix, or None for any other name."""
    if not name.startswith(PREFIX):
        return None
    listener, _, key = name.removeprefix(PREFIX).partition(".")
    mechanism = None
    first, _, rest = key.partition(".")
    if first.lower() in _MECHANISM_PREFIXES:
        mechanism, key = _MECHANISM_PREFIXES[first.lower()], rest
    is_allowed = key in _PREFIXED if mechanism is None else key in OPTIONS and not key.startswith("ssl.")
    return PrefixedName(listener.upper(), mechanism, key) if listener and is_allowed else None


def prefixed_option(name: str) -> Option | None:
    """The declaration of an option whose name has a prefix."""
    parts = split_name(name)
    return None if parts is None else dataclasses.replace(_PREFIXED[parts.key], name=name)


@dataclass(frozen=True, slots=True)
class ListenerSecurity:
    """How one listener is secured: its protocol, and the texts that configure it."""

    name: str
    """Empty for a server that has one address and no names."""
    protocol: str
    own: Mapping[str, str] = dataclasses.field(repr=False)
    """Texts with the listener's prefix, by the name without the prefix."""
    of_all: Mapping[str, str] = dataclasses.field(repr=False)
    """Texts without a prefix."""
    of_mechanisms: Mapping[str, Mapping[str, str]] = dataclasses.field(repr=False)
    """Texts with the prefixes of listener and mechanism, by mechanism."""
    working_directory: Path = Path()
    """Where relative paths of key stores begin."""

    @property
    def uses_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.protocol.endswith("SSL")

    @property
    def uses_sasl(self) -> bool:
        """Whether clients log in with SASL."""
        return self.protocol.startswith("SASL_")

    @property
    def prefix(self) -> str:
        """The prefix of this listener's keys; none for a server that has one address, without a name."""
        return f"{PREFIX}{self.name.lower()}." if self.name else ""

    @property
    def options(self) -> SecurityOptions:
        """The options of this listener."""
        return construct(SecurityOptions, parse_all(OPTIONS, {**self.of_all, **self.own}))

    def options_of_mechanism(self, mechanism: str) -> SecurityOptions:
        """The options of one of the SASL mechanisms of this listener."""
        texts = {**self.of_all, **self.own, **self.of_mechanisms.get(mechanism, {})}
        return construct(SecurityOptions, parse_all(OPTIONS, texts))

    @property
    def client_auth(self) -> str:
        """`ssl.client.auth`. With SASL only the prefixed key counts, as in Kafka."""
        if self.uses_sasl and "ssl.client.auth" not in self.own:
            return "none"
        return self.options.ssl_client_auth

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """The SASL mechanisms that the listener offers; none without SASL."""
        return self.options.sasl_enabled_mechanisms if self.uses_sasl else ()

    def jaas_key(self, mechanism: str) -> str:
        """The name of the option that configures a mechanism of this listener."""
        return f"{self.prefix}{mechanism.lower()}.{_JAAS}"

    def jaas(self, mechanism: str) -> JaasModule | None:
        """The login module of a mechanism. A text without a prefix does not count. Raises `ConfigError`."""
        text = self.of_mechanisms.get(mechanism, {}).get(_JAAS, self.own.get(_JAAS))
        if text is None:
            return None
        try:
            found = parse_jaas(text)
        except BadJaas as error:
            raise ConfigError(self.jaas_key(mechanism), "[hidden]", str(error)) from None
        if found.name != LOGIN_MODULES[mechanism]:
            raise ConfigError(
                self.jaas_key(mechanism),
                found.module,
                f"{mechanism} needs the module {LOGIN_MODULES[mechanism]}",
            )
        return found

    def check(self) -> None:
        """Raises `ConfigError` if clients could not log in as configured."""
        if not self.uses_sasl:
            return
        if not self.mechanisms:
            raise ConfigError(
                self.key("sasl.enabled.mechanisms"),
                "",
                f"the listener {self.name} uses {self.protocol}; name the mechanisms that clients may use, such as "
                "SCRAM-SHA-512",
            )
        for mechanism in self.mechanisms:
            module = self.jaas(mechanism)
            if mechanism == "OAUTHBEARER":
                self._check_tokens(mechanism, module)
            if module is None and mechanism in _NEEDS_JAAS:
                example = f"{LOGIN_MODULES[mechanism]} required{_NEEDS_JAAS[mechanism]};"
                raise ConfigError(
                    self.jaas_key(mechanism), "", f"{mechanism} needs this option, such as {example}"
                )

    def _check_tokens(self, mechanism: str, module: JaasModule | None) -> None:
        self.checks_signatures(mechanism)
        skew = "0" if module is None else module.options.get(_SKEW, "0")
        if not (skew.isascii() and skew.isdigit()):
            raise ConfigError(self.jaas_key(mechanism), "[hidden]", f"{_SKEW} is not a number")

    def checks_signatures(self, mechanism: str) -> bool:
        """Whether tokens must be signed. Raises `ConfigError` for a validator that Felice does not have."""
        options = self.options_of_mechanism(mechanism)
        name = options.sasl_server_callback_handler_class
        if name is None:
            return False
        if name.rpartition(".")[2] != VALIDATOR:
            raise ConfigError(
                self.key("sasl.server.callback.handler.class"), name, f"Felice has only {VALIDATOR}"
            )
        if options.sasl_oauthbearer_jwks_endpoint_url is None:
            raise ConfigError(
                self.key("sasl.oauthbearer.jwks.endpoint.url"),
                "",
                "signed tokens need the keys of their issuer",
            )
        return True

    def key(self, name: str) -> str:
        """The name under which an option of this listener is set, or should be set, for errors."""
        return name if name in self.of_all and name not in self.own else f"{self.prefix}{name}"


def listener_security(
    name: str, protocol: str, properties: Mapping[str, str], working_directory: Path
) -> ListenerSecurity:
    """Collects what the properties say about one listener."""
    own: dict[str, str] = {}
    mechanisms: dict[str, dict[str, str]] = {}
    for full_name, text in properties.items():
        parts = split_name(full_name)
        if parts is None or parts.listener != name or not parts.is_security:
            continue
        (own if parts.mechanism is None else mechanisms.setdefault(parts.mechanism, {}))[parts.key] = text
    of_all = {key: text for key, text in properties.items() if key in OPTIONS}
    return ListenerSecurity(name, protocol, own, of_all, mechanisms, working_directory)


def check_prefixes(properties: Mapping[str, str], names: Iterable[str], ignored: Iterable[str]) -> None:
    """Raises `ConfigError` for a security option with the prefix of a listener that does not exist."""
    known, passed_over = list(names), {name.upper() for name in ignored}
    for name in properties:
        parts = split_name(name)
        if parts is None or not parts.is_security:
            continue
        if parts.listener not in known and parts.listener not in passed_over:
            raise ConfigError(
                name,
                "[hidden]",
                f"no listener is named {parts.listener}; there are {', '.join(known)}",
            )
