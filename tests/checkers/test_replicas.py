"""The checker of replicas passes good histories and names each kind of bad one."""

from __future__ import annotations

import pytest

from checkers.replicas import (
    Batch,
    Replicas,
    Seen,
    State,
    copies_anomalies,
    starts_anomalies,
    state_anomalies,
)

A, B, B2 = Batch(0, 1, 0, 7), Batch(2, 2, 0, 8), Batch(2, 2, 1, 9)


def seen(
    broker: int = 1,
    incarnation: int = 0,
    epoch: int = 0,
    *,
    leads: bool = True,
    end: int = 3,
    mark: int = 3,
    batches: tuple[Batch, ...] = (),
    start: int = 0,
) -> Seen:
    return Seen(1.0, "t-0", broker, incarnation, epoch, leads, end, mark, batches, start)


def anomalies_of(*looks: Seen) -> list[str]:
    replicas = Replicas()
    for look in looks:
        replicas.check(look)
    return [fault.split(":")[0].split(" 4")[0] for fault in replicas.anomalies]


GOOD = seen(batches=(A, B))


def test_equal_replicas_pass() -> None:
    assert (
        anomalies_of(GOOD, seen(2, leads=False, mark=2, batches=(A,)), seen(2, epoch=1, batches=(A, B))) == []
    )


def test_records_that_were_never_committed_may_disappear() -> None:
    assert anomalies_of(seen(mark=2, batches=(A,)), seen(2, epoch=1, end=2, mark=2)) == []


def test_a_leader_of_an_old_epoch_may_have_a_shorter_log() -> None:
    assert anomalies_of(seen(2, epoch=5, batches=(A, B)), seen(1, epoch=4, end=2, mark=2)) == []


@pytest.mark.parametrize(
    ("look", "fault"),
    [
        (seen(2, epoch=1, end=2, mark=2), "lost"),
        (seen(2, leads=False, batches=(A, B2)), "changed"),
        (seen(2, leads=False, batches=(Batch(1, 1, 0, 3),)), "changed"),
        (seen(mark=2), "watermark back"),
        (seen(2), "two leaders"),
        (seen(1, 1), "two leaders"),
        (seen(2, leads=False, mark=4), "watermark"),
    ],
)
def test_an_anomaly_is_named(look: Seen, fault: str) -> None:
    assert fault in anomalies_of(GOOD, look)[0]


def test_deleted_records_may_differ_or_be_unknown() -> None:
    """A replica that begins later never showed them."""
    late = seen(batches=(B,), start=2)
    assert anomalies_of(late, seen(2, leads=False, batches=(A, B))) == []
    inside = seen(batches=(A, B), start=1)
    assert anomalies_of(inside, seen(2, leads=False, batches=(Batch(0, 1, 0, 3), B)))[0] == "changed"


def test_the_watermark_of_an_empty_replica_may_lie_inside_a_batch() -> None:
    first = seen(end=1, mark=1, batches=(Batch(0, 0, 0, 7),))
    begun = seen(2, leads=False, end=2, mark=2, start=2)
    assert anomalies_of(first, begun, seen(end=4, mark=4, batches=(Batch(1, 3, 0, 7),))) == []


def test_a_replica_serves_the_batch_around_its_log_start() -> None:
    served = {"t-0": {1: (1, A), 2: (0, A), 3: (1, B), 4: (3, None)}}
    assert starts_anomalies(served) == []
    served["t-0"][2] = 2, A
    assert len(starts_anomalies(served)) == 1


def test_a_watermark_is_checked_when_it_moves() -> None:
    replicas = Replicas()
    replicas.check_high_watermark(1.0, "t-0", 2, 3, 3)
    assert replicas.anomalies == []
    replicas.check_high_watermark(1.0, "t-0", 2, 4, 3)
    assert replicas.anomalies[0].startswith("watermark 4 above the log's end 3")


def test_a_leader_without_a_session_is_named() -> None:
    replicas = Replicas()
    replicas.report_zombie(2.0, "t-0", 1, 4, ended_s=1.5)
    assert replicas.anomalies[0].startswith("zombie: broker 1 leads t-0 in epoch 4")


def state(leader: int, epoch: int, *isr: int, controller: int = 1, writer: int = 0) -> State:
    return State(0.0, "t-0", leader, epoch, isr, controller, writer)


def test_correct_states_pass() -> None:
    states = [
        state(1, 0, 1, 2),
        state(1, 0, 1),
        state(1, 0, 1, 2, writer=1),
        state(2, 1, 2),
        state(-1, 2, 2),
        state(2, 3, 2),
    ]
    assert state_anomalies(states) == []


@pytest.mark.parametrize(
    ("next_state", "fault"),
    [
        (state(1, 3, 1, 2), "epoch back"),
        (state(2, 4, 1, 2), "two leaders of one epoch"),
        (state(3, 5, 3), "elected out of sync"),
        (state(1, 4, 1, controller=0), "controller epoch back"),
        (state(1, 4), "nobody in sync"),
        (state(1, 4, 1, 2, 3, writer=2), "in sync, though no leader said so"),
        (state(2, 5, 1, 2, 3, writer=2), "in sync, though no leader said so"),
    ],
)
def test_an_impossible_next_state_is_named(next_state: State, fault: str) -> None:
    assert state_anomalies([state(1, 4, 1, 2), next_state])[0].startswith(fault)


def test_partitions_are_checked_separately() -> None:
    other = State(0.0, "t-1", 2, 0, (2,))
    assert state_anomalies([state(1, 4, 1, 2), other]) == []


def test_replicas_are_equal_after_recovery() -> None:
    assert copies_anomalies({"t-0": {1: (3, 3), 2: (3, 3)}}) == []
    assert copies_anomalies({"t-0": {1: (3, 3), 2: (3, 2)}}) != []
    assert copies_anomalies({"t-0": {1: (3, 3), 2: (4, 4)}}) != []
