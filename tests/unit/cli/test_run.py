"""`felice run` before and after Spark: which App, and what is told of its end."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

pytest.importorskip("pyspark")

from felice.cli.faults import Fault
from felice.cli.run import app_in, failure_of, reason_of, run

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


class JavaError:
    """An error of Java as py4j shows it."""

    def __init__(self, name: str, cause: JavaError | None = None) -> None:
        self._name, self._cause = name, cause

    def get(self) -> JavaError:
        return self

    def exception(self) -> JavaError:
        return self

    def getClass(self) -> JavaError:
        return self

    def getName(self) -> str:
        return self._name

    def getCause(self) -> JavaError | None:
        return self._cause


class FailedQuery:
    def __init__(self, text: str, error: JavaError) -> None:
        self._text, self._jsq = text, error

    def exception(self) -> Exception:
        return Exception(self._text)


def test_a_failure_without_a_message_says_that_a_process_has_ended() -> None:
    error = JavaError("StreamingQueryException", JavaError("java.io.EOFException"))
    told = failure_of(FailedQuery("(no cause message)\n=== Streaming Query ===", error))
    assert told.startswith("a process that Spark started for the query has ended (java.io.EOFException)")
    assert failure_of(FailedQuery("KeyError: 'x'", error)) == "KeyError: 'x'"
