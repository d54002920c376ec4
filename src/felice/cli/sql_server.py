"""`felice sql-server`: SQL over topics, with the REST API of ksqlDB."""

from __future__ import annotations

import re
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

import click

from felice.cli.faults import Fault, describe_kafka
from felice.cli.options import (
    client_config,
    connection_options,
    host_option,
    port_option,
    read_properties,
    read_text,
    tls_of_clients,
)
from felice.cli.sql_program import functions_of
from felice.cli.start import log_format_option, log_level_option
from felice.cli.web_servers import (
    log_as,
    login_of,
    serve_until_signal,
    tls_config_option,
    tls_of,
    users_option,
    warn_if_open,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from felice.pipelines.sql.rows.registry import Registry
    from felice.pipelines.sql.server.connect_worker import WorkerAddress
    from felice.web.serving import Service

_READY = "The SQL server is ready on "


@click.command("sql-server")
@connection_options
@host_option
@port_option(8088)
@click.option(
    "--service-id",
    default="default_",
    show_default=True,
    help="Name of the server: the topic with its statements has it in its name.",
)
@click.option("--schema-registry", metavar="URL", help="Registry for AVRO, PROTOBUF and JSON_SR.")
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("felice-sql"),
    show_default=True,
    help="Directory of the state of queries, and of the rows of tables.",
)
@click.option(
    "--master", default="local[*]", show_default=True, help="Spark cluster that runs persistent queries."
)
@click.option(
    "--replication-factor",
    type=click.IntRange(1, 32_767),
    default=3,
    show_default=True,
    help="Replicas of the topic with the statements, if it is created; fewer if there are fewer brokers.",
)
@click.option(
    "--extension-dir",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Directory of Python files with functions of your own.",
)
@click.option(
    "--queries-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Run the statements of this file, and refuse other statements that change something.",
)
@click.option(
    "--property",
    "properties",
    multiple=True,
    metavar="NAME=VALUE",
    help="Setting that statements have unless they SET it, such as auto.offset.reset=earliest; may be repeated.",
)
@click.option(
    "--advertised-url",
    metavar="URL",
    help="Where other servers with this service id reach this one.  [default: the address of --host]",
)
@click.option(
    "--checkpoint",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory of the state of queries; several servers share one.  [default: in --data]",
)
@click.option(
    "--connect-config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File with ksql.connect.url and other options of the Connect worker.  [default: http://localhost:8083]",
)
@users_option
@tls_config_option
@log_format_option
@log_level_option
def sql_server(
    bootstrap: str,
    command_config: Path | None,
    host: str,
    port: int,
    service_id: str,
    schema_registry: str | None,
    data: Path,
    master: str,
    replication_factor: int,
    extension_dir: Path | None,
    queries_file: Path | None,
    properties: tuple[str, ...],
    advertised_url: str | None,
    checkpoint: Path | None,
    connect_config: Path | None,
    users_file: Path | None,
    tls_config: Path | None,
    log_format: str,
    log_level: str,
) -> None:
    """Start a server for SQL, which keeps its statements in a topic, and runs its queries on Spark.

    \b
    felice sql-server
    felice sql-server --bootstrap-server broker1:9092 --schema-registry http://127.0.0.1:8081
    felice sql-server --property auto.offset.reset=earliest --users sql.users
    felice sql-server --queries-file payments.sql

    The server has ksqlDB's REST API, over HTTP/1.1 and HTTP/2. Ctrl-C stops the server, and each query after its batch;
    queries continue at the next start. If several servers have the same service id, one server runs the queries, and
    another takes over when this server ends. Give all servers the same --checkpoint, and each its own --advertised-url.
    """
    try:
        import felice.spark  # noqa: F401
    except ImportError as error:
        raise Fault(f"the SQL server needs Spark: pip install 'felice[spark,sql]' ({error})") from None
    from felice.pipelines.sql.server.on_spark import SparkQueries
    from felice.pipelines.sql.server.server import sql_server as server_of
    from felice.pipelines.sql.server.service import Deployment

    client = client_config(bootstrap, command_config)
    login = login_of(users_file, None)
    warn_if_open("the SQL server", host, login)
    served_tls, leader_tls = tls_of(tls_config, None)
    settings, options = _settings(properties)
    worker, shown = _worker(connect_config, options)
    deployment = Deployment(
        service_id,
        client,
        functions_of(extension_dir),
        settings,
        _registry(schema_registry),
        data.absolute(),
        replication_factor,
        None if queries_file is None else read_text(queries_file),
        worker,
        shown,
    )
    kept = (checkpoint or data / "checkpoint").absolute()
    queries = SparkQueries(service_id, bootstrap, master, kept, client)
    log_as(log_format, log_level)

    def made() -> tuple[Service, Callable[[], None]]:
        server = server_of(
            deployment,
            queries,
            host=host,
            port=port,
            advertised=advertised_url,
            tls=served_tls,
            leader_tls=leader_tls,
            login=login,
        )
        return server, lambda: click.echo(_READY + server.url)

    serve_until_signal(made)


def _settings(given: tuple[str, ...]) -> tuple[dict[str, str], dict[str, str]]:
    """The settings of statements, and the options of the Connect worker."""
    from felice.pipelines.sql.programs import SETTINGS
    from felice.pipelines.sql.server.connect_worker import PREFIX
    from felice.pipelines.sql.settings import KNOWN, TUNING, check_value, is_known, short_name

    found, options = dict(SETTINGS), dict[str, str]()
    for one in given:
        name, sign, value = one.partition("=")
        if not sign:
            raise Fault(f"--property is {one!r}; it must be NAME=VALUE")
        name = short_name(name)
        if name.startswith(PREFIX):
            options[name] = value
            continue
        if not is_known(name):
            like = get_close_matches(name, [*KNOWN, *TUNING], 1)
            raise Fault(
                f"--property: there is no setting {name}{f'; did you mean {like[0]}?' if like else ''}"
            )
        try:
            check_value(name, value)
        except ValueError as error:
            raise Fault(f"--property: {error}") from None
        found[name] = value
    return found, options


def _worker(file: Path | None, more: Mapping[str, str]) -> tuple[WorkerAddress, dict[str, str]]:
    """The Connect worker of a file and of further options, and those options that everyone may see."""
    from felice.client.error import KafkaException
    from felice.pipelines.sql.server.connect_worker import TLS, URL, WorkerAddress, shown_options

    options = {**({} if file is None else read_properties(file)), **more}
    of_tls = {
        f"ssl.{name.removeprefix(TLS)}": value for name, value in options.items() if name.startswith(TLS)
    }
    where = "--property" if file is None else f"{file}"
    try:
        worker = WorkerAddress.of(options, tls_of_clients(of_tls) if of_tls else None)
    except KafkaException as error:
        told = re.sub(r"(?<![\w./-])ssl\.", TLS, describe_kafka(error))  # The names as the user wrote them.
        raise Fault(f"{where}: {told}") from None
    except ValueError as error:
        raise Fault(f"{where}: {error}") from None
    return worker, shown_options({URL: worker.url} | options)


def _registry(url: str | None) -> Registry | None:
    if url is None:
        return None
    from felice.pipelines.registry_clients import RegistryAddress
    from felice.pipelines.sql.rows.registry import RemoteRegistry

    try:
        return RemoteRegistry(RegistryAddress.of(url))
    except (ValueError, TypeError) as error:
        raise Fault(f"--schema-registry: {error}") from None
