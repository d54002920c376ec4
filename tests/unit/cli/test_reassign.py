"""Reassignment plans in files: Kafka's JSON, and files that are not valid plans."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from felice.cli.faults import Fault
from felice.cli.reassign import format_plan, proposed_plan, read_plan

PLAN = {("t", 0): (1, 2), ("t", 1): (2, 3), ("u", 0): (3,)}


def test_a_plan_is_written_and_read(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(format_plan(PLAN))
    assert read_plan(path) == PLAN


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is not JSON"),
        ("[]", "not of the form"),
        ('{"partitions": [{"topic": "t", "partition": 0}]}', "not of the form"),
        ('{"partitions": []}', "names no partition"),
        (
            '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1]},'
            ' {"topic": "t", "partition": 0, "replicas": [2]}]}',
            "twice",
        ),
        (
            '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1], "log_dirs": ["/disk"]}]}',
            "felice log-dirs move",
        ),
    ],
)
def test_an_invalid_plan_is_refused_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(Fault) as refused:
        read_plan(path)
    assert said in refused.value.message
    assert "\n" not in refused.value.message


def test_a_broker_that_is_named_twice_is_refused() -> None:
    nodes = [SimpleNamespace(id=number, rack=None) for number in (1, 2)]
    answer = SimpleNamespace(result=lambda: SimpleNamespace(nodes=nodes))
    admin: Any = SimpleNamespace(describe_cluster=lambda: answer)
    with pytest.raises(Fault, match=r"^Broker list contains duplicate entries: 1$"):
        proposed_plan(admin, ["t"], [1, 1, 2])
