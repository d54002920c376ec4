"""Prometheus' text format, and that writing it does not hold the event loop."""

from __future__ import annotations

import asyncio

from felice.server.metrics.exposition import SLICE_S, render
from felice.server.metrics.families import (
    PAUSE,
    Families,
    Family,
    Kind,
    counter,
    gauge,
    histogram_rows,
    label_text,
)
from felice.server.metrics.names import Dialect, MBean


class SlowClock:
    """Every look at it takes a tenth of a slice."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def now_ms(self) -> int:
        return int(self.now_s * 1000)

    def monotonic(self) -> float:
        self.now_s += SLICE_S / 10
        return self.now_s


async def page(families: Families, dialect: Dialect = Dialect.STRIMZI) -> str:
    return b"".join(await render(families, dialect, SlowClock())).decode()


def test_families_have_help_type_and_rows() -> None:
    def families() -> Families:
        yield gauge(MBean("kafka.server", "ReplicaManager", "LeaderCount"), "Led.", 3)
        yield PAUSE
        yield Family("of_topic", Kind.COUNTER, "Counted.", [(label_text(topic="t", partition=0), 1.5)])

    assert asyncio.run(page(families())) == (
        "# HELP kafka_server_replicamanager_leadercount Led.\n"
        "# TYPE kafka_server_replicamanager_leadercount gauge\n"
        "kafka_server_replicamanager_leadercount 3\n"
        "# HELP of_topic Counted.\n"
        "# TYPE of_topic counter\n"
        'of_topic{topic="t",partition="0"} 1.5\n'
    )


def test_a_family_without_rows_is_left_out() -> None:
    assert asyncio.run(page(iter([Family("empty", Kind.GAUGE, "None.", [])]))) == ""


def test_labels_from_clients_cannot_forge_lines() -> None:
    text = label_text(consumergroup='a"} 1\nforged 2\\')
    assert text == 'consumergroup="a\\"} 1\\nforged 2\\\\"'


def test_a_lone_surrogate_does_not_break_the_page() -> None:
    rows = [(label_text(consumergroup="\ud800"), 1.0)]
    assert "\\ud800" in asyncio.run(page(iter([Family("of_group", Kind.GAUGE, "x", rows)])))


def test_a_name_of_its_own_in_one_dialect() -> None:
    family = Family("a", Kind.GAUGE, "x", [("", 1)], {Dialect.CONFLUENT: "b"})
    assert "\nb 1\n" in asyncio.run(page(iter([family]), Dialect.CONFLUENT))
    assert "\na 1\n" in asyncio.run(page(iter([family]), Dialect.REPORTER))


def test_quantiles_are_gauges_with_a_label() -> None:
    rows = dict(histogram_rows({'request="Fetch"': [0.001, 0.003]}, 1000.0))
    assert rows['request="Fetch",quantile="0.50"'] == 3.0
    assert rows['request="Fetch",quantile="0.999"'] == 3.0
    assert dict(histogram_rows({"": []})) == {
        f'quantile="{label}"': 0.0 for label in ("0.50", "0.75", "0.95", "0.98", "0.99", "0.999")
    }


def test_the_event_loop_runs_between_slices() -> None:
    async def scenario() -> tuple[int, str]:
        turns, is_done = 0, False

        async def count() -> None:
            nonlocal turns
            while not is_done:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())
        rows = [(label_text(partition=number), number) for number in range(50_000)]
        text = await page(iter([Family("many", Kind.GAUGE, "x", rows)]))
        is_done = True
        await counting
        return turns, text

    turns, text = asyncio.run(scenario())
    assert turns >= 50  # of 1,000 blocks of rows, about ten fit into a slice
    assert text.count("\n") == 50_002


def test_computing_between_families_pauses_too() -> None:
    def families() -> Families:
        for _ in range(100):
            yield PAUSE
        yield counter("one", "x", 1)

    async def scenario() -> int:
        writing = asyncio.create_task(render(families(), Dialect.STRIMZI, SlowClock()))
        turns = 0
        while not writing.done():
            turns += 1
            await asyncio.sleep(0)
        return turns

    assert asyncio.run(scenario()) > 5
