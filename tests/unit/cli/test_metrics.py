"""`felice metrics`: which series are printed."""

from __future__ import annotations

import pytest
from click.testing import CliRunner, Result

from felice.cli import metrics as command
from felice.cli.metrics import metrics

PAGE = ["# HELP log_size Bytes.", "# TYPE log_size gauge", 'log_size{topic="a"} 5', "leaders 3"]


@pytest.fixture(autouse=True)
def page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "read_page", lambda address: PAGE)


def told(*words: str) -> Result:
    return CliRunner().invoke(metrics, ["--address", "127.0.0.1:1", *words])


def test_names_choose_series_in_any_case() -> None:
    assert told("SIZE", "nothing").output == 'log_size{topic="a"} 5\n'
    assert told().output.splitlines() == PAGE


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_name_that_no_metric_has_is_an_error(options: list[str]) -> None:
    done = told("topic", "size_of", *options)
    assert done.exit_code == 1
    assert done.output == "Error: no metric has a name that contains topic or size_of\n"
