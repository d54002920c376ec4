"""Which quota applies to a client: Kafka's precedence."""

from __future__ import annotations

from itertools import chain

import pytest

from felice.config import BrokerConfig
from felice.metadata import ClusterImage
from felice.metadata.client_entity import DEFAULT, ClientEntity
from felice.server.quotas.bounded import MAX_CLIENTS
from felice.server.quotas.client_quotas import ClientQuotas
from felice.server.quotas.limits import Client, Limit, QuotaConfigs, QuotaKind, limit_of
from unit.server.test_turns import HeldClock

PRODUCE, FETCH, REQUEST, MUTATION = (
    QuotaKind.PRODUCE,
    QuotaKind.FETCH,
    QuotaKind.REQUEST,
    QuotaKind.MUTATION,
)

ALICE = ClientEntity("alice")

ORDER = [
    (ClientEntity("alice", "app"), Client("alice", "app")),
    (ClientEntity("alice", DEFAULT), Client("alice", "app")),
    (ClientEntity("alice"), Client("alice", None)),
    (ClientEntity(DEFAULT, "app"), Client("alice", "app")),
    (ClientEntity(DEFAULT, DEFAULT), Client("alice", "app")),
    (ClientEntity(DEFAULT), Client("alice", None)),
    (ClientEntity(client_id="app"), Client(None, "app")),
    (ClientEntity(client_id=DEFAULT), Client(None, "app")),
]


def configs(*entities: ClientEntity, kind: QuotaKind = PRODUCE) -> QuotaConfigs:
    """Each entity has its place in the arguments as its quota."""
    return {entity: {kind.value: str(place)} for place, entity in enumerate(entities)}


@pytest.mark.parametrize("strongest", range(len(ORDER)))
def test_the_most_specific_entity_counts(strongest: int) -> None:
    entities = [entity for entity, _ in ORDER]
    found = limit_of(configs(*entities[strongest:]), PRODUCE, "alice", "app")
    assert found == Limit(0.0, ORDER[strongest][1])


def test_entities_of_others_do_not_count() -> None:
    others = [
        ClientEntity("bob"),
        ClientEntity("bob", "app"),
        ClientEntity(client_id="other"),
        ClientEntity(ip=DEFAULT),
    ]
    assert limit_of(configs(*others), PRODUCE, "alice", "app") is None


def test_an_entity_without_this_quota_does_not_hide_a_weaker_one() -> None:
    found = {**configs(ClientEntity("alice"), kind=FETCH), **configs(ClientEntity(client_id="app"))}
    assert limit_of(found, PRODUCE, "alice", "app") == Limit(0.0, Client(None, "app"))


def test_a_value_that_is_no_number_does_not_count() -> None:
    found = {ClientEntity("alice"): {PRODUCE.value: "much"}, ClientEntity(DEFAULT): {PRODUCE.value: "7"}}
    assert limit_of(found, PRODUCE, "alice", "app") == Limit(7.0, Client("alice", None))


class Fixture:
    def __init__(self, found: QuotaConfigs) -> None:
        self.clock = HeldClock()
        config = BrokerConfig()
        self.quotas = ClientQuotas(self.clock, lambda: config)
        self.follow(found)

    def follow(self, found: QuotaConfigs) -> None:
        self.quotas.follow(ClusterImage(client_configs=found))


def limited(kind: QuotaKind, value: float, entity: ClientEntity = ALICE) -> QuotaConfigs:
    return {entity: {kind.value: str(value)}}


def test_without_quotas_nothing_is_measured() -> None:
    fixture = Fixture({ClientEntity("alice"): {"SCRAM-SHA-256": "secret"}})
    assert not fixture.quotas.are_set
    assert fixture.quotas.max_fetch_bytes("alice", "app") == 2**31 - 1
    fixture.follow(limited(PRODUCE, 1))
    assert fixture.quotas.are_set


def test_a_changed_quota_counts_at_once_with_what_was_used() -> None:
    fixture = Fixture(limited(PRODUCE, 1_000_000))
    assert fixture.quotas.record(PRODUCE, "alice", "app", 20_000) == 0.0
    fixture.follow(limited(PRODUCE, 1_000))
    assert fixture.quotas.record(PRODUCE, "alice", "app", 0) == 10.0
    fixture.follow({})
    assert fixture.quotas.record(PRODUCE, "alice", "app", 1e9) == 0.0


def test_clients_of_a_user_share_the_users_quota_and_users_of_the_default_do_not() -> None:
    fixture = Fixture(limited(PRODUCE, 1_000, ClientEntity(DEFAULT)))
    fixture.quotas.record(PRODUCE, "alice", "one", 20_000)
    assert fixture.quotas.record(PRODUCE, "alice", "two", 0) == 10.0
    assert fixture.quotas.record(PRODUCE, "bob", "one", 0) == 0.0


def test_time_waits_at_most_a_window() -> None:
    fixture = Fixture(limited(REQUEST, 1.0))
    assert fixture.quotas.record(REQUEST, "alice", "app", 100_000.0) == 1.0


def test_bandwidth_waits_at_most_an_hour() -> None:
    fixture = Fixture(limited(PRODUCE, 1.0))
    assert fixture.quotas.record(PRODUCE, "alice", "app", 1e12) == 3600.0


def test_a_fetch_gets_at_most_the_bytes_of_a_window() -> None:
    assert Fixture(limited(FETCH, 1_000)).quotas.max_fetch_bytes("alice", "app") == 10_000


def test_records_that_were_not_sent_are_taken_back() -> None:
    fixture = Fixture(limited(FETCH, 1_000))
    assert fixture.quotas.record(FETCH, "alice", "app", 30_000) > 0
    fixture.quotas.take_back(FETCH, "alice", "app", 30_000)
    assert fixture.quotas.record(FETCH, "alice", "app", 0) == 0.0


def test_mutations() -> None:
    fixture = Fixture(limited(MUTATION, 1.0))
    assert fixture.quotas.record_mutations("alice", "app", 15) == 4.0
    assert fixture.quotas.mutations_exceeded_s("alice", "other") == 4.0
    fixture.clock.now_s += 3.0
    assert fixture.quotas.mutations_exceeded_s("alice", "app") == 1.0
    assert fixture.quotas.mutations_exceeded_s("bob", "app") == 0.0


def test_memory_is_bounded_however_many_names_clients_use() -> None:
    fixture = Fixture(limited(PRODUCE, 1.0, ClientEntity(client_id=DEFAULT)))
    for number in range(MAX_CLIENTS + 100):
        fixture.quotas.record(PRODUCE, "ANONYMOUS", f"client-{number}", 1.0)
    quotas = fixture.quotas
    assert len(quotas._limits) == len(quotas._rates) == len(quotas.throttled_s) == MAX_CLIENTS


def test_long_client_ids_are_not_kept_whole_and_have_their_own_quotas() -> None:
    long, other = "c" * 32_000, "c" * 31_999 + "d"
    quotas = Fixture(limited(PRODUCE, 1.0, ClientEntity(client_id=DEFAULT))).quotas
    assert quotas.record(PRODUCE, "alice", long, 1000.0) > 0
    assert quotas.record(PRODUCE, "alice", other, 1.0) == 0
    clients = [client for _, client in chain(quotas._rates, quotas.throttled_s)]
    names = [name for _, _, name in quotas._limits] + [str(client.client_id) for client in clients]
    assert len(names) == 6
    assert max(map(len, names)) < 400


def test_a_quota_of_a_long_client_id_counts() -> None:
    long = "c" * 32_000
    found = limit_of(limited(PRODUCE, 1.0, ClientEntity(client_id=long)), PRODUCE, "alice", long)
    assert found is not None
    assert found.value == 1.0
