"""Puts a registry together: topic, state, leadership, REST API, and the web server in front of them."""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

from starlette.applications import Starlette

from felice.client.admin.core import Admin
from felice.dataclass import dataclass
from felice.env.listening import ServerTls
from felice.registry.journal import DEFAULT_TOPIC, Journal, topic_maker
from felice.registry.leader import DEFAULT_GROUP, Identity
from felice.registry.leadership import SESSION_TIMEOUT_S, GroupMembership, Leadership
from felice.registry.rest.media import RegistryErrors
from felice.registry.rest.openapi import openapi_document
from felice.registry.rest.routes import routes
from felice.registry.rights import Rights
from felice.registry.service import Registry
from felice.registry.state import DEFAULT_LEVEL, State
from felice.web.application import application
from felice.web.forwarding import Forwarder
from felice.web.limits import Limits
from felice.web.login import Login
from felice.web.openapi import openapi_route
from felice.web.serving import WebServer

DEFAULT_PORT = 8081
START_TIMEOUT_S = 60.0
_EVERYWHERE = ("", "0.0.0.0", "::")


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """What a registry is started with. `client` has the settings of clients of Kafka, `bootstrap.servers` among them.

    `advertised_host` and `advertised_port` are where other registries of the group reach this one; without them it is
    the address on which it listens. `level` is the compatibility level where none is configured.
    """

    client: Mapping[str, object]
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    topic: str = DEFAULT_TOPIC
    group: str = DEFAULT_GROUP
    replication_factor: int = 3
    level: str = DEFAULT_LEVEL
    eligible: bool = True
    advertised_host: str | None = None
    advertised_port: int | None = None
    tls: ServerTls | None = None
    leader_tls: ssl.SSLContext | bool = True
    login: Login | None = None
    rights: Rights | None = None
    session_timeout_s: float = SESSION_TIMEOUT_S
    start_timeout_s: float = START_TIMEOUT_S


def registry_server(settings: RegistrySettings) -> WebServer:
    """The server of a registry, to be started. Its start raises the errors of the topic (`KafkaException`), too."""
    state = State(settings.level)
    journal = Journal(
        state, topic_maker(settings.client, settings.topic, settings.group, settings.replication_factor)
    )
    leadership = Leadership()
    registry = Registry(journal, leadership, group=settings.group)
    forwarder = Forwarder(settings.leader_tls)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        own = _identity(settings, server.port)
        async with AsyncExitStack() as running:
            running.callback(registry.close)
            running.push_async_callback(forwarder.close)
            running.push_async_callback(journal.stop)
            await journal.start(settings.start_timeout_s)
            registry.cluster_id = await _cluster_id(settings.client)
            membership = GroupMembership(
                settings.client, settings.group, own, leadership, settings.session_timeout_s
            )
            running.push_async_callback(membership.stop)
            await membership.start(settings.start_timeout_s)
            yield

    app = application(
        [*routes(registry, forwarder, settings.rights), openapi_route(openapi_document())],
        errors=RegistryErrors(),
        limits=Limits(),
        login=settings.login,
        lifespan=lifespan,
    )
    server = WebServer(app, settings.host, settings.port, tls=settings.tls)
    app.state.registry = registry
    return server


def _identity(settings: RegistrySettings, port: int) -> Identity:
    host = settings.advertised_host or settings.host
    if host in _EVERYWHERE:
        host = socket.gethostname()
    return Identity(
        host,
        settings.advertised_port or port,
        settings.eligible,
        "http" if settings.tls is None else "https",
    )


async def _cluster_id(client: Mapping[str, object]) -> str:
    async with Admin(client) as admin:
        return (await admin.describe_cluster()).cluster_id or ""
