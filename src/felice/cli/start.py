"""Starting a broker: with nothing but a directory, or from Kafka's own configuration file.

The modules of configuration and broker are imported by the functions: `start` listens before that (`early_listening`).
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from felice.cli.early_listening import listening_early
from felice.cli.faults import Fault
from felice.cli.options import host_option, key_values, port_option, read_properties

if TYPE_CHECKING:
    import socket

    from felice.cli.beside_brokers import RegistryBeside
    from felice.config import BrokerConfig
    from felice.server.broker import Broker
    from felice.server.process.companion import Companion
    from felice.server.process.local_cluster import LocalCluster

F = TypeVar("F", bound=Callable[..., object])

_EACH_BROKERS_OWN = frozenset(
    ("node.id", "broker.id", "listeners", "advertised.listeners", "log.dirs", "log.dir")
)

# A line of the warning about variables names at most so many.
_MAX_VARIABLES = 20

_READY = "Felice is ready on "

LEVELS = click.Choice(["debug", "info", "warning", "error"])

environment_option = click.option(
    "--environment-options",
    "reads_environment",
    is_flag=True,
    help="Also read options from variables KAFKA_…, as the container images of Kafka do.",
)

log_level_option = click.option(
    "--log-level", type=LEVELS, default="warning", show_default=True, help="Least severe level to log."
)
log_format_option = click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Format of log lines on standard error.",
)


@click.command()
@host_option
@port_option(9092)
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
    "--registry",
    "registry_port",
    type=click.IntRange(0, 65_535),
    is_flag=False,
    flag_value=8081,
    metavar="[PORT]",
    help="Also start a schema registry for this machine, at this port.  [default with --registry: 8081]",
)
@click.option(
    "--option",
    "-o",
    "options",
    multiple=True,
    metavar="KEY=VALUE",
    help="A broker option; may be repeated.",
)
@environment_option
@log_format_option
@log_level_option
# Used by --processes: the child's connection to the metadata store of the parent.
@click.option("--store-descriptor", type=int, hidden=True)
def start(
    host: str,
    port: int,
    data_dir: Path,
    brokers: int | None,
    processes: int | None,
    registry_port: int | None,
    options: tuple[str, ...],
    reads_environment: bool,
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
    felice start --registry

    Clients do not authenticate by default, so it listens on this machine only
    (see --host). Ctrl-C stops it; its data stays.
    """
    data_dir = data_dir.absolute()
    if brokers is not None and processes is not None:
        raise Fault("--brokers puts all into one process and --processes each into its own; choose one")
    given = key_values(options)
    # The parent of `--processes` has read the variables and passes all options on.
    all_given = given if store_descriptor is not None else _with_environment({}, given, reads_environment)
    registry = None
    if registry_port is not None:
        registry = _registry(registry_port, brokers or processes or 1, log_format, log_level)
    if brokers is not None or processes is not None:
        _start_cluster(host, port, data_dir, brokers, processes, all_given, log_format, log_level, registry)
        return
    # Clients of a cluster can use its other brokers meanwhile; a configured address may be another one.
    port_ahead = 0 if store_descriptor is not None or "listeners" in all_given else port
    with listening_early(host, port_ahead) as listening:
        from felice.config import Listener, directory_text
        from felice.server.process.local_cluster import local_settings

        listener = Listener("PLAINTEXT", host, port)
        properties = {"listeners": str(listener), "log.dirs": directory_text(data_dir), **local_settings(1)}
        _run(
            {**properties, **all_given},
            given,
            log_format,
            log_level,
            store_descriptor,
            listening,
            registry,
        )


def _registry(port: int, brokers: int, log_format: str, log_level: str) -> RegistryBeside:
    from felice.cli.beside_brokers import RegistryBeside

    return RegistryBeside(port, brokers, log_format, log_level)


def _start_cluster(
    host: str,
    port: int,
    data_dir: Path,
    brokers: int | None,
    processes: int | None,
    given: dict[str, str],
    log_format: str,
    log_level: str,
    registry: RegistryBeside | None,
) -> None:
    """Runs several brokers. --brokers and --processes use the same settings: a cluster can be started in either way."""
    from felice.server.process.local_cluster import LocalCluster

    _configure_logs(log_format, log_level)
    cluster = LocalCluster(data_dir, brokers or processes or 1, host, port, _shared_options(given))
    _warn_of_open(cluster.config(1))
    if brokers is not None:
        _run_cluster(cluster, host, registry)
    else:
        _run_processes(cluster, data_dir, host, log_format, log_level, registry)


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
            environment_option,
            click.option(
                "--override",
                "overrides",
                multiple=True,
                metavar="KEY=VALUE",
                help="Overrides the file; may be repeated.",
            ),
            click.argument(
                "properties_file",
                required=False,
                type=click.Path(exists=True, dir_okay=False, path_type=Path),
            ),
        ),
        command,
    )


@click.command()
@server_options
def broker(
    properties_file: Path | None,
    overrides: tuple[str, ...],
    reads_environment: bool,
    log_format: str,
    log_level: str,
) -> None:
    """Start a broker from a server.properties file in Kafka's own keys.

    \b
    felice broker server.properties --override num.partitions=3
    KAFKA_NODE_ID=3 felice broker --environment-options server.properties
    """
    run_from_file(properties_file, overrides, log_format, log_level, reads_environment=reads_environment)


def run_from_file(
    properties_file: Path | None,
    overrides: Iterable[str],
    log_format: str,
    log_level: str,
    *,
    reads_environment: bool = False,
) -> None:
    """Runs a broker with the options of a file, then of variables, then of the command line: the last ones hold."""
    if properties_file is None and not reads_environment:
        raise Fault("name a file of options, or give --environment-options")
    over = key_values(overrides)
    of_file = {} if properties_file is None else read_properties(properties_file)
    _run(_with_environment(of_file, over, reads_environment), over, log_format, log_level)


def _with_environment(
    base: Mapping[str, str], over: Mapping[str, str], reads_environment: bool
) -> dict[str, str]:
    """The options of a file, of variables and of the command line. Warns of variables that have no effect."""
    from felice.env.variables import SystemSources, all_variables

    variables = all_variables()
    if not any(name.startswith("KAFKA_") for name in variables):
        return {**base, **over}
    from felice.config import image_variables as images

    if not reads_environment:
        if ignored := images.options_set(variables):
            _warn_of_variables("set and not read; --environment-options reads them", ignored)
        return {**base, **over}

    def text_of(path: str) -> str:
        return SystemSources().text_of(Path(path))

    try:
        found = images.read_variables(variables, text_of)
        properties = images.with_variables(base, found, over, text_of)
    except images.BadVariable as error:
        raise Fault(str(error)) from None
    if found.unread:
        _warn_of_variables("set and name no option of brokers", found.unread)
    return properties


def _warn_of_variables(why: str, names: Sequence[str]) -> None:
    more = len(names) - _MAX_VARIABLES
    shown = ", ".join(names[:_MAX_VARIABLES]) + (f" and {more} more" if more > 0 else "")
    click.echo(f"warning: variables of the environment are {why}: {shown}", err=True)


def _run(
    properties: dict[str, str],
    given: Collection[str],
    log_format: str,
    log_level: str,
    store_descriptor: int | None = None,
    listening: Iterable[socket.socket] = (),
    registry: RegistryBeside | None = None,
) -> None:
    """Runs a broker until it is stopped. `given` are the properties that the command line sets."""
    from felice.config import BrokerConfig
    from felice.config.kafka_only import why_no_broker
    from felice.env import Environment, SystemClock
    from felice.env.variables import SystemSources
    from felice.server.membership.store_sources import InheritedSource
    from felice.server.process.running import run

    _configure_logs(log_format, log_level)
    source = None if store_descriptor is None else InheritedSource(store_descriptor, SystemClock())
    if (reason := why_no_broker(properties)) is not None:
        raise Fault(reason)
    config, unknown = BrokerConfig.parse(properties, sources=SystemSources())
    _refuse_slips(name for name in unknown if name in given)
    _warn_of(unknown)
    _warn_of_open(config)
    if registry is not None:
        registry.find_listener(config)

    def on_ready(broker: Broker) -> None:
        """Prints where the broker listens, and tells the registry."""
        _say_ready(broker)
        if registry is not None:
            registry.ports = {found.name: found.port for found in broker.listeners}

    run(
        config,
        on_ready=on_ready,
        store_source=source,
        env=Environment.system(listening),
        companion=None if registry is None else registry.companion(),
    )


def _run_cluster(cluster: LocalCluster, host: str, registry: RegistryBeside | None) -> None:
    from felice.config import Listener
    from felice.server.process.running import run_cluster

    def say_ready() -> None:
        """Prints where the brokers listen."""
        listeners = (str(Listener("PLAINTEXT", host, port)) for port in cluster.ports.values())
        click.echo(_READY + ", ".join(listeners))
        if registry is not None:
            registry.ports = {"PLAINTEXT": next(iter(cluster.ports.values()))}

    run_cluster(cluster, on_ready=say_ready, companion=_companion(registry, cluster))


def _companion(registry: RegistryBeside | None, cluster: LocalCluster) -> Companion | None:
    if registry is None:
        return None
    registry.find_listener(cluster.config(1))
    return registry.companion()


def _run_processes(
    cluster: LocalCluster,
    data_dir: Path,
    host: str,
    log_format: str,
    log_level: str,
    registry: RegistryBeside | None,
) -> None:
    """Runs each broker in its own process. Only the settings and ports of `cluster` are used."""
    from felice.env.processes import PYTHON
    from felice.server.process.process_group import ProcessGroup
    from felice.server.process.running import run_processes

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

    def on_ready() -> None:
        """Prints where the brokers listen, and tells the registry."""
        click.echo(_READY + ", ".join(process.addresses for process in group.processes.values()))
        if registry is not None:
            registry.ports = {"PLAINTEXT": next(iter(cluster.ports.values()))}

    run_processes(group, on_ready=on_ready, companion=_companion(registry, cluster))


def _shared_options(options: dict[str, str]) -> dict[str, str]:
    """Options for all brokers of a cluster. Raises for an option that must differ between brokers."""
    from felice.config import BrokerConfig
    from felice.env.variables import SystemSources

    if fixed := sorted(_EACH_BROKERS_OWN.intersection(options)):
        raise Fault(f"{fixed[0]} must differ between brokers; use --host, --port and --data-dir")
    _, unknown = BrokerConfig.parse(options, sources=SystemSources())
    _refuse_slips(unknown)
    _warn_of(unknown)
    return {name: text for name, text in options.items() if name not in unknown}


def _configure_logs(log_format: str, log_level: str) -> None:
    from felice.server.process.logs import configure_logs

    configure_logs(as_json=log_format == "json", level=getattr(logging, log_level.upper()))


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
    from felice.config.kafka_only import nearest

    if slips := [
        f"{name} (did you mean {meant}?)" for name in unknown if (meant := nearest(name)) is not None
    ]:
        raise Fault(f"unknown option {', '.join(slips)}")


def _warn_of(unknown: Iterable[str]) -> None:
    """Warns of options without effect. Unknown options and Kafka's options get different warnings."""
    from felice.config.kafka_only import is_kafkas, nearest

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
    from felice.config import Listener

    where = ", ".join(str(Listener(found.name, found.address.host, found.port)) for found in broker.listeners)
    click.echo(f"{_READY}{where}")
