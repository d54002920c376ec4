"""Bounds of the memory that pushed metrics take, and clients that are forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from random import Random
from uuid import UUID

import pytest

from conformance.telemetry import gauge, metrics_data
from felice.metadata import ClusterImage
from felice.protocol.errors import ApiError, ErrorCode
from felice.server.metrics.families import Family, Kind
from felice.server.telemetry import clients, series
from felice.server.telemetry.clients import ClientTelemetry, Push
from felice.server.telemetry.otlp import BadTelemetry, Point, points
from felice.server.telemetry.series import Series

ONE, TWO = UUID(int=11), UUID(int=12)
SELECTORS = {
    "client_id": "app",
    "client_software_name": "",
    "client_software_version": "",
    "client_source_address": "127.0.0.1",
    "client_source_port": "7",
}


class Clock:
    def __init__(self) -> None:
        self.s = 1000.0

    def now_ms(self) -> int:
        return int(self.s * 1000)

    def monotonic(self) -> float:
        return self.s


class World:
    def __init__(self, resources: Mapping[str, Mapping[str, str]]) -> None:
        self.clock = Clock()
        self.image = ClusterImage(client_metrics=resources)
        self.telemetry = ClientTelemetry(self.clock, Random(1), lambda: self.image, 1024)

    async def push(self, instance_id: UUID, data: bytes) -> None:
        _, subscription_id, _ = self.telemetry.subscribe(instance_id, SELECTORS)
        await self.telemetry.push(instance_id, SELECTORS, Push(subscription_id, False, 0, data))


def run(
    scenario: Callable[[World], Awaitable[None]], resources: Mapping[str, Mapping[str, str]] | None = None
) -> None:
    asyncio.run(scenario_of(scenario, resources or {"all": {"metrics": "*", "interval.ms": "60000"}}))


async def scenario_of(
    scenario: Callable[[World], Awaitable[None]], resources: Mapping[str, Mapping[str, str]]
) -> None:
    await scenario(World(resources))


def values(found: Series) -> dict[str, list[float]]:
    families = [family for family in found.families() if isinstance(family, Family)]
    return {str(family.name): [value for _, value in family.rows] for family in families[2:]}


def point(name: str = "m", value: float = 1.0, *, is_counter: bool = False, **attributes: str) -> Point:
    return Point(name, tuple(attributes.items()), value, is_delta=is_counter, is_counter=is_counter)


def test_a_client_has_a_limited_number_of_series(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series, "MAX_SERIES_OF_CLIENT", 2)
    found = Series()
    client = found.client(ONE, {})
    for place in range(4):
        found.add(client, point(topic=str(place), value=place))
    found.add(client, point(topic="1", value=7))
    assert values(found) == {"m": [0, 7]}
    assert (found.count, found.dropped) == (2, 2)


def test_all_clients_have_a_limited_number_of_series(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series, "MAX_SERIES", 2)
    found = Series()
    for number in range(4):
        found.add(found.client(UUID(int=number), {}), point())
    assert (found.count, found.dropped) == (2, 2)
    found.forget(UUID(int=0))
    found.add(found.client(TWO, {}), point())
    assert (found.count, found.dropped) == (2, 2)


def test_long_labels_are_dropped_and_long_names_cut() -> None:
    found = Series()
    client = found.client(ONE, {"client_id": "x" * 30_000})
    found.add(client, point("n" * 30_000))
    found.add(client, point(**{f"a{place}": "y" * 300 for place in range(9)}))
    assert [len(name) for name in values(found)] == [256]
    assert found.dropped == 1


def test_a_name_keeps_its_kind_until_its_last_series_is_gone() -> None:
    found = Series()
    found.add(found.client(ONE, {}), point(is_counter=True))
    found.add(found.client(TWO, {}), point())
    assert found.dropped == 1
    found.forget(ONE)
    found.add(found.client(TWO, {}), point())
    (family,) = [one for one in found.families() if isinstance(one, Family)][2:]
    assert family.kind is Kind.GAUGE


def test_a_silent_client_is_forgotten_with_its_series() -> None:
    async def scenario(world: World) -> None:
        await world.push(ONE, metrics_data(gauge("m", 1.0)))
        world.clock.s += 180
        world.telemetry.forget_silent()
        assert values(world.telemetry.series) == {"m": [1.0]}
        world.clock.s += 1
        world.telemetry.forget_silent()
        assert values(world.telemetry.series) == {}

    run(scenario)


def test_the_client_that_was_silent_longest_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "MAX_CLIENTS", 2)

    async def scenario(world: World) -> None:
        for number in (11, 12, 13):
            await world.push(UUID(int=number), metrics_data(gauge("m", float(number))))
        assert values(world.telemetry.series) == {"m": [12.0, 13.0]}

    run(scenario)


def test_only_so_many_points_of_a_push_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "MAX_POINTS_OF_PUSH", 2)

    async def scenario(world: World) -> None:
        await world.push(ONE, metrics_data(*(gauge(f"m{place}", 1.0) for place in range(4))))
        assert list(values(world.telemetry.series)) == ["m0", "m1"]

    run(scenario)


def test_an_unreadable_resource_requests_nothing() -> None:
    async def scenario(world: World) -> None:
        _, _, subscription = world.telemetry.subscribe(ONE, SELECTORS)
        assert subscription.metrics == ("a",)

    run(scenario, {"bad": {"metrics": "*", "match": "client_id=["}, "good": {"metrics": "a"}})


def test_a_push_before_the_interval_is_over_is_throttled() -> None:
    async def scenario(world: World) -> None:
        await world.push(ONE, b"")
        subscription_id = world.telemetry._clients[ONE].subscription_id
        again = Push(subscription_id, False, 0, b"")
        world.clock.s += 59.9
        with pytest.raises(ApiError) as error:
            await world.telemetry.push(ONE, SELECTORS, again)
        assert error.value.code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        world.clock.s += 0.1
        await world.telemetry.push(ONE, SELECTORS, again)

    run(scenario)


def test_random_bytes_are_refused_or_read_but_never_fail_otherwise() -> None:
    random = Random(7)
    whole = metrics_data(gauge("m", 1.5, topic="t"), attributes={"a": "b"})
    for _ in range(3000):
        data = bytearray(whole)
        for _ in range(random.randrange(1, 4)):
            data[random.randrange(len(data))] = random.randrange(256)
        try:
            assert all(
                isinstance(one, Point) for one in points(bytes(data[: random.randrange(len(data) + 1)]))
            )
        except BadTelemetry:
            continue
