"""Broker options in environment variables, as the container images of Kafka take them.

    KAFKA_NODE_ID=1                                     node.id=1
    KAFKA_LISTENER_NAME_SASL__SSL_SSL_CLIENT_AUTH=none  listener.name.sasl_ssl.ssl.client.auth=none
    KAFKA_CFG_NODE_ID=1                                 node.id=1, in Bitnami's image

Keeps true: a variable is an option, or is named in `unread` or in an error; only those that concern a Java machine are
            dropped without a word. No value is in an error.
How: in the images of Apache Kafka and Confluent `_` stands for a dot, `__` for `_` and `___` for a dash; in Bitnami's,
    each `_` for a dot, except in the names of the protocols. A value is read as in a file of properties, to which the
    scripts of these images write it. As these scripts do, `listeners` are derived from `advertised.listeners`, stores
    and passwords are read from the directory of secrets, and logins from the JAAS file that `KAFKA_OPTS` names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from felice.config.broker import BROKER_OPTIONS
from felice.config.jaas import BadJaas, JaasModule, format_jaas, parse_jaas_file
from felice.config.kafka_only import is_kafkas, nearest
from felice.config.properties import parse_properties
from felice.dataclass import dataclass

PREFIX = "KAFKA_"
_BITNAMI = "KAFKA_CFG_"
SECRETS = "/etc/kafka/secrets"
_JAAS_FILE = "java.security.auth.login.config"
_JAAS_PROPERTY = re.compile(rf"-D{re.escape(_JAAS_FILE)}=(\S+)")
# They tune a Java machine, or describe an image or a service of Kubernetes that is called kafka.
_NO_OPTION = re.compile(
    "KAFKA_(OPTS|HEAP_OPTS|JVM_PERFORMANCE_OPTS|GC_LOG_OPTS|JMX_OPTS|JMX_PORT|JMX_HOSTNAME|VERSION|HOME"
    r"|SERVICE_HOST|SERVICE_PORT(_.*)?|PORT|PORT_\d+_TCP.*)"
)
# From these, scripts of Bitnami's image write logins and stores. A broker without them would let in other clients.
_OF_BITNAMIS_SCRIPTS = re.compile(
    "KAFKA_((CLIENT|INTER_BROKER|CONTROLLER|ZOOKEEPER)_(USERS?|PASSWORDS?)|CERTIFICATE_PASSWORD|TLS_TYPE|TLS_CLIENT_AUTH)"
)
# The variable that names a file, and the option that gets its path or, if it holds a password, its text.
_SECRETS = {
    "KAFKA_SSL_KEYSTORE_FILENAME": ("ssl.keystore.location", False),
    "KAFKA_SSL_KEYSTORE_CREDENTIALS": ("ssl.keystore.password", True),
    "KAFKA_SSL_KEY_CREDENTIALS": ("ssl.key.password", True),
    "KAFKA_SSL_TRUSTSTORE_FILENAME": ("ssl.truststore.location", False),
    "KAFKA_SSL_TRUSTSTORE_CREDENTIALS": ("ssl.truststore.password", True),
}
_LOGIN_MODULES = {
    "PLAIN": "PlainLoginModule",
    "SCRAM-SHA-256": "ScramLoginModule",
    "SCRAM-SHA-512": "ScramLoginModule",
    "OAUTHBEARER": "OAuthBearerLoginModule",
}


class BadVariable(ValueError):
    """A variable that cannot be read. The text names it and says what to do."""


@dataclass(frozen=True, slots=True)
class ImageVariables:
    """The options that variables give, and the variables that are set and have no effect."""

    properties: dict[str, str]
    unread: tuple[str, ...]
    jaas_file: str | None = None


def option_of(variable: str) -> str:
    """The name of the option for which a variable stands."""
    if variable.startswith(_BITNAMI):
        name = variable.removeprefix(_BITNAMI).lower().replace("_", ".")
        name = name.replace("sasl.ssl", "sasl_ssl").replace("sasl.plaintext", "sasl_plaintext")
    else:
        name = variable.removeprefix(PREFIX).lower().replace("_", ".")
    name = name.replace("...", "-").replace("..", "_")
    return "zookeeper.clientCnxnSocket" if name == "zookeeper.clientcnxnsocket" else name


def options_set(variables: Iterable[str]) -> list[str]:
    """The variables, in the order of their names, that stand for an option of brokers."""
    return sorted(name for name in variables if name.startswith(PREFIX) and option_of(name) in BROKER_OPTIONS)


def read_variables(
    variables: Mapping[str, str], text_of: Callable[[str], str], secrets: str = SECRETS
) -> ImageVariables:
    """Translates variables. `text_of` reads a file and may raise OSError or ValueError. Raises `BadVariable`."""
    # KAFKA_CFG_LISTENERS has precedence over KAFKA_LISTENERS, as in Bitnami's image.
    names = sorted(
        (name for name in variables if name.startswith(PREFIX)),
        key=lambda name: (name.startswith(_BITNAMI), name),
    )
    properties: dict[str, str] = {}
    unread = []
    for name in names:
        if _OF_BITNAMIS_SCRIPTS.fullmatch(name) and variables[name]:
            raise BadVariable(
                f"{name} is for the scripts of Bitnami's image, which write logins and stores from it; set Kafka's "
                "options instead, such as listener.name.NAME.plain.sasl.jaas.config or ssl.keystore.password"
            )
        if name in _SECRETS:
            option, is_password = _SECRETS[name]
            path = f"{secrets}/{variables[name]}"
            properties[option] = _secret(name, path, text_of) if is_password else path
        elif not _NO_OPTION.fullmatch(name):
            option = option_of(name)
            if option in BROKER_OPTIONS or is_kafkas(option):
                properties[option] = _value(name, variables[name])
            elif variables[name]:
                unread.append(
                    name if (meant := nearest(option)) is None else f"{name} (did you mean {meant}?)"
                )
    jaas = _JAAS_PROPERTY.search(variables.get("KAFKA_OPTS", ""))
    return ImageVariables(properties, tuple(unread), None if jaas is None else jaas[1])


def with_variables(
    base: Mapping[str, str],
    found: ImageVariables,
    over: Mapping[str, str],
    text_of: Callable[[str], str],
) -> dict[str, str]:
    """The properties of a broker: of a file (`base`), then of variables, then of the command line (`over`).

    Adds the options that the scripts of the images derive. Raises `BadVariable`.
    """
    properties = {**base, **found.properties, **over}
    if "listeners" not in properties and properties.get("advertised.listeners"):
        # Clients know the ports of these addresses. A host may be an IPv6 address in brackets.
        properties["listeners"] = re.sub(
            r"://(\[[^]]*\]|[^:,]*):", "://0.0.0.0:", properties["advertised.listeners"]
        )
    if found.jaas_file is not None:
        _add_logins(properties, found.jaas_file, text_of)
    return properties


def _value(name: str, text: str) -> str:
    """The value as it would be in a file of properties. A line break is part of it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadVariable(f"{name} is not text in UTF-8") from None
    # A backslash at the end of a line continues it in both.
    one_line = re.sub(r"(?<!\\)((?:\\\\)*)\r?\n", r"\1\\n", text.rstrip("\r\n"))
    try:
        return parse_properties(f"value={one_line}").get("value", "")
    except ValueError as error:
        raise BadVariable(f"{name}: {str(error).removeprefix('value: ')}") from None


def _secret(name: str, path: str, text_of: Callable[[str], str]) -> str:
    return _text(f"{name} names {path}", path, text_of).rstrip("\r\n")


def _text(named: str, path: str, text_of: Callable[[str], str]) -> str:
    try:
        return text_of(path)
    except OSError as error:
        raise BadVariable(f"{named}: {error.strerror or error}") from None
    except ValueError:
        raise BadVariable(f"{named}: it is not text in UTF-8") from None


def _add_logins(properties: dict[str, str], path: str, text_of: Callable[[str], str]) -> None:
    """Adds the login modules of a JAAS file to listeners that have none of their own, as Kafka uses this file."""
    named = f"KAFKA_OPTS names {path}"
    try:
        sections = parse_jaas_file(_text(named, path, text_of))
    except BadJaas as error:
        raise BadVariable(f"{named}: {error}") from None
    for name in _sasl_listeners(properties):
        modules = sections.get(f"{name}.KafkaServer") or sections.get("KafkaServer", ())
        mechanisms = properties.get(
            f"listener.name.{name}.sasl.enabled.mechanisms", properties.get("sasl.enabled.mechanisms", "")
        )
        for mechanism in map(str.strip, mechanisms.split(",")):
            module = _module_of(mechanism, modules)
            if module is not None:
                key = f"listener.name.{name}.{mechanism.lower()}.sasl.jaas.config"
                properties.setdefault(key, format_jaas(module))
    if "Client" in sections and properties.get("zookeeper.connect"):
        properties.setdefault(_JAAS_FILE, path)


def _sasl_listeners(properties: Mapping[str, str]) -> list[str]:
    """The names, in lower case, of the listeners whose protocol has a login."""
    pairs = (
        pair.partition(":")
        for pair in properties.get("listener.security.protocol.map", "").upper().split(",")
    )
    protocols = {name.strip(): protocol.strip() for name, _, protocol in pairs}
    names = [part.partition("://")[0].strip().upper() for part in properties.get("listeners", "").split(",")]
    return [name.lower() for name in names if protocols.get(name, name).startswith("SASL_")]


def _module_of(mechanism: str, modules: Iterable[JaasModule]) -> JaasModule | None:
    wanted = _LOGIN_MODULES.get(mechanism)
    return next((module for module in modules if module.name == wanted), None)
