"""Limits of the connections that a broker and its listeners have open at once, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from conformance.wire import Wire
from felice.config import BrokerConfig, ConfigError
from felice.protocol.messages.metadata import MetadataRequest
from felice.server.flow.closings import Closing
from felice.server.flow.connection_limits import ConnectionLimits
from felice.server.process.embedded import EmbeddedBroker
from felice.server.quotas.recent_waits import RecentWaits
from unit.server.quotas.test_accepting import TWO, alter
from unit.server.test_turns import HeldClock
from waiting import LIMIT_S

LIMIT = "max.connections"
ASKED = MetadataRequest(topics=[])
# A connection that must wait is not answered for so long.
SILENCE_S = 0.5


@contextlib.contextmanager
def broker_with(tmp_path: Path, **limits: str) -> Iterator[tuple[str, str]]:
    """Yields the addresses of the inter-broker listener and of another one."""
    named = {name.replace("_", "."): value for name, value in limits.items()}
    with EmbeddedBroker(tmp_path, properties={**TWO, **named}) as broker:
        yield broker.bootstrap, f"127.0.0.1:{broker.broker.port('OUTER')}"


def waits(wire: Wire) -> bool:
    wire.send(ASKED)
    return wire.is_silent_for(SILENCE_S)


@pytest.mark.parametrize("limit", ["listener_name_outer_max_connections", "max_connections"])
def test_connections_over_the_limit_wait_until_others_close(
    tmp_path: Path, limit: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    with broker_with(tmp_path, **{limit: "2"}) as (_, outer), Wire(outer, LIMIT_S) as second:
        with Wire(outer, LIMIT_S) as first:
            first.ask(ASKED)
            second.ask(ASKED)
            third = Wire(outer, LIMIT_S)
            assert waits(third)
            first.ask(ASKED)
        assert third.receive(ASKED).brokers
        third.close()
    [line] = [found for found in caplog.records if found.message == "new connections wait until others close"]
    assert line.limit == limit.replace("_", ".") + "=2"  # type: ignore[attr-defined]


def test_a_full_listener_leaves_the_others_open(tmp_path: Path) -> None:
    with (
        broker_with(tmp_path, listener_name_outer_max_connections="1") as (inner, outer),
        Wire(outer, LIMIT_S) as first,
        Wire(outer, LIMIT_S) as second,
    ):
        first.ask(ASKED)
        assert waits(second)
        with Wire(inner, LIMIT_S) as third, Wire(inner, LIMIT_S) as fourth:
            third.ask(ASKED)
            fourth.ask(ASKED)


def test_brokers_displace_the_connection_that_was_idle_longest(tmp_path: Path) -> None:
    with (
        broker_with(tmp_path, max_connections="2") as (inner, outer),
        Wire(outer, LIMIT_S) as idle,
        Wire(outer, LIMIT_S) as busy,
    ):
        idle.ask(ASKED)
        busy.ask(ASKED)
        with Wire(inner, LIMIT_S) as of_broker:
            of_broker.ask(ASKED)
            assert idle.is_closed_by_peer(LIMIT_S)
            busy.ask(ASKED)


class Idle:
    """A connection that counts until its end is noticed, in the next pass of the event loop."""

    def __init__(self, last_active: float = 0.0) -> None:
        self.last_active = last_active
        self.is_closed = False

    def abort(self, reason: str, kind: Closing) -> None:
        self.is_closed = True


@dataclass
class Open:
    """A listener with these connections."""

    name: str
    sessions: list[Idle]


def test_each_of_several_brokers_that_connect_at_once_displaces_another_connection() -> None:
    clients = [Idle(3.0), Idle(1.0), Idle(2.0)]
    inner, outer = Open("PLAINTEXT", []), Open("OUTER", clients)
    config, _ = BrokerConfig.parse({**TWO, LIMIT: "3"})
    limits = ConnectionLimits(lambda: config, [inner, outer])
    for _ in range(2):
        inner.sessions.append(Idle())
        limits.close_excess()
    assert [client.is_closed for client in clients] == [False, True, True]


def test_a_limit_that_is_raised_lets_those_in_that_wait(tmp_path: Path) -> None:
    name = f"listener.name.outer.{LIMIT}"
    with (
        broker_with(tmp_path, listener_name_outer_max_connections="1") as (inner, outer),
        Wire(inner, LIMIT_S) as admin,
        Wire(outer, LIMIT_S) as first,
        Wire(outer, LIMIT_S) as second,
    ):
        first.ask(ASKED)
        assert waits(second)
        assert alter(admin, "", name, "2").error_code == 0
        assert second.receive(ASKED).brokers


@pytest.mark.parametrize("listeners", [TWO, {}])
def test_a_limit_that_is_lowered_closes_the_connections_that_were_idle_longest(
    tmp_path: Path, listeners: dict[str, str]
) -> None:
    with EmbeddedBroker(tmp_path, properties=listeners) as broker:
        outer = f"127.0.0.1:{broker.broker.port('OUTER' if listeners else 'PLAINTEXT')}"
        with (
            Wire(outer, LIMIT_S) as idle,
            Wire(outer, LIMIT_S) as busy,
            Wire(broker.bootstrap, LIMIT_S) as admin,
        ):
            for wire in (idle, busy, admin):
                wire.ask(ASKED)
            assert alter(admin, "", LIMIT, "2").error_code == 0
            assert idle.is_closed_by_peer(LIMIT_S)
            for wire in (busy, admin):
                wire.ask(ASKED)


def test_a_limit_that_is_lowered_by_much_closes_all_excess_connections() -> None:
    async def scenario() -> None:
        clients = [Idle(float(number)) for number in range(300)]
        listener = Open("PLAINTEXT", clients)
        config, _ = BrokerConfig.parse({LIMIT: "10"})
        limits = ConnectionLimits(lambda: config, [listener])
        limits.close_excess()
        assert 0 < sum(client.is_closed for client in clients) < 290
        while sum(client.is_closed for client in clients) < 290:
            listener.sessions = [client for client in clients if not client.is_closed]
            await asyncio.sleep(0.01)
        assert [client.is_closed for client in clients] == [True] * 290 + [False] * 10

    asyncio.run(scenario())


@pytest.mark.parametrize("value", ["-1", "x", "2147483648"])
def test_a_limit_that_means_nothing_is_refused(value: str) -> None:
    with pytest.raises(ConfigError, match=LIMIT):
        BrokerConfig.parse({f"listener.name.plaintext.{LIMIT}": value})


def test_recent_waits_are_those_of_the_last_minute() -> None:
    clock = HeldClock()
    waited = RecentWaits(clock)
    assert waited.average_s() == 0.0
    waited.add(1.0)
    clock.now_s += 50
    waited.add(0.5)
    assert waited.average_s() == 0.75
    clock.now_s += 11
    assert waited.average_s() == 0.5
