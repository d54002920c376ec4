"""Bounds of the memory that pushed metrics take, and clients that are forgotten."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from random import Random
from uuid import UUID

import pytest

from conformance.telemetry import gauge, metrics_data
from felice.metadata import ClusterImage
from felice.protocol.errors import ApiError, ErrorCode
from felice.protocol.primitives import Buffer
from felice.server.metrics.families import Family, Kind
from felice.server.telemetry import clients, otlp, series
from felice.server.telemetry.clients import ClientTelemetry, Push
from felice.server.telemetry.otlp import BadTelemetry, Point, points
from felice.server.telemetry.series import ClientSeries, Series

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


async def answers(world: World, *pushes: Push | None) -> list[int]:
    """The error codes of pushes, and of questions (None)."""
    codes: list[int] = []
    for push in pushes:
        try:
            if push is None:
                world.telemetry.subscribe(ONE, SELECTORS)
            else:
                await world.telemetry.push(ONE, SELECTORS, push)
        except ApiError as error:
            codes.append(error.code)
        else:
            codes.append(ErrorCode.NONE)
    return codes


def test_wrong_pushes_and_questions_that_alternate_are_throttled() -> None:
    async def scenario(world: World) -> None:
        wrong = Push(7, False, 0, b"")
        unknown, throttled = ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert await answers(world, None, *[wrong, None] * 3, wrong) == [
            ErrorCode.NONE,
            *(unknown, ErrorCode.NONE) * 2,
            *(throttled, throttled),
            throttled,
        ]

    run(scenario)


def test_pushes_at_the_end_that_alternate_with_others_are_throttled() -> None:
    async def scenario(world: World) -> None:
        await world.push(ONE, b"")
        subscription_id = world.telemetry._clients[ONE].subscription_id
        last, other = (Push(subscription_id, is_terminating, 0, b"") for is_terminating in (True, False))
        refused, throttled = ErrorCode.INVALID_REQUEST, ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert await answers(world, *[last, other] * 2) == [ErrorCode.NONE, refused, throttled, refused]
        world.clock.s += 60
        assert await answers(world, other, last) == [ErrorCode.NONE, ErrorCode.NONE]

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


JUNK = b"\x78\x00" * (otlp.MAX_FIELDS + 1)  # fields that no message has
EMPTY_ATTRIBUTES = b"\x0a\x00" * (otlp.MAX_FIELDS + 1)


def nested(data: bytes, *numbers: int) -> bytes:
    """The data as a message in a message."""
    for number in reversed(numbers):
        data = bytes([number << 3 | 2]) + _varint(len(data)) + data
    return data


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


@pytest.mark.parametrize(
    "data",
    [JUNK, nested(JUNK, 1), nested(JUNK, 1, 2), nested(JUNK, 1, 2, 2), nested(EMPTY_ATTRIBUTES, 1, 1)],
    ids=["message", "resource", "scope", "metric", "attributes"],
)
def test_a_push_has_a_limited_number_of_fields(data: bytes) -> None:
    with pytest.raises(BadTelemetry, match="fields"):
        list(points(data))


def test_a_point_has_a_limited_number_of_attributes() -> None:
    many = {f"a{place}": "b" for place in range(40)}
    for data in (metrics_data(gauge("m", 1.0, **many)), metrics_data(gauge("m", 1.0), attributes=many)):
        (one,) = points(data)
        assert one.attributes == tuple(many.items())[: otlp.MAX_ATTRIBUTES]


def test_a_push_is_read_on_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []

    def noted(data: Buffer) -> Iterator[Point]:
        threads.append(threading.current_thread())
        return points(data)

    monkeypatch.setattr(clients, "points", noted)

    async def scenario(world: World) -> None:
        await world.push(ONE, metrics_data(gauge("m", 1.0)))
        assert values(world.telemetry.series) == {"m": [1.0]}
        (thread,) = threads
        assert thread is not threading.main_thread()

    run(scenario)


def test_a_client_that_is_forgotten_during_its_push_leaves_nothing() -> None:
    async def scenario(world: World) -> None:
        for is_back in (False, True):
            pushing = asyncio.create_task(world.push(ONE, metrics_data(gauge("m", 1.0))))
            while ONE not in world.telemetry._clients:
                await asyncio.sleep(0)
            world.clock.s += 1000
            world.telemetry.forget_silent()
            if is_back:
                world.telemetry.subscribe(ONE, SELECTORS)
            await pushing
            assert (values(world.telemetry.series), world.telemetry.series.count) == ({}, 0)

    run(scenario)


def test_a_client_that_is_forgotten_between_two_points_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(world: World) -> None:
        add = world.telemetry.series.add

        def add_and_forget(client: ClientSeries, one: Point) -> None:
            add(client, one)
            world.clock.s += 1000  # the next point waits
            asyncio.get_running_loop().call_soon(world.telemetry.forget_silent)

        monkeypatch.setattr(world.telemetry.series, "add", add_and_forget)
        await world.push(ONE, metrics_data(gauge("m", 1.0), gauge("n", 1.0)))
        assert (values(world.telemetry.series), world.telemetry.series.count) == ({}, 0)

    run(scenario)


def test_clients_are_kept_without_their_texts() -> None:
    """16,384 client ids of 32 KB each would take half a gigabyte."""

    async def scenario(world: World) -> None:
        selectors = {**SELECTORS, "client_id": "".join(["x"] * 30_000)}
        world.telemetry.subscribe(ONE, selectors)
        client = world.telemetry._clients[ONE]
        assert selectors not in gc.get_referents(client)

    run(scenario)


def test_a_pushed_attribute_cannot_be_a_label_of_prometheus_itself() -> None:
    found = Series()
    found.add(found.client(ONE, {}), point(**{"__name__": "other", "..b": "c"}))
    (family,) = [one for one in found.families() if isinstance(one, Family)][2:]
    ((labels, _),) = family.rows
    assert labels.startswith('_name__="other",_b="c",')


def test_a_pushed_metric_cannot_have_the_name_of_one_of_the_pages_own() -> None:
    found = Series()
    found.add(found.client(ONE, {}), point("felice.client.telemetry.clients"))
    assert found.dropped == 1
    assert len([family for family in found.families() if family is not None]) == 2
