"""The metrics of brokers, as they serve them to Prometheus."""

from __future__ import annotations

import base64
import http.client
import ssl
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import click

from felice.cli.faults import Fault
from felice.cli.options import admin_client, connection_options, json_option, wait_all
from felice.cli.output import show_json
from felice.cli.passwords import login_of
from felice.config.monitoring import METRICS_LISTENER, METRICS_PROTOCOL, address_of
from felice.dataclass import dataclass

if TYPE_CHECKING:
    from felice.client.admin import AdminClient

_TIMEOUT_S = 30.0
_HTTPS = "https://"
_PASSWORD_VARIABLE = "FELICE_METRICS_PASSWORD"
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_EVERY_INTERFACE = ("", "0.0.0.0", "::")


@click.command()
@click.argument("names", nargs=-1)
@click.option("--broker", "broker_id", type=int, help="Only this broker; by default all of them.")
@click.option(
    "--address",
    metavar="HOST:PORT",
    help="Read this endpoint, without asking a broker for its address; https://HOST:PORT if it uses TLS.",
)
@click.option("-u", "--user", help="User of felice.metrics.users to log in as.")
@click.option(
    "--password",
    envvar=_PASSWORD_VARIABLE,
    help=f"Its password; better in the variable {_PASSWORD_VARIABLE}.",
)
@click.option(
    "--ca",
    type=_FILE,
    help="Authorities (PEM) that signed the endpoint's certificate.",
)
@click.option(
    "--cert",
    type=_FILE,
    help="Client certificate and key (PEM), if the endpoint requires a client certificate.",
)
@click.option("--dashboard", is_flag=True, help="Print the dashboard for Grafana, to import it there.")
@json_option
@connection_options
def metrics(
    names: tuple[str, ...],
    broker_id: int | None,
    address: str | None,
    user: str | None,
    password: str | None,
    ca: Path | None,
    cert: Path | None,
    dashboard: bool,
    as_json: bool,
    bootstrap: str,
    command_config: Path | None,
) -> None:
    """Show the metrics of brokers: all of them, or those whose names contain one of NAMES.

    \b
    felice metrics leadercount underreplicated
    felice metrics --broker 1 --json
    felice metrics --address 127.0.0.1:9404
    felice metrics --address https://broker-1:9404 --ca ca.pem --user prometheus
    felice metrics --dashboard > felice.json

    Brokers serve metrics if felice.metrics.listener is set in their configuration.
    """
    if dashboard:
        click.echo(dashboard_text())
        return
    login = login_of(user, password, _PASSWORD_VARIABLE)
    access = Access(None if login is None else ":".join(login), ca, cert)
    if address is not None:
        found = {address: matching(read_page(address, access), names)}
    else:
        admin = admin_client(bootstrap, command_config)
        found = {
            f"broker {number}": matching(read_page(where, access), names)
            for number, where in endpoints(admin, broker_id).items()
        }
    if not any(found.values()):
        raise Fault(f"no metric has a name that contains {' or '.join(names)}")
    if as_json:
        show_json({source: dict(samples(lines)) for source, lines in found.items()})
        return
    for source, lines in found.items():
        if len(found) > 1:
            click.echo(f"# {source}")
        for line in lines:
            click.echo(line)


def dashboard_text() -> str:
    """The dashboard that comes with Felice."""
    from importlib.resources import files

    return (files("felice.cli") / "dashboards" / "felice.json").read_text(encoding="utf-8")


def endpoints(admin: AdminClient, broker_id: int | None) -> dict[int, str]:
    """Where each broker serves its metrics, as its configuration says."""
    from felice.client.admin import ConfigResource

    nodes = {node.id: node for node in admin.describe_cluster().result().nodes}
    if broker_id is not None and broker_id not in nodes:
        raise Fault(f"there is no broker {broker_id}; there are {', '.join(map(str, sorted(nodes)))}")
    wanted = sorted(nodes) if broker_id is None else [broker_id]
    resources = {number: ConfigResource(ConfigResource.Type.BROKER, str(number)) for number in wanted}
    described = wait_all(admin.describe_configs(list(resources.values())))
    found = {}
    for number, resource in resources.items():
        entry = described[resource].get(METRICS_LISTENER)
        address = address_of(entry.value or "") if entry is not None else None
        if address is None:
            raise Fault(f"broker {number} serves no metrics: set {METRICS_LISTENER} in its configuration")
        host, port = address
        if port == 0:
            raise Fault(f"broker {number} serves metrics at a port of its choice: name it with --address")
        protocol = described[resource].get(METRICS_PROTOCOL)
        scheme = _HTTPS if protocol is not None and protocol.value == "SSL" else ""
        found[number] = f"{scheme}{nodes[number].host if host in _EVERY_INTERFACE else host}:{port}"
    return found


@dataclass(frozen=True, slots=True)
class Access:
    """How to connect to endpoints with TLS or passwords."""

    login: str | None = None
    """`user:password`"""
    ca: Path | None = None
    cert: Path | None = None

    def connection(self, host: str, port: int, *, uses_tls: bool) -> http.client.HTTPConnection:
        """A connection that is not open yet. Raises `Fault`."""
        if not uses_tls and (self.ca or self.cert):
            raise Fault(
                f"{host}:{port} serves metrics without TLS, but --ca and --cert need TLS: give https://HOST:PORT"
            )
        if not uses_tls:
            return http.client.HTTPConnection(host, port, timeout=_TIMEOUT_S)
        context = _tls(self.ca, self.cert)
        return http.client.HTTPSConnection(host, port, timeout=_TIMEOUT_S, context=context)

    @property
    def headers(self) -> dict[str, str]:
        """The headers of each request."""
        if self.login is None:
            return {}
        return {"Authorization": f"Basic {base64.b64encode(self.login.encode()).decode()}"}


@cache
def _tls(ca: Path | None, cert: Path | None) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=ca)
        if cert is not None:
            context.load_cert_chain(cert)
    except (OSError, ssl.SSLError) as error:
        files = " and ".join(str(file) for file in (ca, cert) if file is not None)
        raise Fault(f"cannot use {files}: {error}") from error
    return context


def read_page(address: str, access: Access) -> list[str]:
    """The lines of an endpoint's page. Raises `Fault`."""
    uses_tls = address.startswith(_HTTPS)
    parsed = address_of(address.removeprefix(_HTTPS))
    if parsed is None:
        raise Fault(f"expected host:port or https://host:port, got {address!r}")
    connection = access.connection(parsed[0] or "127.0.0.1", parsed[1], uses_tls=uses_tls)
    try:
        connection.request("GET", "/metrics", headers=access.headers)
        response = connection.getresponse()
        text = response.read().decode()
    except (OSError, http.client.HTTPException) as error:
        raise Fault(f"no metrics from {address}: {error}") from error
    finally:
        connection.close()
    if response.status == http.HTTPStatus.UNAUTHORIZED:
        raise Fault(
            f"no metrics from {address}: the endpoint asks for a user of felice.metrics.users; see --user"
        )
    if response.status != http.HTTPStatus.OK:
        raise Fault(f"no metrics from {address}: {response.status} {response.reason}")
    return text.splitlines()


def matching(lines: Iterable[str], names: tuple[str, ...]) -> list[str]:
    """The series of metrics whose names contain one of `names`; without names the whole page."""
    if not names:
        return list(lines)
    wanted = [name.lower() for name in names]
    return [
        line
        for line in lines
        if not line.startswith("#")
        and any(name in line.partition("{")[0].partition(" ")[0].lower() for name in wanted)
    ]


def samples(lines: Iterable[str]) -> Iterator[tuple[str, float]]:
    """Series and values."""
    for line in lines:
        if not line.startswith("#"):
            series, _, value = line.rpartition(" ")
            yield series, float(value)
