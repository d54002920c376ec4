"""How work is divided among workers: rounds of a group, with losses and returns, by a seed."""

from __future__ import annotations

import random

import pytest

from felice.pipelines.connect.herder.division import Divider, Division, Member, Work
from felice.pipelines.connect.model.errors import DataError
from felice.pipelines.connect.model.tasks import TaskId

LEADER = "http://a/"


def work(connectors: str = "", tasks: int = 0, name: str = "c") -> Work:
    return Work(frozenset(connectors), frozenset(TaskId(name, number) for number in range(tasks)))


class Workers:
    """Workers that do what they are told, one round after another."""

    def __init__(self, *urls: str, delay_s: float = 0.0) -> None:
        self.divider = Divider(delay_s)
        self.runs = dict.fromkeys(urls, Work())
        self.now_s = 0.0

    def round(self, everything: Work) -> Division:
        members = [Member(url, runs) for url, runs in self.runs.items()]
        found = self.divider.divide(LEADER, members, everything, self.now_s)
        given = [one for url in self.runs for one in (found.work[url],)]
        for one in given:
            others = [other for other in given if other is not one]
            assert not any(one & other for other in others), "two workers got the same"
        for url in self.runs:
            for other, other_runs in self.runs.items():
                assert url == other or not (found.work[url] & other_runs), "it runs elsewhere still"
        self.runs = dict(found.work)
        return found

    def settle(self, everything: Work) -> int:
        """Rounds until nothing changes; returns their number."""
        for number in range(20):
            before = dict(self.runs)
            self.round(everything)
            if before == self.runs:
                return number
        raise AssertionError("the group never settles")


def sizes(workers: Workers) -> list[tuple[int, int]]:
    return sorted((len(one.connectors), len(one.tasks)) for one in workers.runs.values())


def test_everything_is_given_evenly_in_one_round() -> None:
    workers = Workers("http://a/", "http://b/", "http://c/")
    assert workers.settle(work("xyz", 7)) == 1
    assert sizes(workers) == [(1, 2), (1, 2), (1, 3)]


def test_a_new_worker_gets_its_share_after_others_gave_it_up() -> None:
    workers = Workers("http://a/")
    everything = work("wxyz", 4)
    workers.settle(everything)
    workers.runs["http://b/"] = Work()
    found = workers.round(everything)
    assert not found.work["http://b/"], "it was given before the other stopped it"
    assert len(found.work["http://a/"].tasks) == 2
    workers.round(everything)
    assert sizes(workers) == [(2, 2), (2, 2)]


def test_what_runs_stays_where_it_is() -> None:
    workers = Workers("http://a/", "http://b/")
    everything = work("xy", 4)
    workers.settle(everything)
    before = dict(workers.runs)
    workers.settle(everything | work("z"))
    for url, one in before.items():
        assert not (one - workers.runs[url])


def test_the_work_of_a_lost_worker_waits() -> None:
    workers = Workers("http://a/", "http://b/", delay_s=10)
    everything = work("xy", 2)
    workers.settle(everything)
    lost = workers.runs.pop("http://b/")
    found = workers.round(everything)
    assert found.wait_s == 10 and not (found.work["http://a/"] & lost)
    workers.now_s = 9.5
    assert workers.round(everything).wait_s == 0.5
    workers.now_s = 10
    assert workers.round(everything).wait_s == 0
    assert workers.runs["http://a/"] == everything


def test_a_worker_that_comes_back_gets_its_work_at_once() -> None:
    workers = Workers("http://a/", "http://b/", delay_s=1000)
    everything = work("xy", 2)
    workers.settle(everything)
    workers.runs.pop("http://b/")
    workers.round(everything)
    workers.runs["http://new/"] = Work()
    assert workers.round(everything).wait_s == 0
    assert sizes(workers) == [(1, 1), (1, 1)]


def test_new_work_does_not_wait_for_a_lost_worker() -> None:
    workers = Workers("http://a/", "http://b/", delay_s=10)
    everything = work("xy", 2)
    workers.settle(everything)
    workers.runs.pop("http://b/")
    workers.round(everything)
    workers.round(everything | work("z"))
    assert "z" in workers.runs["http://a/"].connectors


def test_of_two_that_run_the_same_one_stops() -> None:
    workers = Workers("http://a/", "http://b/")
    everything = work("x", 1)
    workers.runs = dict.fromkeys(workers.runs, everything)
    found = workers.divider.divide(
        LEADER, [Member(url, one) for url, one in workers.runs.items()], everything, 0.0
    )
    assert found.work["http://a/"] == everything and not found.work["http://b/"]


def test_what_was_deleted_is_taken_away() -> None:
    workers = Workers("http://a/")
    workers.settle(work("xy", 2))
    workers.settle(work("x"))
    assert workers.runs["http://a/"] == work("x")


def test_two_workers_with_one_address_get_nothing() -> None:
    found = Divider(0).divide(LEADER, [Member(LEADER, Work()), Member(LEADER, Work())], work("x"), 0.0)
    assert found.error is not None and "one address" in found.error and not found.work
    assert Division.decode(found.encode()) == found


@pytest.mark.parametrize("seed", range(30))
def test_random_groups_settle_with_even_shares(seed: int) -> None:
    choose = random.Random(seed)
    workers = Workers("http://a/")
    count = 0
    for _ in range(20):
        if choose.random() < 0.4:
            count += 1
            workers.runs[f"http://{count}/"] = Work()
        elif len(workers.runs) > 1 and choose.random() < 0.5:
            workers.runs.pop(choose.choice(list(workers.runs)))
        everything = work("abcdefghij"[: choose.randrange(11)], choose.randrange(20))
        if choose.random() < 0.5:
            workers.round(everything)  # the next change comes before the group has settled
            continue
        workers.settle(everything)
        total = Work()
        for one in workers.runs.values():
            total |= one
        assert total == everything
        for kind in (0, 1):
            found = [size[kind] for size in sizes(workers)]
            assert max(found) - min(found) <= 1


def test_texts_of_members_and_divisions() -> None:
    member = Member("http://a/", work("xé", 2, name="c-1"))
    assert Member.decode(member.encode()) == member
    division = Division("http://a/", {"http://a/": work("x", 2), "http://b/": Work()}, 1.5)
    assert Division.decode(division.encode()) == division
    assert division.owner_of_connector("x") == "http://a/" and division.owner_of_connector("y") is None
    assert division.owner_of_task(TaskId("c", 1)) == "http://a/"
    assert division.owner_of_task(TaskId("c", 2)) is None


@pytest.mark.parametrize(
    "data",
    [b"", b"\xff", b"[]", b"{}", b'{"url":1}', b'{"url":"a","connectors":[],"tasks":[["x"]]}', b"[" * 9999],
)
def test_what_is_no_member_is_refused(data: bytes) -> None:
    with pytest.raises(DataError):
        Member.decode(data)
    with pytest.raises(DataError):
        Division.decode(data)
