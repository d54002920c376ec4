from __future__ import annotations

import os
from dataclasses import replace

import pytest

from felice.pipelines.spark import identity
from felice.pipelines.spark.identity import TaskIdentity, TransactionNames, is_of_task

TASK = TaskIdentity("query", 4, 2, 1)


def test_an_id_returns_with_the_next_batch_and_only_then() -> None:
    """A process that begins an id twice for one batch would abort what it wrote first, decided or not."""
    names = TransactionNames()
    first = names.next(TASK)
    again = names.next(TASK)
    assert first != again
    assert names.next(replace(TASK, batch_id=3)) not in (first, again)
    last = names.next(replace(TASK, batch_id=5))
    assert names.next(replace(TASK, batch_id=6)) == last
    assert names.next(replace(TASK, attempt=0, batch_id=7)) != names.next(replace(TASK, batch_id=7))


def test_no_two_processes_use_one_id(monkeypatch: pytest.MonkeyPatch) -> None:
    names = TransactionNames()
    first = names.next(TASK)
    assert TransactionNames().next(TASK) != first
    monkeypatch.setattr(os, "getpid", lambda: -1)  # as after a fork
    assert names.next(replace(TASK, batch_id=5)) != first


def test_what_a_process_remembers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "REMEMBERED_IDS", 3)
    names = TransactionNames()
    found = [names.next(replace(TASK, slot=slot)) for slot in range(7)]
    assert len(names._used) <= 3
    assert names.next(replace(TASK, slot=0)) not in found


@pytest.mark.parametrize(
    ("name", "belongs"),
    [
        (TransactionNames().next(TASK), True),
        (TransactionNames().next(replace(TASK, query_id="query-b")), False),
        (TransactionNames().next(replace(TASK, query_id="other")), False),
        ("felice-spark-query-driver", False),
        ("felice-spark-query-b-driver-0", False),
    ],
)
def test_ids_of_a_query_whose_name_continues_this_one_are_not_its_own(name: str, belongs: bool) -> None:
    assert is_of_task(name, "query") is belongs
