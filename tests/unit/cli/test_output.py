"""Long results are shortened."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from felice.cli import elect_leaders
from felice.cli.output import partition_lines


def test_partitions_are_listed_by_topic_in_ranges() -> None:
    names = ["orders-2", "a-b-0", "orders-0", "orders-1", "orders-10", "orders-12", "orders-11", "orders-7"]
    assert list(partition_lines(names)) == ["  a-b     0", "  orders  0-2, 7, 10-12"]
    assert list(partition_lines([])) == []


def test_only_the_first_of_many_topics_are_listed() -> None:
    names = [f"t{topic:02}-{number}" for topic in range(23) for number in range(2)]
    lines = list(partition_lines(names))
    assert (lines[0], lines[19]) == ("  t00  0-1", "  t19  0-1")
    assert lines[20:] == ["  and those of 3 more topics; --json has them all"]


def test_elections_are_listed_by_result(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = "PREFERRED_LEADER_NOT_AVAILABLE"
    results = {("a", 0): gone, ("a", 1): None, ("a", 2): gone, ("b", 0): gone}
    monkeypatch.setattr(elect_leaders, "admin_client", lambda *_: None)
    monkeypatch.setattr(elect_leaders, "elect", lambda *_: results)
    done = CliRunner().invoke(elect_leaders.elect_leaders, ["--all"])
    assert done.exit_code == 1
    assert done.stdout == f"{gone}: 3 partitions\n  a  0, 2\n  b  0\nelected: 1 partition\n  a  1\n"
