"""The configuration of a broker, parsed from `server.properties` and dynamic changes.

`BrokerConfig.parse` returns the configuration and the unknown names, so that the caller can warn of each of them. The
broker options that only set defaults of topics are derived from the declarations of the topic options.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

from felice.config.broker_options import PROVIDER_PREFIX, PROVIDERS, BrokerOptions
from felice.config.group import check_group_values
from felice.config.listener_limits import CREATION_RATE, MAX_CONNECTIONS
from felice.config.monitoring import ENDPOINT
from felice.config.option import (
    INT_MAX,
    ConfigError,
    Kind,
    Option,
    OptionValue,
    Scope,
    canonical_texts,
    construct,
    options_of,
    parse_all,
)
from felice.config.security import (
    ListenerSecurity,
    check_prefixes,
    listener_security,
    prefixed_option,
    split_name,
)
from felice.config.topic import TOPIC_OPTIONS
from felice.dataclass import dataclass

if TYPE_CHECKING:
    from felice.config.references import Sources

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
# A host has Kafka's characters: "PLAINTEXT://http://h:1" names no host.
_LISTENER = r"(?P<name>[^:/,\s]+)://(?P<host>\[[\w%.:-]*\]|[\w%.:-]*):(?P<port>[0-9]{1,5})"
_DEDUPE_BUFFER_MIN_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Listener:
    """An address on which a broker listens, or which it gives to clients. An empty host means every interface."""

    name: str
    host: str
    port: int

    @classmethod
    def parse(cls, text: str, option_name: str) -> Listener:
        """Parses `NAME://host:port`. Raises `ConfigError` that names `option_name`."""
        found = re.fullmatch(_LISTENER, text, re.ASCII)
        if found is None or int(found["port"]) > 65_535:
            raise ConfigError(
                option_name, text, "expected NAME://host:port, such as PLAINTEXT://127.0.0.1:9092"
            )
        return cls(found["name"].upper(), found["host"].strip("[]"), int(found["port"]))

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class BrokerConfig(BrokerOptions):
    """The effective configuration of one broker. Defaults are Kafka 4.3's."""

    topic_overrides: Mapping[str, OptionValue] = field(default_factory=dict)
    """Defaults of topic options that this broker sets, by the attribute of `TopicConfig`."""
    originals: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The texts from which the configuration was parsed, in their canonical spelling, by option name."""
    without_effect: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The texts of options that Felice does not have, for DescribeConfigs."""
    working_directory: Path = Path()
    """The directory of the process when its configuration was read. Relative paths begin here, also those of later
    changes: the process may change its directory meanwhile, and must not look for its files elsewhere."""

    @classmethod
    def parse(
        cls, properties: Mapping[str, str], *, sources: Sources | None = None
    ) -> tuple[BrokerConfig, list[str]]:
        """Returns the configuration and the names of unknown options. Raises `ConfigError`.

        `sources` have the values of references such as `${env:NAME}`; without them `config.providers` is refused.
        """
        working_directory = Path().absolute()
        if PROVIDERS not in properties and not any("${" in text for text in properties.values()):
            return cls._parse(properties, working_directory)
        # Only now, because most files have no references.
        from felice.config.references import resolve, without_values

        resolved = resolve(properties, sources, _is_secret)
        try:
            return cls._parse(resolved.properties, working_directory)
        except ConfigError as error:
            raise without_values(error, resolved) from None

    @classmethod
    def _parse(cls, properties: Mapping[str, str], working_directory: Path) -> tuple[BrokerConfig, list[str]]:
        known = {name: text for name, text in properties.items() if name in BROKER_OPTIONS}
        resolved = _resolve_synonyms(known)
        values = parse_all(_OWN_OPTIONS, resolved)
        prefixed = _checked_prefixed(properties)
        other = {name: text for name, text in properties.items() if name not in known | prefixed}
        config = construct(
            cls,
            values,
            topic_overrides=_topic_overrides(known),
            originals=canonical_texts(known | prefixed, find_option),
            without_effect=other,
            working_directory=working_directory,
        )
        config._check()
        return config, [name for name in other if not name.startswith(PROVIDER_PREFIX)]

    def topic_defaults(self) -> Mapping[str, OptionValue]:
        """Values that this broker sets as defaults of topics, by the attribute of `TopicConfig`."""
        return self.topic_overrides

    def changed(self, properties: Mapping[str, str]) -> BrokerConfig:
        """Returns this configuration with dynamic changes applied to it. Raises `ConfigError`."""
        if not properties:
            return self
        # References were replaced at the start. As in Kafka, dynamic values are no references.
        return BrokerConfig._parse({**self.originals, **properties}, self.working_directory)[0]

    @property
    def parsed_listeners(self) -> list[Listener]:
        """The listeners of the broker, without those of a KRaft controller."""
        return self._without_controllers(self.listeners, "listeners")

    @property
    def parsed_advertised_listeners(self) -> list[Listener]:
        """The addresses that the broker gives to clients: `advertised.listeners`, or else `listeners`."""
        texts = self.listeners if self.advertised_listeners is None else self.advertised_listeners
        return self._without_controllers(texts, "advertised.listeners")

    def _without_controllers(self, texts: Iterable[str], option_name: str) -> list[Listener]:
        controllers = {name.upper() for name in self.controller_listener_names}
        found = [Listener.parse(text, option_name) for text in texts]
        return [listener for listener in found if listener.name not in controllers]

    @property
    def log_directories(self) -> list[Path]:
        """The absolute paths of `log.dirs`."""
        return [self.path_of(text) for text in self.log_dirs]

    def path_of(self, text: str) -> Path:
        """The absolute path of a file or directory that an option names."""
        return self.working_directory / text

    @property
    def inter_broker_listener(self) -> str:
        """The name of the listener that other brokers use to connect to this broker."""
        if self.inter_broker_listener_name is not None:
            return self.inter_broker_listener_name.upper()
        if self.security_inter_broker_protocol is not None:
            return self.security_inter_broker_protocol
        names = [listener.name for listener in self.parsed_advertised_listeners]
        return "PLAINTEXT" if "PLAINTEXT" in names else names[0]

    def _check(self) -> None:
        self._check_listeners()
        self._check_replication()
        if self.node_id < 0 and not self.broker_id_generation_enable:
            raise ConfigError(
                "node.id", self.node_id, "broker.id.generation.enable is false, so it must be 0 or more"
            )
        if len(set(self.log_directories)) != len(self.log_dirs):
            raise ConfigError("log.dirs", ",".join(self.log_dirs), "a directory is named twice")
        self._check_cleaner()
        self.check_addresses()
        self.check_zookeeper()
        self.check_authorizer()
        if self.group_min_session_timeout_ms > self.group_max_session_timeout_ms:
            raise ConfigError(
                "group.min.session.timeout.ms",
                self.group_min_session_timeout_ms,
                f"it is above group.max.session.timeout.ms ({self.group_max_session_timeout_ms})",
            )
        check_group_values(self)

    def _check_cleaner(self) -> None:
        per_thread = self.log_cleaner_dedupe_buffer_size // max(self.log_cleaner_threads, 1)
        if self.log_cleaner_enable and per_thread < _DEDUPE_BUFFER_MIN_BYTES:
            raise ConfigError(
                "log.cleaner.dedupe.buffer.size",
                self.log_cleaner_dedupe_buffer_size,
                f"it must be at least 1 MiB for each of the {self.log_cleaner_threads} cleaner threads",
            )

    def _check_replication(self) -> None:
        names = [listener.name for listener in self.parsed_advertised_listeners]
        if self.inter_broker_listener not in names:
            by_name = self.inter_broker_listener_name is not None
            raise ConfigError(
                "inter.broker.listener.name" if by_name else "security.inter.broker.protocol",
                self.inter_broker_listener_name if by_name else self.security_inter_broker_protocol,
                f"no advertised listener has that name; there are {', '.join(names)}",
            )
        if self.inter_broker_listener_name is not None and self.security_inter_broker_protocol is not None:
            raise ConfigError(
                "security.inter.broker.protocol",
                self.security_inter_broker_protocol,
                "inter.broker.listener.name is set, too; set only one of them",
            )
        self._check_inter_broker_login()
        if self.replica_fetch_wait_max_ms > self.replica_lag_time_max_ms:
            # Otherwise a follower with nothing to fetch would leave the ISR again and again.
            raise ConfigError(
                "replica.fetch.wait.max.ms",
                self.replica_fetch_wait_max_ms,
                f"it must not be above replica.lag.time.max.ms ({self.replica_lag_time_max_ms})",
            )
        if self.replica_fetch_wait_max_ms > self.replica_socket_timeout_ms:
            raise ConfigError(
                "replica.fetch.wait.max.ms",
                self.replica_fetch_wait_max_ms,
                f"it must not be above replica.socket.timeout.ms ({self.replica_socket_timeout_ms})",
            )

    def _check_inter_broker_login(self) -> None:
        security = self.security_of(self.inter_broker_listener)
        if not security.uses_sasl:
            return
        mechanism = self.sasl_mechanism_inter_broker_protocol
        if mechanism not in security.mechanisms:
            raise ConfigError(
                "sasl.mechanism.inter.broker.protocol",
                mechanism,
                f"brokers use the listener {security.name}, which offers {', '.join(security.mechanisms)}",
            )
        module = security.jaas(mechanism)
        needed = (
            ("unsecuredLoginStringClaim_sub",) if mechanism == "OAUTHBEARER" else ("username", "password")
        )
        if module is None or any(name not in module.options for name in needed):
            raise ConfigError(
                security.jaas_key(mechanism),
                "[hidden]",
                f"this broker needs a login at the other brokers; set {' and '.join(needed)} in it",
            )
        if mechanism == "OAUTHBEARER" and security.checks_signatures(mechanism):
            raise ConfigError(
                "sasl.mechanism.inter.broker.protocol",
                mechanism,
                "a broker cannot get signed tokens; let brokers use another mechanism",
            )

    def _check_listeners(self) -> None:
        listeners = self.parsed_listeners
        if not listeners:
            raise ConfigError("listeners", "", "at least one listener is needed")
        names = [listener.name for listener in listeners]
        if len(set(names)) != len(names):
            raise ConfigError(
                "listeners", ",".join(self.listeners), "each listener must have a name of its own"
            )
        self._check_ports(listeners)
        self._check_protocols(names)
        advertised_names = [advertised.name for advertised in self.parsed_advertised_listeners]
        if len(set(advertised_names)) != len(advertised_names):
            raise ConfigError(
                "advertised.listeners",
                ",".join(advertised_names),
                "a listener has only one address for clients",
            )
        for advertised in self.parsed_advertised_listeners:
            if advertised.name not in names:
                raise ConfigError(
                    "advertised.listeners", advertised, f"no listener is named {advertised.name}"
                )
            if advertised.host == "0.0.0.0":
                raise ConfigError(
                    "advertised.listeners",
                    advertised,
                    "clients cannot connect to 0.0.0.0; name a reachable address, as in "
                    f"advertised.listeners={advertised.name}://HOST:{advertised.port or 9092}",
                )

    def _check_ports(self, listeners: list[Listener]) -> None:
        taken: dict[tuple[str, int], str] = {}
        for listener in listeners:
            other = taken.setdefault((listener.host, listener.port), listener.name)
            if listener.port and other != listener.name:
                raise ConfigError(
                    "listeners", listener, f"{other} has the same port; give each listener a port of its own"
                )

    def _check_protocols(self, names: list[str]) -> None:
        protocols = self._security_protocols()
        for name in names:
            protocol = protocols.get(name)
            if protocol is None:
                raise ConfigError(
                    "listener.security.protocol.map",
                    ",".join(self.listener_security_protocol_map),
                    f"it has no security protocol for the listener {name}; add {name}:SSL, for example",
                )
            if protocol not in _PROTOCOLS:
                raise ConfigError(
                    "listener.security.protocol.map",
                    f"{name}:{protocol}",
                    f"security protocol {protocol} is not supported; use {', '.join(_PROTOCOLS)}",
                )
        if self.serves_metrics_by_tls:
            self._check_endpoint(names)
        check_prefixes(self.originals, self.secured_names, self.controller_listener_names)
        for name in names:
            self.security_of(name).check()

    def _check_endpoint(self, names: list[str]) -> None:
        """The endpoint for metrics is no listener: of a listener's options it has only those of TLS."""
        if ENDPOINT in names:
            reason = f"{ENDPOINT} is the name of the endpoint for metrics; give the listener another name"
            raise ConfigError("listeners", ",".join(self.listeners), reason)
        for name in self.originals:
            parts = split_name(name)
            if parts is not None and parts.listener == ENDPOINT and not parts.key.startswith("ssl."):
                reason = (
                    "the endpoint for metrics has only options that begin with listener.name.metrics.ssl."
                )
                raise ConfigError(name, "[hidden]", reason)

    @property
    def secured_names(self) -> list[str]:
        """The names that `security_of` accepts: the listeners, and the endpoint for metrics if it uses TLS."""
        names = [listener.name for listener in self.parsed_listeners]
        return [*names, ENDPOINT] if self.serves_metrics_by_tls else names

    def security_of(self, listener: str) -> ListenerSecurity:
        """The security settings of a listener or of the endpoint for metrics."""
        is_endpoint = listener == ENDPOINT and self.serves_metrics_by_tls
        protocol = "SSL" if is_endpoint else self._security_protocols()[listener]
        return listener_security(listener, protocol, self.originals, self.working_directory)

    @property
    def creation_rates(self) -> dict[str, int]:
        """`max.connection.creation.rate` of each listener: its own, or else that of the broker."""
        return self._limits_of_listeners(CREATION_RATE, self.max_connection_creation_rate)

    @property
    def listener_max_connections(self) -> dict[str, int]:
        """`max.connections` of each listener, which is without limit if it has none of its own."""
        return self._limits_of_listeners(MAX_CONNECTIONS, INT_MAX)

    @property
    def privileged_listener(self) -> str | None:
        """The listener that limits of all listeners together do not concern: that of brokers, if there are others."""
        return self.inter_broker_listener if len(self.parsed_listeners) > 1 else None

    def _limits_of_listeners(self, limit: Option, default: int) -> dict[str, int]:
        limits = dict.fromkeys((found.name for found in self.parsed_listeners), default)
        for name, text in self.originals.items():
            parts = split_name(name)
            if parts is not None and parts.key == limit.name:
                limits[parts.listener] = int(text)
        return limits

    def _security_protocols(self) -> dict[str, str]:
        protocols = {}
        for entry in self.listener_security_protocol_map:
            name, colon, protocol = entry.partition(":")
            if not colon:
                raise ConfigError("listener.security.protocol.map", entry, "expected NAME:PROTOCOL")
            protocols[name.strip().upper()] = protocol.strip().upper()
        return protocols


# If it is not set, Kafka uses `log.flush.scheduler.interval.ms` instead.
_WITHOUT_DEFAULT = frozenset(("log.flush.interval.ms",))


def _no_retention_fault(value: int) -> str | None:
    # As in Kafka: only a topic may ask for it, since it would empty every topic of the cluster.
    return "it must be -1 (without limit), or 1 or more" if value == 0 else None


def _topic_synonym_options() -> dict[str, Option]:
    """Returns the broker options that set the default of a topic option.

    Of options that set the same time in several units, the one with the finest unit can be changed at run time, and
    the one with the coarsest unit has the default.
    """
    found: dict[str, Option] = {}
    for topic_option in TOPIC_OPTIONS.values():
        for name, factor in topic_option.synonyms:
            best, coarsest = (name == topic_option.synonyms[index][0] for index in (0, -1))
            has_default = coarsest and name not in _WITHOUT_DEFAULT
            in_units = topic_option.default
            if factor != 1 and isinstance(in_units, int):
                in_units //= factor
            found[name] = dataclasses.replace(
                topic_option,
                name=name,
                default=in_units if has_default else None,
                scope=Scope.CLUSTER_WIDE if best else Scope.READ_ONLY,
                synonyms=(),
                kind=topic_option.kind if factor == 1 else Kind.INT,
                internal_check=_no_retention_fault
                if topic_option.attribute == "retention_ms"
                else topic_option.internal_check,
            )
    return found


_OWN_OPTIONS: dict[str, Option] = options_of(BrokerConfig)
_SYNONYM_OPTIONS: dict[str, Option] = {
    name: dataclasses.replace(declared, name=name, synonyms=())
    for declared in _OWN_OPTIONS.values()
    for name, _ in declared.synonyms
}
BROKER_OPTIONS: dict[str, Option] = {**_OWN_OPTIONS, **_SYNONYM_OPTIONS, **_topic_synonym_options()}
"""Every option of a broker, by name."""


def directory_text(directory: Path) -> str:
    """The absolute path of one directory as a value of log.dirs. Raises `ConfigError`."""
    path = str(directory.absolute())
    if "," in path:
        raise ConfigError(
            "log.dirs", path, "a directory's path must have no comma, which separates directories"
        )
    return path


def _is_secret(name: str) -> bool:
    option = find_option(name)
    return option is not None and option.kind is Kind.PASSWORD


def find_option(name: str) -> Option | None:
    """The declaration of an option of a broker, also of one with a listener's prefix."""
    return BROKER_OPTIONS.get(name) or prefixed_option(name)


def _checked_prefixed(properties: Mapping[str, str]) -> dict[str, str]:
    """Returns the options that have a listener's prefix. Raises `ConfigError` for a wrong value."""
    found = {}
    for name, text in properties.items():
        if (option := prefixed_option(name)) is not None:
            option.parse(text)
            found[name] = text
    return found


def _resolve_synonyms(known: Mapping[str, str]) -> dict[str, str]:
    """Returns the texts by the primary name of their option (`node.id` for `broker.id`)."""
    resolved = {name: text for name, text in known.items() if name in _OWN_OPTIONS}
    for declared in _OWN_OPTIONS.values():
        for name, _ in declared.synonyms:
            if name in known and declared.name not in resolved:
                resolved[declared.name] = known[name]
    return resolved


def _topic_overrides(known: Mapping[str, str]) -> dict[str, OptionValue]:
    overrides: dict[str, OptionValue] = {}
    for topic_option in TOPIC_OPTIONS.values():
        for name, factor in topic_option.synonyms:
            if name in known:
                value = BROKER_OPTIONS[name].parse(known[name])
                # -1 means 'no limit' in every unit, so it is not converted.
                if factor != 1 and isinstance(value, int) and value > 0:
                    value *= factor
                overrides[topic_option.attribute] = value
                break
    return overrides
