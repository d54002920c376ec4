"""Limits of connections for single addresses."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest

from conformance.wire import ConnectionClosed, Wire
from felice.config import BrokerConfig, ConfigError
from felice.metadata import ClusterImage
from felice.metadata.client_entity import DEFAULT, ClientEntity
from felice.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntryData, OpData
from felice.protocol.messages.describe_client_quotas import EntityData
from felice.protocol.messages.metadata import MetadataRequest
from felice.server.process.embedded import EmbeddedBroker
from felice.server.quotas.bounded import MAX_CLIENTS
from felice.server.quotas.connection_rates import ConnectionRates, plain_address
from felice.server.quotas.rates import Window
from unit.server.test_turns import HeldClock
from waiting import wait_until


def limited(**limits: str) -> tuple[HeldClock, ConnectionRates]:
    clock = HeldClock()
    rates = ConnectionRates(clock, lambda: Window())
    named = {"default": DEFAULT, "one": "10.0.0.1", "six": "2001:DB8::0001"}
    rates.follow(
        ClusterImage(
            client_configs={
                ClientEntity(ip=named[name]): {"connection_creation_rate": value}
                for name, value in limits.items()
            }
        )
    )
    return clock, rates


def test_without_a_limit_every_connection_is_welcome() -> None:
    _, rates = limited(one="1")
    assert [rates.record("10.0.0.2") for _ in range(100)] == [0.0] * 100


def test_connections_over_the_rate_wait_at_most_a_second_and_do_not_count() -> None:
    clock, rates = limited(one="1")
    assert [rates.record("10.0.0.1") for _ in range(10)] == [0.0] * 10
    assert [rates.record("10.0.0.1") for _ in range(100)] == [1.0] * 100
    clock.now_s += 11
    assert rates.record("10.0.0.1") == 0.0


def test_the_default_applies_to_each_address_without_a_limit_of_its_own() -> None:
    _, rates = limited(default="1", one="100")
    for address in ("10.0.0.2", "10.0.0.3"):
        assert [rates.record(address) > 0 for _ in range(11)] == [False] * 10 + [True]
    assert rates.record("10.0.0.1") == 0.0


def test_an_address_counts_in_all_its_forms() -> None:
    _, rates = limited(six="1", one="1")
    assert [rates.record("2001:db8::1") > 0 for _ in range(11)][-1]
    assert [rates.record("::ffff:10.0.0.1") > 0 for _ in range(11)][-1]
    assert plain_address("fe80::1%eth0") == "fe80::1"
    assert plain_address("not an address") == "not an address"


def test_memory_is_bounded() -> None:
    _, rates = limited(default="1")
    for number in range(MAX_CLIENTS + 50):
        rates.record(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}")
    assert len(rates._rates) == MAX_CLIENTS


def asks(bootstrap: str) -> bool:
    """Whether a new connection gets an answer."""
    with Wire(bootstrap) as own:
        asked = MetadataRequest(topics=[])
        try:
            own.send(asked, 9)
            own.receive(asked, 9)
        except (ConnectionClosed, ConnectionError):
            return False
        return True


def test_a_connection_over_the_rate_is_silent_and_closed(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker, Wire(broker.bootstrap) as wire:
        entity = [EntityData(entity_type="ip", entity_name="127.0.0.1")]

        def alter(*, remove: bool) -> None:
            change = OpData(key="connection_creation_rate", value=1.0, remove=remove)
            wire.ask(AlterClientQuotasRequest(entries=[EntryData(entity=entity, ops=[change])]))

        alter(remove=False)
        began_all_s = time.monotonic()
        answered = [asks(broker.bootstrap) for _ in range(10)]
        assert answered == [True] * 10
        is_slow = time.monotonic() - began_all_s > 1
        took_s: list[float] = []

        def is_refused() -> bool:
            began_s = time.monotonic()
            answered = asks(broker.bootstrap)
            took_s.append(time.monotonic() - began_s)
            return not answered

        # At once, unless the machine is so slow that the first connections are too old to count.
        wait_until(is_refused)
        assert len(took_s) == 1 or is_slow
        assert took_s[-1] > 0.05
        alter(remove=True)
        assert asks(broker.bootstrap)


def test_an_override_counts_instead_of_the_limit_of_all_addresses(tmp_path: Path) -> None:
    properties = {
        "max.connections.per.ip": "100",
        "max.connections.per.ip.overrides": "10.0.0.1:5,127.0.0.1:2",
    }
    with EmbeddedBroker(tmp_path, properties=properties) as broker:
        with Wire(broker.bootstrap), Wire(broker.bootstrap):
            assert not asks(broker.bootstrap)
        host, _, port = broker.bootstrap.rpartition(":")
        deadline = time.monotonic() + 60
        while not asks(broker.bootstrap):
            assert time.monotonic() < deadline
        socket.create_connection((host, int(port))).close()


@pytest.mark.parametrize("text", ["10.0.0.1", "10.0.0.1:", "10.0.0.1:-5", "host:5", "10.0.0.1:x"])
def test_overrides_that_mean_nothing_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"max\.connections\.per\.ip\.overrides"):
        BrokerConfig.parse({"max.connections.per.ip.overrides": text})


def test_overrides_are_read_with_their_addresses() -> None:
    config, _ = BrokerConfig.parse({"max.connections.per.ip.overrides": "10.0.0.1:5, [::1]:7"})
    assert config.per_ip_overrides == {"10.0.0.1": 5, "::1": 7}


def test_refused_connections_do_not_raise_the_rate() -> None:
    clock, rates = limited(one="1")
    for _ in range(500):
        rates.record("10.0.0.1")
    assert rates._rates["10.0.0.1"].per_second(clock.now_s) == 1.0
