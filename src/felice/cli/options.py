"""Options that many commands share, and the clients that these options configure."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from felice.cli.faults import Fault, describe_kafka

if TYPE_CHECKING:
    import ssl

    from felice.client import KafkaError
    from felice.client.admin import AdminClient

F = TypeVar("F", bound=Callable[..., object])
K = TypeVar("K")
T = TypeVar("T")

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"

bootstrap_option = click.option(
    "--bootstrap-server",
    "-b",
    "bootstrap",
    default=DEFAULT_BOOTSTRAP,
    envvar="FELICE_BOOTSTRAP_SERVER",
    show_default=True,
    metavar="HOST:PORT,…",
    help="Brokers to connect to first.",
)
command_config_option = click.option(
    "--command-config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A file of client properties.",
)
host_option = click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on; with 127.0.0.1 only this machine can connect.",
)


def port_option(default: int) -> Callable[[F], F]:
    """`--port` of a server that listens on this port by default."""
    return click.option(
        "--port",
        type=click.IntRange(0, 65_535),
        default=default,
        show_default=True,
        help="Port to listen on; 0 picks a free port.",
    )


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


# The default of Java's delivery.timeout.ms, which Kafka's tools have; that of librdkafka is five minutes.
_DELIVERY_TIMEOUT_MS = 120_000
_DELIVERY_KEYS = ("message.timeout.ms", "delivery.timeout.ms")


def delivery_limit(config: Mapping[str, object]) -> dict[str, object]:
    """The time after which a tool's producer gives a record up, unless `config` sets it, or a transaction limits it."""
    is_set = any(key in config for key in (*_DELIVERY_KEYS, "transactional.id"))
    return {} if is_set else {_DELIVERY_KEYS[0]: _DELIVERY_TIMEOUT_MS}


def connection_options(command: F) -> F:
    """Adds the options that say which cluster to connect to."""
    return functools.reduce(
        lambda wrapped, add: add(wrapped), (command_config_option, bootstrap_option), command
    )


def client_config(
    bootstrap: str, command_config: Path | None, extra: Iterable[str] = ()
) -> dict[str, object]:
    """The configuration of a client: the file's properties, then `extra` (key=value), then the address."""
    return {**client_properties(command_config, extra), "bootstrap.servers": bootstrap}


def client_properties(command_config: Path | None, extra: Iterable[str] = ()) -> dict[str, str]:
    """The properties of a file, then `extra` (key=value), with the values to which references in them refer, and Java's
    keys converted."""
    properties = read_properties(command_config) if command_config else {}
    properties |= key_values(extra)
    return _for_our_client(_resolved(properties))


def _for_our_client(properties: dict[str, str]) -> dict[str, str]:
    from felice.client.error import KafkaException
    from felice.client.java_keys import convert_java_keys

    try:
        found, without_effect = convert_java_keys(properties)
    except KafkaException as error:
        raise Fault(error.error.str()) from None
    for name in without_effect:
        click.echo(f"warning: configuration property {name!r} is accepted, but has no effect here", err=True)
    return found


def _resolved(properties: dict[str, str]) -> dict[str, str]:
    if not any("${" in text or name.startswith("config.providers") for name, text in properties.items()):
        return properties
    from felice.config.references import resolve, without_providers
    from felice.env.variables import SystemSources

    return without_providers(resolve(properties, SystemSources(), _is_secret).properties)


def form_properties(file: Path | None, extra: Iterable[str]) -> dict[str, str]:
    """The properties of a file, then `extra` (key=value), for how lines become records or records become lines."""
    return {**(read_properties(file) if file else {}), **key_values(extra)}


def _is_secret(name: str) -> bool:
    return any(part in name for part in ("password", "secret", "jaas", "ssl.key", ".pem"))


def read_properties(path: Path) -> dict[str, str]:
    """A file of `key=value` lines in Kafka's format."""
    from felice.config import parse_properties

    try:
        return parse_properties(read_text(path))
    except ValueError as error:
        raise Fault(f"{path}: {error}") from None


def tls_of_clients(properties: Mapping[str, str]) -> ssl.SSLContext | None:
    """The TLS of a client with these `ssl.*` properties, by the names of Kafka's clients."""
    from felice.client.java_keys import convert_java_keys
    from felice.client.options import AdminSettings

    converted, _ = convert_java_keys(properties)
    settings = AdminSettings.parse({**converted, "security.protocol": "ssl", "bootstrap.servers": "unused"})
    return settings.security.tls


def read_text(path: Path) -> str:
    """The text of a file, without a byte order mark; raises `Fault` if it is not UTF-8."""
    data = path.read_bytes()
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise Fault(
            f"{path} is not text in UTF-8: {error.reason} in line {line}, at byte {error.start}"
        ) from None


def quiet_logger() -> logging.Logger:
    """A logger for clients of commands that print errors themselves: a log line would repeat the reason.

    The client only logs why it waits for a coordinator, and which properties have no effect: these lines are still
    printed.
    """
    logger = logging.getLogger("felice.cli.client")
    if not logger.disabled:
        logger.disabled = True
        from felice.client.net.waiting import WAITING_LOGGER
        from felice.client.options import CONFIGURATION_LOGGER

        for name in (WAITING_LOGGER, CONFIGURATION_LOGGER):
            logger.getChild(name).addHandler(_Teller())
    return logger


class _Teller(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        click.echo(record.getMessage(), err=True)


def tell_of_waiting(error: KafkaError) -> None:
    """Prints an error that may pass: no broker can be reached, or a topic does not exist yet."""
    click.echo(f"waiting: {describe_kafka(error)}", err=True)


def admin_client(
    bootstrap: str, command_config: Path | None, settings: Mapping[str, object] | None = None
) -> AdminClient:
    """An admin client that is closed when the command ends; `settings` override the file's."""
    from felice.client.admin import AdminClient

    admin = AdminClient({**client_config(bootstrap, command_config), **(settings or {})})
    click.get_current_context().call_on_close(admin.close)
    return admin


def key_values(texts: Iterable[str]) -> dict[str, str]:
    """Reads `key=value` texts as a dictionary."""
    found = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator or not key:
            raise Fault(f"expected key=value, got {text!r}")
        found[key.strip()] = value
    return found


def broker_ids(text: str) -> list[int]:
    """Reads `1,2,3` as broker ids."""
    try:
        return [int(number) for number in text.split(",")]
    except ValueError:
        raise Fault(f"expected broker ids with commas between them, got {text!r}") from None


def wait_all(futures: dict[K, Future[T]]) -> dict[K, T]:
    """The results of an admin call by their keys. Raises the first failure, with its key."""
    return {name: future.result() for name, future in futures.items()}


def form_of(kind: type[T], properties: Mapping[str, str], but: Iterable[str] = ()) -> T:
    """Reads properties such as `parse.key=true` as a dataclass, all of whose fields but some are properties; raises
    `Fault` for an unknown name."""
    defaults = {
        field.name: field.default
        for field in fields(kind)  # type: ignore[arg-type]
        if field.name not in but
    }
    values: dict[str, object] = {}
    for name, text in properties.items():
        attribute = name.replace(".", "_")
        if attribute not in defaults:
            known = ", ".join(declared.replace("_", ".") for declared in defaults)
            raise Fault(f"unknown property {name}; there are {known}")
        values[attribute] = text.lower() == "true" if isinstance(defaults[attribute], bool) else text
    return kind(**values)
