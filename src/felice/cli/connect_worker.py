"""Starting a worker of Connect, by our command or by the names of Kafka's scripts."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from felice.cli.faults import Fault
from felice.cli.options import key_values, read_properties, read_text
from felice.cli.start import log_format_option, log_level_option
from felice.cli.web_servers import log_as, serve_until_signal, warn_if_open

if TYPE_CHECKING:
    from collections.abc import Mapping

    from felice.env.listening import ServerTls
    from felice.pipelines.connect.configuration.worker_options import WorkerConfig
    from felice.pipelines.connect.herder.worker import Address, Worker
    from felice.pipelines.connect.runtime.tasks import Jobs
    from felice.pipelines.connect.storage.configs import TargetState
    from felice.web.login import Login
    from felice.web.serving import Service, WebServer

F = TypeVar("F", bound=Callable[..., object])

READY = "The Connect worker is ready on "
_HTTPS = "listeners.https."
_INITIAL = ("RUNNING", "PAUSED", "STOPPED")

worker_file = click.argument(
    "worker_file",
    metavar="WORKER.PROPERTIES",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
)
connector_files = click.argument(
    "connector_files",
    metavar="[CONNECTOR.PROPERTIES|CONNECTOR.JSON]...",
    nargs=-1,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
)


mirror_file = click.argument(
    "mirror_file",
    metavar="MIRROR.PROPERTIES",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
)
clusters_option = click.option(
    "--clusters",
    multiple=True,
    metavar="ALIAS",
    help="Run only flows to this cluster, which is the one nearby; may be repeated. Default: all flows.",
)


def worker_options(command: F) -> F:
    """Adds the options of both kinds of workers."""
    for add in (
        log_level_option,
        log_format_option,
        click.option(
            "--override",
            "overrides",
            multiple=True,
            metavar="KEY=VALUE",
            help="An option of the worker instead of the one in its file; may be repeated.",
        ),
    ):
        command = add(command)
    return command


@click.command()
@worker_file
@connector_files
@worker_options
def standalone(
    worker_file: Path,
    connector_files: tuple[Path, ...],
    overrides: tuple[str, ...],
    log_format: str,
    log_level: str,
) -> None:
    """Start a worker that is alone, with the connectors of these files.

    \b
    felice connect standalone worker.properties file-source.properties
    felice connect standalone worker.properties --override listeners=http://127.0.0.1:8084

    The offsets of sources are in the file of offset.storage.file.filename; nothing else is kept. Ctrl-C stops it.
    """
    run_standalone(worker_file, connector_files, overrides, log_format, log_level)


@click.command()
@worker_file
@worker_options
def distributed(worker_file: Path, overrides: tuple[str, ...], log_format: str, log_level: str) -> None:
    """Start a worker that shares its work with the other workers of its group.

    \b
    felice connect distributed worker.properties
    felice connect distributed worker.properties --override listeners=http://10.0.0.5:8083

    Configurations, states and offsets are in topics. Ctrl-C stops it; the others get its work after
    scheduled.rebalance.max.delay.ms.
    """
    run_distributed(worker_file, overrides, log_format, log_level)


@click.command()
@mirror_file
@clusters_option
@worker_options
def mirror(
    mirror_file: Path,
    clusters: tuple[str, ...],
    overrides: tuple[str, ...],
    log_format: str,
    log_level: str,
) -> None:
    """Mirror topics between clusters, as Kafka's MirrorMaker 2 does, by a file like its own.

    \b
    felice mirror mirror.properties
    felice mirror mirror.properties --clusters B --override tasks.max=4

    The file names clusters (clusters=A,B and A.bootstrap.servers=...) and flows (A->B.enabled=true,
    A->B.topics=orders.*).
    Ctrl-C stops it; the next start goes on where this one ended.
    """
    run_mirror(mirror_file, clusters, overrides, log_format, log_level)


def run_standalone(
    worker_file: Path,
    connector_files: Sequence[Path],
    overrides: Sequence[str],
    log_format: str,
    log_level: str,
) -> None:
    """Runs a standalone worker until SIGTERM or SIGINT."""
    from felice.pipelines.connect.herder.server import worker_server
    from felice.pipelines.connect.herder.worker import Worker

    connectors = [_connector(file) for file in connector_files]
    config = _config(worker_file, overrides, distributed=False)

    async def create(worker: Worker) -> None:
        for name, options, state in connectors:
            try:
                await worker.herder.create(name, options, state, waits=False)
            except Exception as error:
                raise Fault(f"connector {name}: {error}") from None

    def made(address: Address, tls: ServerTls | None, login: Login | None) -> WebServer:
        worker = Worker(config, _spark(config), address)
        return worker_server(worker, address, after_start=create, tls=tls, login=login)

    _run(config, made, worker_file, log_format, log_level)


def run_distributed(worker_file: Path, overrides: Sequence[str], log_format: str, log_level: str) -> None:
    """Runs a distributed worker until SIGTERM or SIGINT."""
    from felice.pipelines.connect.herder.distributed import DistributedWorker
    from felice.pipelines.connect.herder.server import worker_server
    from felice.web.forwarding import Forwarder

    config = _config(worker_file, overrides, distributed=True)

    def made(address: Address, tls: ServerTls | None, login: Login | None) -> WebServer:
        worker = DistributedWorker(config, _spark(config), address, Forwarder())
        return worker_server(worker, address, tls=tls, login=login)

    _run(config, made, worker_file, log_format, log_level)


def run_mirror(
    mirror_file: Path, clusters: Sequence[str], overrides: Sequence[str], log_format: str, log_level: str
) -> None:
    """Mirrors until SIGTERM or SIGINT."""
    from felice.pipelines.connect.configuration.mirroring import flows
    from felice.pipelines.connect.herder.mirror import Mirror

    found = flows({**read_properties(mirror_file), **key_values(overrides)})
    if clusters:
        found = [one for one in found if one.target in clusters]
    if not found:
        raise Fault(f"{mirror_file}: no flow to {', '.join(clusters)} is enabled, and none writes heartbeats")

    def tell(name: str, url: str) -> None:
        click.echo(f"The mirror {name} is ready on {url}")

    mirror = Mirror(found, _spark, on_ready=tell)
    _log_as(log_format, log_level, mirror.without_effect)
    serve_until_signal(lambda: (mirror, lambda: None))


def _run(
    config: WorkerConfig,
    made: Callable[[Address, ServerTls | None, Login | None], WebServer],
    worker_file: Path,
    log_format: str,
    log_level: str,
) -> None:
    from felice.pipelines.connect.herder.server import login_of
    from felice.pipelines.connect.herder.worker import Address

    _log_as(log_format, log_level, config.without_effect)
    address = Address(config)
    login = login_of(config)
    warn_if_open("the worker", address.host, login)
    tls = _tls(config, worker_file) if address.scheme == "https" else None

    def started() -> tuple[Service, Callable[[], None]]:
        server = made(address, tls, login)
        return server, lambda: click.echo(READY + server.url)

    serve_until_signal(started)


def _log_as(log_format: str, log_level: str, without_effect: Sequence[str]) -> None:
    log_as(log_format, log_level)
    if without_effect:
        click.echo(f"warning: options without effect: {', '.join(without_effect)}", err=True)


def _config(worker_file: Path, overrides: Sequence[str], *, distributed: bool) -> WorkerConfig:
    from felice.pipelines.connect.configuration.worker_options import worker_config

    given = {**read_properties(worker_file), **key_values(overrides)}
    return worker_config(given, distributed=distributed)


def _spark(config: WorkerConfig) -> Jobs:
    from felice.pipelines.connect.configuration.worker_options import SLOTS
    from felice.pipelines.connect.runtime.spark_tasks import SparkTasks

    return SparkTasks(config.spark, config.values[SLOTS])


def _tls(config: WorkerConfig, worker_file: Path) -> ServerTls | None:
    """The keys of HTTPS: options `listeners.https.ssl.…`, or else `ssl.…` as for clients."""
    from felice.config.option import ConfigError
    from felice.env.key_stores import TlsError
    from felice.web.tls import TLS_OPTIONS, server_tls

    own = {name.removeprefix(_HTTPS): text for name, text in config.given.items() if name.startswith(_HTTPS)}
    options = own or {name: text for name, text in config.given.items() if name in TLS_OPTIONS}
    if not options:
        raise Fault(f"{worker_file}: an https listener needs listeners.https.ssl.keystore.location")
    try:
        return server_tls(options, worker_file.absolute().parent)
    except (ConfigError, TlsError) as error:
        raise Fault(f"{worker_file}: {error}") from None


def _connector(file: Path) -> tuple[str, Mapping[str, str], TargetState | None]:
    """Name, configuration and first state of a connector, from a file of properties or of JSON."""
    config, state = read_connector(file)
    if "name" not in config:
        raise Fault(f"{file}: the connector has no name")
    from felice.pipelines.connect.storage.configs import INITIAL_STATES

    return config["name"], config, None if state is None else INITIAL_STATES[state]


def read_connector(file: Path) -> tuple[dict[str, str], str | None]:
    """The configuration in a file, and the first state if the file has one. JSON has a map, or name and config."""
    text = read_text(file)
    if not text.lstrip().startswith("{"):
        return read_properties(file), None
    try:
        found = json.loads(text)
    except ValueError as error:
        raise Fault(f"{file} is not JSON: {error}") from None
    config, state = found, None
    if isinstance(found.get("config"), dict):
        config, state = found["config"], found.get("initial_state")
        if "name" in found:
            config = {"name": found["name"], **config}
        if state is not None and state not in _INITIAL:
            raise Fault(f"{file}: initial_state must be one of {', '.join(_INITIAL)}, not {state}")
    made = {}
    for name, value in config.items():
        if not isinstance(value, (str, int, float)):
            raise Fault(f"{file}: the option {name} must be a text")
        made[name] = value if isinstance(value, str) else json.dumps(value)
    return made, state
