from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from felice.pipelines.spark.planning import (
    OffsetRange,
    count_new,
    plan_batch,
    plan_tasks,
    share_limit,
)

A0, A1, B0 = ("a", 0), ("a", 1), ("b", 0)


def test_a_topic_made_again_is_read_from_its_beginning_and_is_a_loss() -> None:
    start, end = {("a", 0): 50, ("b", 0): 5}, {("a", 0): 70, ("b", 0): 9}
    batch = plan_batch(start, end, {("a", 0): 0}, {"a"})
    assert batch.ranges == (OffsetRange("a", 0, 0, 70), OffsetRange("b", 0, 5, 9))
    assert batch.losses == (
        "topic a was deleted and created again; what the query had not read of it is lost",
    )


def ranges(*sizes: int) -> list[OffsetRange]:
    return [OffsetRange("t", index, 100, 100 + size) for index, size in enumerate(sizes)]


def test_many_topic_partitions_become_as_many_tasks_as_there_are_cores() -> None:
    tasks = plan_tasks(ranges(10, 10, 10, 10, 10, 10, 10, 10), cores=2)
    assert [sum(piece.size for piece in task) for task in tasks] == [40, 40]


def test_a_topic_partition_is_not_split_unless_asked() -> None:
    assert plan_tasks(ranges(1000), cores=4) == [(OffsetRange("t", 0, 100, 1100),)]


def test_loads_are_levelled_largest_first() -> None:
    tasks = plan_tasks(ranges(90, 10, 40, 40), cores=2)
    assert sorted(sum(piece.size for piece in task) for task in tasks) == [90, 90]


def test_empty_ranges_cost_no_task() -> None:
    assert plan_tasks(ranges(0, 5, 0), cores=4) == [(OffsetRange("t", 1, 100, 105),)]
    assert plan_tasks(ranges(0, 0), cores=4) == []


def test_min_partitions_splits_the_larger_ranges() -> None:
    tasks = plan_tasks(ranges(90, 10), cores=1, min_partitions=4)
    assert [(piece.partition, piece.start, piece.end) for task in sorted(tasks) for piece in task] == [
        (0, 100, 130),
        (0, 130, 160),
        (0, 160, 190),
        (1, 100, 110),
    ]


def test_min_partitions_makes_no_empty_tasks() -> None:
    assert len(plan_tasks(ranges(2), cores=1, min_partitions=10)) == 2


def test_no_task_passes_max_records_per_partition() -> None:
    tasks = plan_tasks(ranges(100, 30, 30), cores=2, max_records_per_partition=40)
    assert all(sum(piece.size for piece in task) <= 40 for task in tasks)
    assert len(tasks) == 5


def test_very_many_parts_are_planned_quickly() -> None:
    assert len(plan_tasks(ranges(20_000_000), cores=2, max_records_per_partition=1000)) == 20_000


@given(
    st.lists(st.integers(0, 60), max_size=6),
    st.integers(1, 5),
    st.none() | st.integers(1, 12),
    st.none() | st.integers(1, 30),
)
def test_every_offset_is_read_exactly_once(
    sizes: list[int], cores: int, min_partitions: int | None, limit: int | None
) -> None:
    wanted = ranges(*sizes)
    tasks = plan_tasks(wanted, cores=cores, min_partitions=min_partitions, max_records_per_partition=limit)
    read = [
        (piece.partition, offset)
        for task in tasks
        for piece in task
        for offset in range(piece.start, piece.end)
    ]
    assert sorted(read) == [
        (piece.partition, offset) for piece in wanted for offset in range(piece.start, piece.end)
    ]
    assert all(task for task in tasks)
    assert len(tasks) >= min(min_partitions or 0, sum(sizes))


def test_a_limit_is_shared_by_size() -> None:
    end = share_limit(100, {A0: 0, A1: 0, B0: 50}, {A0: 300, A1: 100, B0: 50})
    assert end == {A0: 75, A1: 25, B0: 50}


def test_a_small_partition_is_not_starved_by_the_limit() -> None:
    assert share_limit(10, {A0: 0, A1: 5}, {A0: 10_000, A1: 6})[A1] == 6


def test_what_fits_the_limit_is_read_whole() -> None:
    end = {A0: 30, A1: 70}
    assert share_limit(100, {A0: 0, A1: 0}, end) == end


def test_an_end_behind_the_start_is_passed_on_to_be_reported() -> None:
    assert share_limit(5, {A0: 10, A1: 0}, {A0: 3, A1: 100}) == {A0: 3, A1: 5}


@given(
    st.integers(1, 100),
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=6),
)
def test_limited_batches_reach_the_end_and_never_pass_it(limit: int, spans: list[tuple[int, int]]) -> None:
    start = {("t", index): low for index, (low, _) in enumerate(spans)}
    goal = {("t", index): low + size for index, (low, size) in enumerate(spans)}
    for _ in range(sum(size for _, size in spans) + 1):
        end = share_limit(limit, start, goal)
        assert all(start[key] <= end[key] <= goal[key] for key in goal)
        assert count_new(start, end) <= limit + len(spans)
        assert end != start or start == goal
        start = end
    assert start == goal


def test_a_batch_is_what_lies_between_two_checkpoints() -> None:
    batch = plan_batch({A0: 5, A1: 7}, {A0: 9, A1: 7}, {})
    assert batch.ranges == (OffsetRange("a", 0, 5, 9),)
    assert batch.losses == ()


def test_a_new_partition_is_read_from_its_beginning() -> None:
    batch = plan_batch({A0: 5}, {A0: 5, A1: 3}, {A1: 0})
    assert batch.ranges == (OffsetRange("a", 1, 0, 3),)
    assert batch.losses == ()


def test_a_new_partition_that_lost_its_beginning_is_a_loss() -> None:
    batch = plan_batch({A0: 5}, {A0: 5, A1: 3}, {A1: 2})
    assert batch.ranges == (OffsetRange("a", 1, 2, 3),)
    assert "partition 1 of topic a is new, but its first 2 records" in batch.losses[0]


def test_a_partition_that_is_gone_is_a_loss() -> None:
    batch = plan_batch({A0: 5, B0: 5}, {A0: 6}, {})
    assert batch.ranges == (OffsetRange("a", 0, 5, 6),)
    assert "partition 0 of topic b is gone" in batch.losses[0]


def test_a_checkpoint_of_another_query_is_told_as_such() -> None:
    batch = plan_batch({A0: 5, A1: 5, B0: 5}, {B0: 6}, {}, reads={"b"}.__contains__)
    (loss,) = batch.losses
    assert loss.startswith("the checkpoint is of a query that reads topic a, and this query does not")


def test_an_offset_that_went_back_is_a_loss() -> None:
    batch = plan_batch({A0: 9}, {A0: 4}, {})
    assert batch.ranges == ()
    assert "went back from offset 9 to 4" in batch.losses[0]


def test_only_what_lies_ahead_is_new() -> None:
    assert count_new({A0: 5, A1: 9}, {A0: 8, A1: 3, B0: 4}) == 3
