"""The real rooms of a broker, without open listeners or running tasks, for tests of handlers.

A test replaces the parts that it tests: `replace(services, partitions=...)`, or `with_room(services, changes={...})`.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

from felice.env import Environment
from felice.metadata.memory import MemoryEnsemble
from felice.security.principal import ANONYMOUS, Principal
from felice.server.broker import Broker
from felice.server.context import RequestContext
from felice.server.membership.store_sources import SharedSource
from felice.server.process.local_cluster import known_config, local_settings
from felice.server.services import Services


def rooms_of(directory: Path, **options: str) -> Services:
    """The services of a broker with these options, over a metadata store in memory."""
    named = {name.replace("_", "."): value for name, value in options.items()}
    properties = {"node.id": "1", **local_settings(1), "listeners": "PLAINTEXT://127.0.0.1:0", **named}
    config = known_config({**properties, "log.dirs": str(directory)})
    broker = Broker(config, Environment.system(), store_source=SharedSource(MemoryEnsemble().connect, 0))
    return asyncio.run(broker._compose()).services


def with_room(services: Services, **rooms: dict[str, Any]) -> Services:
    """The same services, with some parts of some rooms replaced: `with_room(services, changes={"acls": fake})`."""
    return replace(
        services, **{name: replace(getattr(services, name), **parts) for name, parts in rooms.items()}
    )


class Client:
    """The connection of a client without a log in."""

    peer = address = "127.0.0.1"
    client_software = ""
    principal: Principal = ANONYMOUS

    def __init__(self, listener_name: str = "PLAINTEXT") -> None:
        self.listener_name = listener_name

    def hold(self) -> None: ...

    def release(self) -> None: ...


def context_with(services: Services, version: int, client: Client | None = None) -> RequestContext:
    """The context of a request to these services. The API's key is -1, because handlers do not use the key."""
    return RequestContext(services, -1, version, "client", client or Client())
