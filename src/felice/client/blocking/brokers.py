"""The connections of a blocking client, and what it knows of the cluster.

Keeps true:  there is one connection per broker. `link` returns it without responses that an earlier use left unread.
             No wait outlasts `limit`, the time limit of the client's current call.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from felice.client.blocking.config import BlockingConfig
from felice.client.blocking.limits import TimeLimit
from felice.client.blocking.link import BlockingLink
from felice.client.error import KafkaError, KafkaException, failure, no_broker_answers
from felice.client.model import Partition
from felice.client.net.requests import metadata_request
from felice.client.net.topology import NO_LEADER, Topology
from felice.client.net.wire import changes_nothing
from felice.client.options import parse_addresses
from felice.client.security import make_security
from felice.protocol.errors import ErrorCode

_RETRY_BACKOFF_S = 0.1
_PATIENCE_S = 0.5


class Brokers:
    """The brokers of one client. Only one thread at a time may use it."""

    def __init__(self, config: BlockingConfig) -> None:
        self.topology = Topology()
        self.limit = TimeLimit()
        self._config = config
        self._bootstrap = parse_addresses(config.bootstrap_servers)
        self._security = make_security(config.security)
        self._links: dict[tuple[str, int], BlockingLink] = {}
        # Topics whose leaders are asked for again before they are used.
        self._doubted: set[str] = set()

    def close(self) -> None:
        """Close the connections. The next use opens them again."""
        links, self._links = self._links, {}
        for link in links.values():
            link.close()

    def refresh(self, topics: list[str] | None, allow_auto_create: bool = False) -> None:
        """Ask for the metadata of these topics (None: all)."""
        response = self.call_any(metadata_request(topics, allow_auto_create=allow_auto_create))
        self.topology.update(response, complete=topics is None)
        self._doubted -= self._doubted if topics is None else set(topics)

    # The type of the response follows from the API of the request, so callers annotate it.
    def call_any(self, request: object) -> Any:
        """Return the response of the first broker that gives one. Raises _ALL_BROKERS_DOWN with all reasons.

        Each address has `_PATIENCE_S` to answer, and twice as long in each further round, in all at most
        `request_timeout_ms`: a silent broker keeps the client only shortly from the next one. A request that changes
        something is not sent again while it may still be answered.
        """
        known = [(broker.host, broker.port) for broker in self.topology.brokers.values()]
        addresses = list(dict.fromkeys([*self._links, *known, *self._bootstrap]))
        limit_s = self.limit.left_s(self._config.request_timeout_ms / 1000)
        patience_s = _PATIENCE_S if len(addresses) > 1 else limit_s
        with self.limit.within(limit_s):
            while True:
                errors = list[KafkaError]()
                for address in addresses:
                    try:
                        return self._call(address, request, patience_s)
                    except KafkaException as error:
                        if not error.error.retriable():
                            raise
                        errors.append(error.error)
                    if self.limit.is_over:
                        raise no_broker_answers(errors)
                patience_s *= 2
                was_silent = any(error == KafkaError._TIMED_OUT for error in errors)
                if not was_silent or patience_s > limit_s:
                    raise no_broker_answers(errors)

    def _call(self, address: tuple[str, int], request: object, patience_s: float) -> Any:
        with self.limit.within(patience_s):
            link = self.link(address)
        if not changes_nothing(request):
            return link.call(request)
        with self.limit.within(patience_s):
            return link.call(request)

    def link(self, address: tuple[str, int]) -> BlockingLink:
        """Return an idle connection to this address (host and port)."""
        link = self._open(address)
        if link.in_flight:
            # A generator that was not read to its end leaves responses in the connection.
            link.close()
            link = self._open(address)
        return link

    def _open(self, address: tuple[str, int]) -> BlockingLink:
        link = self._links.get(address)
        if link is None or link.closed:
            config = self._config
            link = self._links[address] = BlockingLink(
                *address,
                client_id=config.client_id,
                connect_s=config.connect_timeout_ms / 1000,
                request_s=config.request_timeout_ms / 1000,
                security=self._security,
                limit=self.limit,
            )
        return link

    def link_of(self, node_id: int) -> BlockingLink:
        """Return an idle connection to a broker of the known metadata. Raises _UNKNOWN_BROKER for any other."""
        broker = self.topology.broker(node_id)
        return self.link((broker.host, broker.port))

    def by_leader(self, wanted: Iterable[Partition]) -> dict[int, list[Partition]]:
        """Group partitions by leader, in the given order; those without a leader under NO_LEADER."""
        partitions = list(wanted)
        unknown = {t for t, p in partitions if self.topology.leader(t, p) not in self.topology.brokers}
        unknown |= {t for t, _ in partitions if t in self._doubted}
        if unknown:
            self.refresh(sorted(unknown))
        led: dict[int, list[Partition]] = {}
        for topic, partition in partitions:
            leader = self.topology.leader(topic, partition)
            leader = leader if leader in self.topology.brokers else NO_LEADER
            led.setdefault(leader, []).append((topic, partition))
        return led

    def why_leaderless(self, topic: str, partition: int) -> KafkaException:
        """Return the error for a partition that `by_leader` listed under NO_LEADER."""
        if self.topology.partition_count(topic) and self.topology.partition(topic, partition) is not None:
            return failure(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition}")
        code = self.topology.topic_errors.get(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        # The metadata is current: a retry would only delay the error for a misspelt name.
        return failure(code, f"{topic}-{partition}", retriable=False)

    def doubt(self, partitions: Iterable[Partition]) -> None:
        """Let the next `by_leader` ask for the leaders of these partitions again: a request to them failed."""
        self._doubted.update(topic for topic, _ in partitions)

    def pause(self) -> None:
        """Wait a little before the next attempt."""
        self.limit.pause(_RETRY_BACKOFF_S)
