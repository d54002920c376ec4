"""`felice.client` and confluent_kafka give the same result, or raise the same error, for each call of a table.

A line of `client_calls.txt` that ends with `## row` may differ: the row of docs/porting.md whose first cell that is
describes the difference. A difference that is gone must lose its mark, and a row must exist.
Consumers mostly wait, above all librdkafka's for its next second: calls of consumers run at the same time, a few at
once, and each has its test.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

import felice.client
from conformance.client_worlds import World, agree
from conformance.targets import IS_APACHE, Target
from waiting import LIMIT_S

PORTING = (Path(__file__).parents[2] / "docs" / "porting.md").read_text()
ROWS = {line.split("|")[1].strip() for line in PORTING.splitlines() if line.startswith("|")}
LINES = Path(__file__).with_name("client_calls.txt").read_text().splitlines()
PARTS = [line.partition("  ## ") for line in LINES if line and not line.startswith("#")]
CALLS = [(call, row) for call, _, row in PARTS]
_BESIDE_EACH_OTHER = ("c = consumer(", "c = aconsumer(", "p = aproducer(")
_AT_ONCE = 16
_FURTHER_TRIES = 10

pytestmark = pytest.mark.skipif(IS_APACHE, reason="compares two clients, not brokers")


@pytest.fixture(scope="module")
def worlds(strict_broker: Target) -> tuple[World, World]:
    """Both clients beside a broker with one topic: three partitions, five records in partition 0."""
    topic = "differences"
    config = {"bootstrap.servers": strict_broker.bootstrap}
    with felice.client.AdminClient(config) as admin:
        admin.create_topics([felice.client.NewTopic(topic, 3)])[topic].result(LIMIT_S)
    with felice.client.Producer(config) as producer:
        for number in range(5):
            producer.produce(topic, b"%d" % number, partition=0, timestamp=1000 + number)
    return (
        World("felice.client", strict_broker.bootstrap, topic),
        World("confluent_kafka", strict_broker.bootstrap, topic),
    )


@pytest.fixture(scope="module")
def consumers_outcomes(
    worlds: tuple[World, World], request: pytest.FixtureRequest
) -> Iterator[dict[str, list[Future[object]]]]:
    """What the selected calls of consumers give in both clients. The calls have groups of their own."""
    selected = [
        item.callspec.params["call"]
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.path == request.path
    ]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        yield {
            call: [pool.submit(world.outcome, call) for world in worlds]
            for call in selected
            if call.startswith(_BESIDE_EACH_OTHER)
        }


@pytest.mark.parametrize(("call", "row"), CALLS, ids=[re.sub(r"\W+", "-", call)[:80] for call, _ in CALLS])
def test_both_clients_answer_alike(
    call: str,
    row: str,
    worlds: tuple[World, World],
    consumers_outcomes: dict[str, list[Future[object]]],
) -> None:
    if call in consumers_outcomes:
        ours, theirs = (outcome.result() for outcome in consumers_outcomes[call])
    else:
        ours, theirs = (world.outcome(call) for world in worlds)
    if row:
        assert row in ROWS, f"docs/porting.md has no row {row!r}"
        # A difference of a few milliseconds may not show on a busy machine.
        differ = not agree(ours, theirs) or any(
            not agree(*(world.outcome(call) for world in worlds)) for _ in range(_FURTHER_TRIES)
        )
        assert differ, f"no longer different: {ours}"
    else:
        assert agree(ours, theirs), f"\n  felice.client:   {ours}\n  confluent_kafka: {theirs}"
