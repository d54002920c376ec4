"""`felice registry`: the schema registry, with the REST API of Confluent's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from felice.cli.faults import Fault
from felice.cli.options import client_config, connection_options, read_properties, read_text
from felice.cli.start import LEVELS, log_format_option

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

    from felice.env.listening import ServerTls
    from felice.registry.rights import Rights
    from felice.web.login import Login

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
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on; with 127.0.0.1 only this machine can connect.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=8081,
    show_default=True,
    help="Port to listen on; 0 picks a free port.",
)
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
@click.option(
    "--users",
    "users_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File of the users that may log in; see `felice users add`.  [default: no log in]",
)
@click.option(
    "--cluster-login",
    is_flag=True,
    help="Users of the Kafka cluster log in, with SASL/PLAIN or SCRAM as --command-config says.",
)
@click.option(
    "--tls-config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File with ssl.keystore.location and other ssl.* options of a broker's listener: serve HTTPS.",
)
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
@click.option(
    "--log-level", type=LEVELS, default="warning", show_default=True, help="Least severe level to log."
)
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
    from felice.env import event_loop
    from felice.env.processes import end_with
    from felice.registry.server import RegistrySettings, registry_server
    from felice.web.hosts import is_loopback
    from felice.web.serving import CannotListen, serve

    client = client_config(bootstrap, command_config)
    login = login_of(users_file, client if cluster_login else None)
    if rules_file is not None and login is None:
        raise Fault("--rules needs users: set --users or --cluster-login")
    if login is None and not is_loopback(host):
        click.echo(f"warning: the registry at {host} is open to every network, without a log in", err=True)
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
    _configure_logs(log_format, log_level)

    async def run() -> None:
        if parent_descriptor is not None:
            end_with(parent_descriptor)
        server = registry_server(settings)
        await serve(server, lambda: click.echo(_READY + server.url))

    try:
        event_loop.run(run())
    except CannotListen as error:
        raise Fault(str(error)) from None


def login_of(users_file: Path | None, client: Mapping[str, object] | None) -> Login | None:
    """Who may log in: users of a file, or with `client` those of the Kafka cluster; None for everyone."""
    from felice.web.cluster_users import ClusterUsers
    from felice.web.login import Login
    from felice.web.users import BadUsersFile, FileUsers

    if users_file is not None and client is not None:
        raise Fault("--users and --cluster-login are two kinds of log in; choose one")
    if client is not None:
        return Login(ClusterUsers(client))
    if users_file is None:
        return None
    try:
        return Login(FileUsers(users_file))
    except BadUsersFile as error:
        raise Fault(str(error)) from None


def tls_of(file: Path | None, leader_ca: Path | None) -> tuple[ServerTls | None, ssl.SSLContext | bool]:
    """How HTTPS is served, and how the leader is asked with it."""
    authorities = None if leader_ca is None else _authorities(leader_ca)
    if file is None:
        return None, True if authorities is None else authorities
    from felice.config.option import ConfigError
    from felice.env.key_stores import TlsError
    from felice.web.tls import peer_tls, server_tls

    options = read_properties(file)
    if not options:
        raise Fault(f"{file} has no ssl.* options")
    folder = file.absolute().parent
    try:
        trust = None if leader_ca is None else leader_ca.read_bytes()
        return server_tls(options, folder), peer_tls(options, folder, trust)
    except (ConfigError, TlsError) as error:
        raise Fault(f"{file}: {error}") from None


def _authorities(file: Path) -> ssl.SSLContext:
    import ssl

    try:
        return ssl.create_default_context(cafile=str(file))
    except (ssl.SSLError, OSError) as error:
        raise Fault(f"{file} has no certificates: {error}") from None


def _rights(file: Path | None) -> Rights | None:
    if file is None:
        return None
    from felice.registry.rights import BadRules, parse_rules

    try:
        return parse_rules(read_text(file))
    except BadRules as error:
        raise Fault(f"{file}: {error}") from None


def _configure_logs(log_format: str, log_level: str) -> None:
    import logging

    from felice.server.logs import configure_logs

    configure_logs(as_json=log_format == "json", level=getattr(logging, log_level.upper()))
