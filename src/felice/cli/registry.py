"""`felice registry`: the schema registry, with the REST API of Confluent's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from felice.cli.faults import Fault
from felice.cli.options import client_config, connection_options, host_option, port_option, read_text
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
    from collections.abc import Callable

    from felice.registry.rights import Rights
    from felice.web.serving import Service

_LEVEL_NAMES = (
    "NONE",
    "BACKWARD",
    "BACKWARD_TRANSITIVE",
    "FORWARD",
    "FORWARD_TRANSITIVE",
    "FULL",
    "FULL_TRANSITIVE",
)
_READY = "The schema registry is ready on "


@click.command()
@connection_options
@host_option
@port_option(8081)
@click.option("--topic", default="_schemas", show_default=True, help="Topic that holds the schemas.")
@click.option(
    "--group",
    default="schema-registry",
    show_default=True,
    help="Group of the registries that share the topic; they choose one leader.",
)
@click.option(
    "--replication-factor",
    type=click.IntRange(1, 32_767),
    default=3,
    show_default=True,
    help="Replicas of the topic, if it is created; fewer if there are fewer brokers.",
)
@click.option(
    "--compatibility",
    type=click.Choice(_LEVEL_NAMES, case_sensitive=False),
    default="BACKWARD",
    show_default=True,
    help="Compatibility level where none is configured.",
)
@click.option(
    "--advertised-host",
    help="Host at which other registries of the group reach this one.  [default: --host]",
)
@click.option(
    "--advertised-port",
    type=click.IntRange(1, 65_535),
    help="Port at which other registries of the group reach this one.  [default: --port]",
)
@click.option(
    "--session-timeout",
    type=click.IntRange(1, 1_800),
    default=10,
    show_default=True,
    metavar="SECONDS",
    help="How long a registry may be silent before the group replaces it; brokers accept 6 s or more.",
)
@click.option("--follower", is_flag=True, help="Never become the leader: answer reads, and forward writes.")
@users_option
@click.option(
    "--cluster-login",
    is_flag=True,
    help="Users of the Kafka cluster log in, with SASL/PLAIN or SCRAM as --command-config says.",
)
@tls_config_option
@click.option(
    "--leader-ca",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="PEM file of the authorities whose certificates other registries have.  [default: the system's]",
)
@click.option(
    "--rules",
    "rules_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File of rules: which user may do what with which subjects.",
)
@log_format_option
@log_level_option
# Used by `felice start --registry`: the registry ends when the other end of this connection is closed.
@click.option("--parent-descriptor", type=int, hidden=True)
def registry(
    bootstrap: str,
    command_config: Path | None,
    host: str,
    port: int,
    topic: str,
    group: str,
    replication_factor: int,
    compatibility: str,
    advertised_host: str | None,
    advertised_port: int | None,
    session_timeout: int,
    follower: bool,
    users_file: Path | None,
    cluster_login: bool,
    tls_config: Path | None,
    leader_ca: Path | None,
    rules_file: Path | None,
    log_format: str,
    log_level: str,
    parent_descriptor: int | None,
) -> None:
    """Start a schema registry, which keeps its schemas in a topic.

    \b
    felice registry
    felice registry --bootstrap-server broker1:9092,broker2:9092 --port 8081
    felice registry --host 0.0.0.0 --advertised-host registry1.example.com --users registry.users

    Clients of Confluent's registry use it as it is: schema.registry.url=http://127.0.0.1:8081.
    Several registries of one group share a topic, and choose a leader that writes. Ctrl-C stops it.
    """
    from felice.env.processes import end_with
    from felice.registry.server import RegistrySettings, registry_server

    client = client_config(bootstrap, command_config)
    login = login_of(users_file, client if cluster_login else None)
    if rules_file is not None and login is None:
        raise Fault("--rules needs users: set --users or --cluster-login")
    warn_if_open("the registry", host, login)
    served_tls, leader_tls = tls_of(tls_config, leader_ca)
    settings = RegistrySettings(
        client,
        host=host,
        port=port,
        topic=topic,
        group=group,
        replication_factor=replication_factor,
        level=compatibility.upper(),
        session_timeout_s=session_timeout,
        eligible=not follower,
        advertised_host=advertised_host,
        advertised_port=advertised_port,
        tls=served_tls,
        leader_tls=leader_tls,
        login=login,
        rights=_rights(rules_file),
    )
    log_as(log_format, log_level)

    def made() -> tuple[Service, Callable[[], None]]:
        if parent_descriptor is not None:
            end_with(parent_descriptor)
        server = registry_server(settings)
        return server, lambda: click.echo(_READY + server.url)

    serve_until_signal(made)


def _rights(file: Path | None) -> Rights | None:
    if file is None:
        return None
    from felice.registry.rights import BadRules, parse_rules

    try:
        return parse_rules(read_text(file))
    except BadRules as error:
        raise Fault(f"{file}: {error}") from None
