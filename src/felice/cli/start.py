"""Starting a broker: with nothing but a directory, or from Kafka's own configuration file."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from felice.cli.faults import Fault
from felice.cli.options import key_values, read_properties
from felice.config import BrokerConfig, Listener
from felice.config.kafka_only import is_kafkas, nearest

if TYPE_CHECKING:
    from felice.server.broker import Broker
    from felice.server.local_cluster import LocalCluster

F = TypeVar("F", bound=Callable[..., object])

_EACH_BROKERS_OWN = frozenset(
    ("node.id", "broker.id", "listeners", "advertised.listeners", "log.dirs", "log.dir")
)

_READY = "Felice is ready on "

LEVELS = click.Choice(["debug", "info", "warning", "error"])

log_format_option = click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Format of log lines on standard error.",
)


@click.command()
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on; with 127.0.0.1 only this machine can connect.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=9092,
    show_default=True,
    help="Port to listen on; 0 picks a free port.",
)
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("felice-data"),
    show_default=True,
    help="Directory for records and metadata; created if missing.",
)
@click.option(
    "--brokers",
    type=click.IntRange(1, 100),
    help="Number of brokers in one process, on consecutive ports, each with a directory DIR/broker-N.",
)
@click.option(
    "--processes",
    type=click.IntRange(1, 100),
    help="As --brokers, with a process for each broker: uses several cores.",
)
@click.option(
    "--option",
    "-o",
    "options",
    multiple=True,
    metavar="KEY=VALUE",
    help="A broker option; may be repeated.",
)
@log_format_option
@click.option(
    "--log-level", type=LEVELS, default="warning", show_default=True, help="Least severe level to log."
)
# Used by --processes: the child's connection to the metadata store of the parent.
@click.option("--store-descriptor", type=int, hidden=True)
def start(
    host: str,
    port: int,
    data_dir: Path,
    brokers: int | None,
    processes: int | None,
    options: tuple[str, ...],
    log_format: str,
    log_level: str,
    store_descriptor: int | None,
) -> None:
    """Start one or more brokers with an embedded metadata store.

    \b
    felice start
    felice start --brokers 3
    felice start --processes 4
    felice start --port 0 --data-dir /tmp/data -o num.partitions=3

    Clients do not authenticate by default, so it listens on this machine only
    (see --host). Ctrl-C stops it; its data stays.
    """
    from felice.server.local_cluster import LocalCluster, local_settings

    if brokers is not None and processes is not None:
        raise Fault("--brokers puts all into one process and --processes each into its own; choose one")
    if (count := brokers or processes) is not None:
        _configure_logs(log_format, log_level)
        # --brokers and --processes use the same settings, so that a cluster can be started either way.
        cluster = LocalCluster(data_dir, count, host, port, _shared_options(key_values(options)))
        _warn_of_open(cluster.config(1))
        if brokers is not None:
            _run_cluster(cluster, host)
        else:
            _run_processes(cluster, data_dir, host, log_format, log_level)
        return
    listener = Listener("PLAINTEXT", host, port)
    properties = {"listeners": str(listener), "log.dirs": str(data_dir), **local_settings(1)}
    given = key_values(options)
    _run({**properties, **given}, given, log_format, log_level, store_descriptor)


def server_options(command: F) -> F:
    """Adds the arguments of a command that starts a broker from a file."""
    return functools.reduce(
        lambda wrapped, add: add(wrapped),
        (
            click.option(
                "--log-level",
                type=LEVELS,
                default="info",
                show_default=True,
                help="Least severe level to log.",
            ),
            log_format_option,
            click.option(
                "--override",
                "overrides",
                multiple=True,
                metavar="KEY=VALUE",
                help="Overrides the file; may be repeated.",
            ),
            click.argument("properties_file", type=click.Path(exists=True, dir_okay=False, path_type=Path)),
        ),
        command,
    )


@click.command()
@server_options
def broker(properties_file: Path, overrides: tuple[str, ...], log_format: str, log_level: str) -> None:
    """Start a broker from a server.properties file in Kafka's own keys.

    \b
    felice broker server.properties --override num.partitions=3
    """
    run_from_file(properties_file, overrides, log_format, log_level)


def run_from_file(properties_file: Path, overrides: Iterable[str], log_format: str, log_level: str) -> None:
    """Runs a broker with the options of a file. Options of the command line override them."""
    over = key_values(overrides)
    _run({**read_properties(properties_file), **over}, over, log_format, log_level)


def _run(
    properties: dict[str, str],
    given: Collection[str],
    log_format: str,
    log_level: str,
    store_descriptor: int | None = None,
) -> None:
    """Runs a broker until it is stopped. `given` are the properties that the command line sets."""
    from felice.env import SystemClock
    from felice.server.running import run
    from felice.server.store_sources import InheritedSource

    _configure_logs(log_format, log_level)
    source = None if store_descriptor is None else InheritedSource(store_descriptor, SystemClock())
    config, unknown = BrokerConfig.parse(properties)
    _refuse_quorum(properties, config)
    _refuse_slips(name for name in unknown if name in given)
    _warn_of(unknown)
    _warn_of_open(config)
    run(config, on_ready=_say_ready, store_source=source)


def _run_cluster(cluster: LocalCluster, host: str) -> None:
    from felice.server.running import run_cluster

    def say_ready() -> None:
        """Prints where the brokers listen."""
        listeners = (str(Listener("PLAINTEXT", host, port)) for port in cluster.ports.values())
        click.echo(_READY + ", ".join(listeners))

    run_cluster(cluster, on_ready=say_ready)


def _run_processes(cluster: LocalCluster, data_dir: Path, host: str, log_format: str, log_level: str) -> None:
    """Runs each broker in its own process. Only the settings and ports of `cluster` are used."""
    from felice.env.processes import PYTHON
    from felice.server.process_group import ProcessGroup
    from felice.server.running import run_processes

    def command_of(broker_id: int, descriptor: int) -> list[str]:
        """The command that starts one broker of the cluster."""
        settings, port = (
            {**cluster.properties_of(broker_id), "node.id": str(broker_id)},
            cluster.ports[broker_id],
        )
        return [
            *(PYTHON, "-m", "felice.cli.main", "start", "--host", host, "--port", str(port)),
            *("--data-dir", str(data_dir / f"broker-{broker_id}"), "--store-descriptor", str(descriptor)),
            *("--log-format", log_format, "--log-level", log_level),
            *(word for name, value in settings.items() for word in ("-o", f"{name}={value}")),
        ]

    group = ProcessGroup(data_dir, list(cluster.ports), command_of, _READY, addresses=cluster.addresses)
    run_processes(
        group,
        on_ready=lambda: click.echo(
            _READY + ", ".join(process.addresses for process in group.processes.values())
        ),
    )


def _shared_options(options: dict[str, str]) -> dict[str, str]:
    """Options for all brokers of a cluster. Raises for an option that must differ between brokers."""
    if fixed := sorted(_EACH_BROKERS_OWN.intersection(options)):
        raise Fault(f"{fixed[0]} must differ between brokers; use --host, --port and --data-dir")
    _, unknown = BrokerConfig.parse(options)
    _refuse_slips(unknown)
    _warn_of(unknown)
    return {name: text for name, text in options.items() if name not in unknown}


def _configure_logs(log_format: str, log_level: str) -> None:
    from felice.server.logs import configure_logs

    configure_logs(as_json=log_format == "json", level=getattr(logging, log_level.upper()))


def _refuse_quorum(properties: dict[str, str], config: BrokerConfig) -> None:
    """Refuses a KRaft configuration with several controllers: this broker would start a cluster of its own."""
    for name in ("controller.quorum.voters", "controller.quorum.bootstrap.servers"):
        count = len(properties.get(name, "").split(","))
        if count > 1 and config.zookeeper_connect is None:
            raise Fault(
                f"{name} names {count} controllers; Felice has no KRaft quorum, set zookeeper.connect"
            )


def _warn_of_open(config: BrokerConfig) -> None:
    for listener in config.parsed_listeners:
        security = config.security_of(listener.name)
        is_open = not security.uses_sasl and security.client_auth != "required"
        if listener.host in ("", "0.0.0.0", "::") and is_open:
            click.echo(
                f"warning: {listener} is open to every network, and clients do not authenticate", err=True
            )


def _refuse_slips(unknown: Iterable[str]) -> None:
    """Refuses misspelt options of the command line. (A file may hold options of other programs, as with Kafka.)"""
    if slips := [
        f"{name} (did you mean {meant}?)" for name in unknown if (meant := nearest(name)) is not None
    ]:
        raise Fault(f"unknown option {', '.join(slips)}")


def _warn_of(unknown: Iterable[str]) -> None:
    """Warns of options without effect. Unknown options and Kafka's options get different warnings."""
    kafkas = []
    for name in unknown:
        if is_kafkas(name):
            kafkas.append(name)
            continue
        hint = "" if (meant := nearest(name)) is None else f"; did you mean {meant}?"
        click.echo(f"warning: unknown option {name} has no effect{hint}", err=True)
    if kafkas:
        click.echo(f"warning: these options of Kafka have no effect here: {', '.join(kafkas)}", err=True)


def _say_ready(broker: Broker) -> None:
    where = ", ".join(str(Listener(found.name, found.address.host, found.port)) for found in broker.listeners)
    click.echo(f"{_READY}{where}")
