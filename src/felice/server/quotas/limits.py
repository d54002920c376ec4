"""Which quota applies to a client. Pure.

Keeps true: Kafka's precedence, separately for each kind of quota: if the most specific entity lacks this kind, the
            next entity that has it applies. From the most to the least specific:

| entity                        | counted for               |
|-------------------------------|---------------------------|
| user and client id            | each pair of them         |
| user, default client id       | each pair                 |
| user                          | the user                  |
| default user and client id    | each pair                 |
| default user, default client  | each pair                 |
| default user                  | each user                 |
| client id                     | the client id             |
| default client id             | each client id            |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import NamedTuple

from felice.dataclass import dataclass
from felice.metadata.client_entity import DEFAULT, ClientEntity
from felice.server.quotas.bounded import short_name


class QuotaKind(Enum):
    """The keys of quotas. Their values are texts of numbers, which are whole if `is_whole`."""

    PRODUCE = "producer_byte_rate"
    FETCH = "consumer_byte_rate"
    REQUEST = "request_percentage"
    MUTATION = "controller_mutation_rate"
    CONNECTIONS = "connection_creation_rate"

    @property
    def is_whole(self) -> bool:
        """Whether fractions are refused."""
        return self not in (QuotaKind.REQUEST, QuotaKind.MUTATION)


CLIENT_KINDS = (QuotaKind.PRODUCE, QuotaKind.FETCH, QuotaKind.REQUEST, QuotaKind.MUTATION)
IP_KINDS = (QuotaKind.CONNECTIONS,)

QuotaConfigs = Mapping[ClientEntity, Mapping[str, str]]


class Client(NamedTuple):
    """The clients that share a quota: those with this user and this client id (its `short_name`). None matches any."""

    user: str | None
    client_id: str | None


@dataclass(frozen=True, slots=True)
class Limit:
    """A quota, and the clients that share it.

    `value` is per second: bytes, partitions (MUTATION) or connections; for REQUEST percent of the event loop.
    """

    value: float
    shared_by: Client


def limit_of(configs: QuotaConfigs, kind: QuotaKind, user: str, client_id: str) -> Limit | None:
    """The quota of a client; None if it has none."""
    for entity, shared_by in _candidates(user, client_id):
        value = number(configs.get(entity, {}).get(kind.value))
        if value is not None:
            return Limit(value, shared_by)
    return None


def _candidates(user: str, client_id: str) -> Iterator[tuple[ClientEntity, Client]]:
    short_id = short_name(client_id)
    pair = Client(user, short_id)
    for named in (user, DEFAULT):
        yield ClientEntity(named, client_id), pair
        yield ClientEntity(named, DEFAULT), pair
        yield ClientEntity(named), Client(user, None)
    yield ClientEntity(client_id=client_id), Client(None, short_id)
    yield ClientEntity(client_id=DEFAULT), Client(None, short_id)


def number(text: str | None) -> float | None:
    """The value of a quota; None if it is not a number, which only another program can have written."""
    try:
        return None if text is None else float(text)
    except ValueError:
        return None
