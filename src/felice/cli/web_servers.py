"""What the commands that serve HTTP share: log in, TLS, logs, and the run until a signal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from felice.cli.faults import Fault
from felice.cli.options import read_properties

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping

    from felice.env.listening import ServerTls
    from felice.web.login import Login
    from felice.web.serving import Service

users_option = click.option(
    "--users",
    "users_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File of the users that may log in; see `felice users add`.  [default: no log in]",
)
tls_config_option = click.option(
    "--tls-config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File with ssl.keystore.location and other ssl.* options of a broker's listener: serve HTTPS.",
)


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
    """The TLS of the server, and that of requests to the leader (True: with the system's authorities)."""
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


def warn_if_open(what: str, host: str, login: Login | None) -> None:
    """Tell the user that everyone may use the server, if it is so."""
    from felice.web.hosts import is_loopback

    if login is None and not is_loopback(host):
        click.echo(f"warning: {what} at {host} is open to every network, without a log in", err=True)


def log_as(log_format: str, log_level: str) -> None:
    """Log in this format, from this level on."""
    import logging

    from felice.server.process.logs import configure_logs

    configure_logs(as_json=log_format == "json", level=getattr(logging, log_level.upper()))


def serve_until_signal(made: Callable[[], tuple[Service, Callable[[], None]]]) -> None:
    """Serve until a signal comes. `made` is called on the event loop, and returns the service and a function that is
    called when it listens.
    """
    from felice.env import event_loop
    from felice.web.serving import CannotListen, serve

    async def run() -> None:
        await serve(*made())

    try:
        event_loop.run(run())
    except CannotListen as error:
        raise Fault(str(error)) from None
