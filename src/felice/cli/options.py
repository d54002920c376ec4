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
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def connection_options(command: F) -> F:
    """Adds the options that say which cluster to connect to."""
    return functools.reduce(
        lambda wrapped, add: add(wrapped), (command_config_option, bootstrap_option), command
    )


def client_config(
    bootstrap: str, command_config: Path | None, extra: Iterable[str] = ()
) -> dict[str, object]:
    """The configuration of a client: the file's properties, then `extra` (key=value), then the address."""
    config: dict[str, object] = dict(read_properties(command_config)) if command_config else {}
    config.update(key_values(extra))
    config["bootstrap.servers"] = bootstrap
    return config


def read_properties(path: Path) -> dict[str, str]:
    """A file of `key=value` lines in Kafka's format."""
    from felice.config import parse_properties

    return parse_properties(read_text(path))


def read_text(path: Path) -> str:
    """The text of a file; raises `Fault` if it is not UTF-8."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise Fault(f"{path} is not text in UTF-8: {error.reason} at byte {error.start}") from None


def quiet_logger() -> logging.Logger:
    """A logger for clients of commands that print errors themselves: a log line would repeat the reason.

    The client only logs why it waits for a coordinator, so these lines are still printed.
    """
    logger = logging.getLogger("felice.cli.client")
    if not logger.disabled:
        logger.disabled = True
        from felice.client.net.waiting import WAITING_LOGGER

        logger.getChild(WAITING_LOGGER).addHandler(_Teller())
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


def form_of(kind: type[T], properties: Mapping[str, str]) -> T:
    """Reads properties such as `parse.key=true` as a dataclass; raises `Fault` for an unknown name."""
    defaults = {field.name: field.default for field in fields(kind)}  # type: ignore[arg-type]
    values: dict[str, object] = {}
    for name, text in properties.items():
        attribute = name.replace(".", "_")
        if attribute not in defaults:
            known = ", ".join(declared.replace("_", ".") for declared in defaults)
            raise Fault(f"unknown property {name}; there are {known}")
        values[attribute] = text.lower() == "true" if isinstance(defaults[attribute], bool) else text
    return kind(**values)
