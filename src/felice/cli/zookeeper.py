"""Starts ZooKeeper on this machine for development, and inspects any ensemble."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from felice.cli.command_group import CommandGroup
from felice.cli.faults import Fault
from felice.cli.options import json_option
from felice.cli.output import Row, node_row, show, show_json

if TYPE_CHECKING:
    from felice.ensemble import Ensemble
    from felice.ensemble import Node as Server
    from felice.metadata.store import Node
    from felice.metadata.zookeeper import ZooKeeperStore

T = TypeVar("T")

_POLL_S = 0.2
# A server that ends sooner than this three times in a row is not started again.
_SHORT_LIFE_S = 10.0
_MAX_SHORT_LIVES = 3
_TIMEOUT_MS = 5_000

connect_option = click.option(
    "--connect",
    default="127.0.0.1:2181",
    envvar="FELICE_ZOOKEEPER_CONNECT",
    show_default=True,
    metavar="HOST:PORT,…/CHROOT",
    help="The ensemble, as in zookeeper.connect.",
)
digest_option = click.option(
    "--digest",
    metavar="USER:PASSWORD",
    envvar="FELICE_ZOOKEEPER_DIGEST",
    help="Login with ZooKeeper's scheme digest.",
)


@click.group(cls=CommandGroup)
def zookeeper() -> None:
    """Start ZooKeeper on this machine for development; inspect any ensemble.

    \b
    felice zookeeper start --nodes 3
    felice zookeeper status --connect 127.0.0.1:2181,127.0.0.1:2182,127.0.0.1:2183
    felice zookeeper ls /brokers/ids
    felice zookeeper get /controller
    """


@zookeeper.command()
@click.option(
    "--nodes",
    type=click.IntRange(1, 9),
    default=3,
    show_default=True,
    help="Number of servers; with 3 the ensemble survives the loss of one.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=2181,
    show_default=True,
    help="Port of the first server; the others use the next ports. 0 picks free ports.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("felice-zookeeper"),
    show_default=True,
    help="Directory for the servers; created if missing.",
)
@json_option
def start(nodes: int, port: int, host: str, data_dir: Path, as_json: bool) -> None:
    """Start an ensemble from the jars that PySpark contains; Ctrl-C stops it.

    \b
    felice zookeeper start --nodes 3

    For development and tests: all servers run on this machine. Needs the extra felice[spark].
    """
    from felice.ensemble import Ensemble

    ensemble = Ensemble(data_dir, nodes, port, host=host)
    try:
        ensemble.start()
        _say_ready(ensemble, as_json)
        _keep_alive(ensemble)
    except KeyboardInterrupt:
        click.echo("stopping ZooKeeper", err=True)
    finally:
        ensemble.stop()


def _say_ready(ensemble: Ensemble, as_json: bool) -> None:
    if as_json:
        nodes = [
            {"node": node.number, "address": node.address, "pid": node.pid, "directory": node.directory}
            for node in ensemble.nodes
        ]
        show_json({"connect": ensemble.connect, "leader": ensemble.leader().number, "nodes": nodes})
        return
    quorum = "it stands alone" if len(ensemble.nodes) == 1 else f"node {ensemble.leader().number} leads"
    click.echo(f"ZooKeeper is ready: zookeeper.connect={ensemble.connect} ({quorum})")


def _keep_alive(ensemble: Ensemble) -> None:
    """Restarts servers that end, and reports each. Raises `Fault` for one that keeps ending soon after its start."""
    started = {node.number: time.monotonic() for node in ensemble.nodes}
    short_lives = dict.fromkeys(started, 0)
    while True:
        time.sleep(_POLL_S)
        for node in ensemble.nodes:
            if node.exit_code is None:
                continue
            lived_s = time.monotonic() - started[node.number]
            short_lives[node.number] = short_lives[node.number] + 1 if lived_s < _SHORT_LIFE_S else 0
            if short_lives[node.number] >= _MAX_SHORT_LIVES:
                raise Fault(
                    f"{_ended(node)} {_MAX_SHORT_LIVES} times, each within {_SHORT_LIFE_S:g} s of its start; "
                    f"see {node.directory}"
                )
            click.echo(f"{_ended(node)}; it is started again", err=True)
            started[node.number] = time.monotonic()
            node.start()


def _ended(node: Server) -> str:
    code = node.exit_code or 0
    return f"node {node.number} at {node.address} ended ({f'signal {-code}' if code < 0 else f'code {code}'})"


@zookeeper.command()
@connect_option
@json_option
def status(connect: str, as_json: bool) -> None:
    """Show the state of each server. Exit code 1: no server leads.

    \b
    felice zookeeper status --connect 127.0.0.1:2181
    """
    from felice.config.zookeeper import parse_connect

    rows = [_status_row(server) for server in parse_connect(connect)[0]]
    show(rows, as_json)
    if not any(row["mode"] in ("leader", "standalone") for row in rows):
        raise Fault(
            f"none of the servers of {connect} leads: the ensemble has no quorum, or cannot be reached"
        )


def _status_row(server: str) -> dict[str, object]:
    from felice.ensemble import node_status

    host, _, port = server.rpartition(":")
    mode, found = "not serving", None
    try:
        found = node_status(host.strip("[]"), int(port))
    except OSError as error:
        mode = f"not reached ({(error.strerror or str(error)).lower()})"
    return {
        "server": server,
        "mode": found.mode if found else mode,
        "version": found.version if found else None,
        "zxid": found.zxid if found else None,
        "nodes": found.nodes if found else None,
        "connections": found.connections if found else None,
    }


@zookeeper.command()
@click.argument("path", default="/")
@connect_option
@digest_option
@click.option("-r", "--recursive", is_flag=True, help="Include all descendants, with full paths.")
@json_option
def ls(path: str, connect: str, digest: str | None, recursive: bool, as_json: bool) -> None:
    """List the nodes below PATH.

    \b
    felice zookeeper ls -r /brokers --connect 127.0.0.1:2181/kafka
    """

    async def find(store: ZooKeeperStore) -> list[str]:
        return await _paths_below(store, path) if recursive else await store.children(path)

    found = _with_store(connect, digest, find)
    if as_json:
        show_json(found)
    else:
        click.echo("".join(f"{name}\n" for name in found), nl=False)


@zookeeper.command()
@click.argument("path")
@connect_option
@digest_option
@json_option
def get(path: str, connect: str, digest: str | None, as_json: bool) -> None:
    """Print the data of the node at PATH; --json adds its version and owner.

    \b
    felice zookeeper get /controller --connect 127.0.0.1:2181/kafka
    """

    async def read(store: ZooKeeperStore) -> Node:
        return await store.get(path)

    node = _with_store(connect, digest, read)
    if as_json:
        show_json(
            {
                "path": path,
                "data": node.data,
                "version": node.version,
                "created_zxid": node.created_zxid,
                "modified_zxid": node.modified_zxid,
                "ephemeral_owner": node.ephemeral_owner or None,
            }
        )
    else:
        click.echo(node.data)


@zookeeper.command()
@connect_option
@digest_option
def export(connect: str, digest: str | None) -> None:
    """Print all nodes as one JSON object, for `felice import --znodes`.

    The output holds the SCRAM credentials and passwords of the cluster: keep it as safe as ZooKeeper's data.

    \b
    felice zookeeper export --connect 127.0.0.1:2181/kafka > nodes.json
    """

    async def read(store: ZooKeeperStore) -> list[Row]:
        paths = await _paths_below(store, "/")
        found = zip(paths, await store.get_many(paths), strict=True)
        return [node_row(path, node) for path, node in found if node is not None]

    show_json({"nodes": _with_store(connect, digest, read)})


async def _paths_below(store: ZooKeeperStore, root: str) -> list[str]:
    found: list[str] = []
    level = [root]
    while level:
        families = zip(level, await store.children_many(level), strict=True)
        level = [f"{parent.rstrip('/')}/{name}" for parent, names in families for name in names or ()]
        found += level
    return sorted(found)


def _with_store(connect: str, digest: str | None, work: Callable[[ZooKeeperStore], Awaitable[T]]) -> T:
    from felice.config.zookeeper import parse_connect
    from felice.env import SystemClock
    from felice.metadata.zookeeper import ZooKeeperSettings, ZooKeeperStore

    hosts, chroot = parse_connect(connect)
    settings = ZooKeeperSettings(
        hosts,
        chroot,
        session_timeout_ms=_TIMEOUT_MS,
        connection_timeout_ms=_TIMEOUT_MS,
        digest=digest,
        makes_chroot=False,
    )

    async def whole() -> T:
        store = await ZooKeeperStore.open(settings, SystemClock())
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(whole())
