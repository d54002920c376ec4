"""`felice features` and `kafka-features`, and Kafka's own tool of that name, against the broker."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from felice.cli import main
from felice.cli.kafka_tools.features import kafka_features
from felice.server.process.embedded import EmbeddedBroker
from peers.java import require_java, run_tool

Run = Callable[..., str]
TOOL = "org.apache.kafka.tools.FeatureCommand"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path / "data") as running:
        yield running


@pytest.fixture
def felice(broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*words: str, code: int = 0) -> str:
        capsys.readouterr()
        assert main.run(main.felice, ("features", *words, "-b", broker.bootstrap)) == code
        captured = capsys.readouterr()
        return captured.out + captured.err

    return run


@pytest.fixture
def kafka(broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*words: str, code: int = 0) -> str:
        capsys.readouterr()
        found = main.run(kafka_features, ("--bootstrap-server", broker.bootstrap, *words), usage_code=1)
        assert found == code
        captured = capsys.readouterr()
        return captured.out + captured.err

    return run


def test_levels_are_shown_lowered_and_raised(felice: Run) -> None:
    groups = {"feature": "group.version", "min": 0, "max": 1, "level": 1, "epoch": 0}
    row = {"feature": "transaction.version", "min": 0, "max": 2, "level": 2, "epoch": 0}
    assert json.loads(felice("describe", "--json")) == [groups, row]
    assert felice("downgrade", "transaction.version=1", "--dry-run") == (
        "transaction.version can be at level 1.\n"
    )
    assert json.loads(felice("describe", "--json")) == [groups, row]
    assert felice("downgrade", "transaction.version=0") == "transaction.version is at level 0 now.\n"
    lowered = [{**groups, "epoch": 1}, {**row, "level": 0, "epoch": 1}]
    assert json.loads(felice("describe", "--json")) == lowered
    felice("upgrade", "transaction.version=2")
    assert json.loads(felice("describe", "--json"))[1]["level"] == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("upgrade", "transaction.version=7"), "only supports versions 0-2"),
        (("upgrade", "transaction.version=1"), "Can't downgrade the version of this feature without"),
        (("upgrade", "no.such=1"), "does not support this feature"),
        (("upgrade", "transaction.version"), "expected key=value"),
        (("upgrade", "transaction.version=two"), "expected feature=level"),
    ],
)
def test_a_mistake_is_one_line(felice: Run, words: tuple[str, ...], said: str) -> None:
    error = felice(*words, code=1)
    assert said in error
    assert error.count("\n") == 1


LOWERED = ("disable", "--feature", "transaction.version")
WORDS = [
    ("describe",),
    ("downgrade", "--feature", "transaction.version=1", "--dry-run"),
    ("upgrade", "--feature", "transaction.version=7"),
    ("upgrade", "--feature", "transaction.version=2"),
    LOWERED,
]


def test_kafka_features_prints_what_kafkas_own_prints(broker: EmbeddedBroker, kafka: Run) -> None:
    """A failure of the whole request goes to standard error, as a line of Felice."""
    require_java()
    for words in WORDS:
        theirs = run_tool(TOOL, "--bootstrap-server", broker.bootstrap, *words, check=False)
        printed = theirs.stdout.rstrip("\n").splitlines()
        ours = kafka(*words, code=theirs.returncode).splitlines()
        assert ours[: len(printed)] == printed
        assert len(ours) == len(printed) + (theirs.returncode != 0)
