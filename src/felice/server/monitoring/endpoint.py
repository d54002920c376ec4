"""The HTTP endpoint for operators' tools: metrics, whether the event loop runs, and whether the broker serves.

| path              | answer                                                                                      |
|-------------------|---------------------------------------------------------------------------------------------|
| /metrics          | the broker's metrics, in Prometheus' text format                                            |
| /metrics/clients  | the metrics that clients pushed (KIP-714)                                                   |
| /health           | 200 while the event loop runs; says nothing of ZooKeeper or other brokers                    |
| /ready            | 200 while the broker is registered and serves, else 503 with the reason                     |
| /v1/ready         | 204 or 503, as Strimzi's agent answers                                                      |
| /v1/broker-state  | {"brokerState": 3}, Kafka's number of the state                                             |

Keeps true: with `felice.metrics.users` only these users read metrics. The other paths reveal nothing about the data,
            and need no password, because load balancers and orchestrators have none.
            The endpoint opens before the logs are recovered, which may take minutes, and closes when the broker has
            stopped.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from functools import partial
from http import HTTPStatus

from felice.config import BrokerConfig
from felice.config.monitoring import ENDPOINT, address_of
from felice.env import Environment
from felice.env.listening import ServerTls
from felice.env.network import why_not_listening
from felice.server.flow.closings import Closings
from felice.server.lifecycle import Lifecycle, State
from felice.server.metrics.exposition import CONTENT_TYPE
from felice.server.metrics.loop_watch import LoopWatch
from felice.server.metrics.process import BROKER_STATES
from felice.server.monitoring.http import MAX_CONNECTIONS, Answer, HttpServer, Logins, text_answer
from felice.server.monitoring.page import MetricsPages, Page
from felice.server.monitoring.sources import Sources
from felice.server.security.tls import TlsListeners
from felice.server.startup import StartupError

_log = logging.getLogger("felice.server")

# A connection with TLS takes some 300 KiB, and this many connections may be in their handshakes.
_MAX_TLS_CONNECTIONS = 64


class Monitoring:
    """The endpoint of one broker. Does nothing if `felice.metrics.listener` is empty."""

    def __init__(self, env: Environment, config: Callable[[], BrokerConfig], lifecycle: Lifecycle) -> None:
        self.port = 0
        self.watch = LoopWatch(env.clock)
        self._closings = Closings(env.clock.monotonic)
        self._network = env.network
        self._config = config
        self._lifecycle = lifecycle
        self._pages = MetricsPages(env.clock, config, lifecycle, self.watch)
        self._server: HttpServer | None = None

    async def start(self, tls: TlsListeners) -> None:
        """Listens if an address is configured. `tls` has the keys if the endpoint uses HTTPS. Raises `StartupError`."""
        address = address_of(self._config().felice_metrics_listener)
        if address is None:
            return
        host, port = address
        server = HttpServer(
            {
                "/metrics": partial(_page, self._pages.broker),
                "/metrics/clients": partial(_page, self._pages.clients),
                "/health": self._health,
                "/ready": self._ready,
                "/v1/ready": self._agent_ready,
                "/v1/broker-state": self._broker_state,
            },
            Logins(
                self._config().metrics_logins,
                ("/metrics", "/metrics/clients"),
                partial(self._closings.report_login, ENDPOINT),
            ),
            _MAX_TLS_CONNECTIONS if self._config().serves_metrics_by_tls else MAX_CONNECTIONS,
        )
        try:
            self.port = await server.start(self._network, host or None, port, self._tls(tls))
        except OSError as error:
            reason = why_not_listening(error)
            raise StartupError(f"cannot serve metrics on {host}:{port}: {reason}") from error
        self._server = server
        self.watch.start()
        scheme = "https" if self._config().serves_metrics_by_tls else "http"
        _log.info("metrics are served", extra={"host": host, "port": self.port, "scheme": scheme})

    def _tls(self, tls: TlsListeners) -> ServerTls | None:
        config = self._config()
        if not config.serves_metrics_by_tls:
            return None
        timeout_s = config.felice_tls_handshake_timeout_ms / 1000
        report = partial(self._closings.report_handshake, ENDPOINT)
        return ServerTls(lambda: tls[ENDPOINT].context, timeout_s, report, _MAX_TLS_CONNECTIONS)

    def follow(self, sources: Sources) -> None:
        """Serves the metrics of all components from now on."""
        self._pages.sources = sources
        listeners = sources.listeners

        def connections() -> tuple[int, int]:
            accepted = sum(listener.accepted for listener in listeners)
            return accepted, accepted - sum(len(listener.sessions) for listener in listeners)

        self.watch.count_connections(connections)

    async def leave(self) -> None:
        """Serves only the metrics of the process from now on, because the components stop."""
        sources, self._pages.sources = self._pages.sources, None
        await self._pages.finish()
        if sources is not None:
            await sources.remote_offsets.stop()

    async def stop(self) -> None:
        """Stops listening."""
        await self.leave()
        self.watch.stop()
        if self._server is not None:
            await self._server.stop()
            self._server = None

    def not_ready_because(self) -> str | None:
        """The reason why the broker should get no clients; None if it serves them."""
        if self._lifecycle.failure is not None:
            return self._lifecycle.failure
        if self._lifecycle.state is not State.RUNNING:
            return f"the broker is {self._lifecycle.state.value}"
        sources = self._pages.sources
        if sources is None or not sources.services.image_follower.is_following:
            return "the broker is not registered"
        return None

    async def _health(self) -> Answer:
        return text_answer(HTTPStatus.OK)

    async def _ready(self) -> Answer:
        reason = self.not_ready_because()
        return text_answer(
            HTTPStatus.OK if reason is None else HTTPStatus.SERVICE_UNAVAILABLE, reason or "ready"
        )

    async def _agent_ready(self) -> Answer:
        is_ready = self.not_ready_because() is None
        return Answer(HTTPStatus.NO_CONTENT if is_ready else HTTPStatus.SERVICE_UNAVAILABLE)

    async def _broker_state(self) -> Answer:
        state = json.dumps({"brokerState": BROKER_STATES[self._lifecycle.state]})
        return Answer(HTTPStatus.OK, [state.encode()], "application/json")


async def _page(page: Page) -> Answer:
    return Answer(HTTPStatus.OK, await page.pieces(), CONTENT_TYPE)
