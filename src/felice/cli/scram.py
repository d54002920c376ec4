"""SCRAM users in the metadata store, without a broker: the first user of a cluster whose brokers use SCRAM themselves.

A broker without ZooKeeper must be stopped meanwhile. While brokers run, AlterUserScramCredentials changes users.
"""

from __future__ import annotations

import asyncio
import secrets
import uuid
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeVar

import click

from felice.cli.command_group import CommandGroup
from felice.cli.faults import Fault
from felice.cli.options import json_option, read_properties
from felice.cli.output import show
from felice.cli.passwords import ask_password
from felice.config import BrokerConfig

if TYPE_CHECKING:
    from felice.metadata import MetadataStore

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_SALT_BYTES = 20

T = TypeVar("T")
Edit = Callable[[Mapping[str, str]], Mapping[str, str]]

properties_argument = click.argument(
    "properties_file", type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
mechanism_option = click.option(
    "--mechanism",
    type=click.Choice(MECHANISMS),
    default="SCRAM-SHA-512",
    show_default=True,
    help="The mechanism with which the user logs in.",
)


@click.group(cls=CommandGroup)
def scram() -> None:
    """Set, list and delete the SCRAM users of a cluster, without a running broker.

    \b
    felice scram set server.properties admin < password.txt
    felice scram list server.properties
    felice scram delete server.properties admin
    """


@scram.command("set")
@properties_argument
@click.argument("user")
@mechanism_option
@click.option(
    "--iterations",
    type=click.IntRange(4096, 16_384),
    default=8192,
    show_default=True,
    help="How often the password is hashed.",
)
def set_command(properties_file: Path, user: str, mechanism: str, iterations: int) -> None:
    """Set the password of a user: asked for, or the first line of standard input.

    \b
    felice scram set server.properties admin
    felice scram set server.properties admin --mechanism SCRAM-SHA-256 < password.txt
    """
    from felice.security.sasl.scram import ScramCredential

    password = ask_password()
    credential = ScramCredential.of_password(
        mechanism, password, secrets.token_bytes(_SALT_BYTES), iterations
    )
    _edit(properties_file, user, lambda current: {**current, mechanism: credential.format()})
    click.echo(f"{user} can log in with {mechanism}")


@scram.command("list")
@properties_argument
@json_option
def list_command(properties_file: Path, as_json: bool) -> None:
    """Print users, mechanisms and iterations; never a key.

    \b
    felice scram list server.properties
    """
    from felice.security.sasl.scram import ScramCredential

    users: dict[str, dict[str, str]] = _with_store(properties_file, _read_users, without_cluster=dict)
    rows = [
        {"user": user, "mechanism": name, "iterations": ScramCredential.parse(config[name]).iterations}
        for user, config in sorted(users.items())
        for name in MECHANISMS
        if name in config
    ]
    show(rows, as_json, empty="There are no SCRAM users.")


@scram.command("delete")
@properties_argument
@click.argument("user")
@mechanism_option
def delete_command(properties_file: Path, user: str, mechanism: str) -> None:
    """Delete the credential of a user for one mechanism.

    \b
    felice scram delete server.properties admin --mechanism SCRAM-SHA-256
    """

    def refuse() -> NoReturn:
        raise Fault(f"{user} has no credential for {mechanism}")

    def without(current: Mapping[str, str]) -> Mapping[str, str]:
        """The configuration without the credential."""
        if mechanism not in current:
            refuse()
        return {name: text for name, text in current.items() if name != mechanism}

    _edit(properties_file, user, without, without_cluster=refuse)


async def _read_users(store: MetadataStore) -> dict[str, dict[str, str]]:
    from felice.metadata import layout

    names = await store.children(layout.USER_CONFIGS)
    paths = [f"{layout.USER_CONFIGS}/{name}" for name in names]
    nodes = await store.get_many(paths)
    return {
        layout.entity_of(path): layout.decode_config(node.data)
        for path, node in zip(paths, nodes, strict=True)
        if node is not None
    }


def _edit(
    properties_file: Path, user: str, edit: Edit, *, without_cluster: Callable[[], None] | None = None
) -> None:
    async def write(store: MetadataStore) -> None:
        """Replaces the user's node, unless another program changes it at the same time."""
        from felice.metadata import Create, SetData, layout
        from felice.metadata.client_entity import ClientEntity

        path = layout.client_config_path(ClientEntity(user))
        node = await store.exists(path)
        data = layout.encode_config(edit(layout.decode_config(node.data) if node else {}))
        await store.multi([Create(path, data) if node is None else SetData(path, data, node.version)])

    _with_store(properties_file, write, without_cluster=without_cluster)


def _with_store(
    properties_file: Path,
    work: Callable[[MetadataStore], Awaitable[T]],
    *,
    without_cluster: Callable[[], T] | None = None,
) -> T:
    """Opens the store that a broker with this file would use, and does the work in it.

    If the store has no cluster, calls `without_cluster` instead, and writes nothing. If that is None, begins a cluster.
    """
    from felice.env.variables import SystemSources

    config, _ = BrokerConfig.parse(read_properties(properties_file), sources=SystemSources())
    return asyncio.run(_in_store(config, work, without_cluster))


async def _in_store(
    config: BrokerConfig,
    work: Callable[[MetadataStore], Awaitable[T]],
    without_cluster: Callable[[], T] | None,
) -> T:
    from felice.env import Environment
    from felice.metadata import layout
    from felice.server.membership.identity import check_may_begin, prepare_store
    from felice.server.membership.store_sources import EmbeddedSource, source_of

    env = Environment.system()
    source = source_of(config, env)
    if without_cluster is not None and isinstance(source, EmbeddedSource) and not source.exists():
        check_may_begin(env.disk, config.log_directories, source.where)
        return without_cluster()
    store = await source.open()
    try:
        if without_cluster is not None and await store.exists(layout.CLUSTER_ID) is None:
            check_may_begin(env.disk, config.log_directories, source.where)
            return without_cluster()
        await prepare_store(store, uuid.uuid4, env.disk, config.log_directories, source.where)
        return await work(store)
    finally:
        await store.close()
        source.release()
