"""`felice run` before and after Spark: which App, and what is told of its end."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

pytest.importorskip("pyspark")

from felice.cli.faults import Fault
from felice.cli.run import app_in, reason_of, run

ONE = "from felice.streams import App\nfirst = App('first')\nfirst.stream('in').to('out')\n"


def written(folder: Path, text: str) -> Path:
    path = folder / "program.py"
    path.write_text(text)
    return path


def test_the_app_is_the_one_named_app_or_the_only_one(tmp_path: Path) -> None:
    assert app_in(written(tmp_path, ONE)).name == "first"
    assert app_in(written(tmp_path, ONE + "again = first\n")).name == "first"
    assert app_in(written(tmp_path, ONE + "app = App('second')\n")).name == "second"
    with pytest.raises(Fault, match="defines 2 Apps; name the one to run `app`"):
        app_in(written(tmp_path, ONE + "other = App('second')\n"))
    with pytest.raises(Fault, match="defines 0 Apps"):
        app_in(written(tmp_path, "x = 1\n"))


def test_describe_needs_no_spark(tmp_path: Path) -> None:
    done = CliRunner().invoke(run, [str(written(tmp_path, ONE)), "--describe"])
    assert done.output.splitlines()[0] == "Sub-topology 0"


def test_the_reason_of_a_failure_is_the_last_error() -> None:
    text = (
        "[STREAM_FAILED] Query terminated with exception: Job aborted\n"
        "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
        "  File \"x.py\", line 1, in f\nKeyError: 'x'\n\nThe above exception was the direct cause\n"
        "felice.pipelines.streams.task.StreamsError: a record of topic 'in' cannot be processed (at in-0, offset 5)\n\n"
        "\tat org.apache.spark.Something(PythonRunner.scala:1)\n"
    )
    assert reason_of(text) == "StreamsError: a record of topic 'in' cannot be processed (at in-0, offset 5)"
    assert reason_of("something else\nmore") == "something else"
