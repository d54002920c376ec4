"""`felice run` before and after Spark: which App, and what is told of its end."""

from __future__ import annotations

import itertools
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

pytest.importorskip("pyspark")

from pyspark import cloudpickle

from felice.cli import main
from felice.cli import run as command
from felice.cli.application_file import app_in, apps_in, modules_beside
from felice.cli.faults import Fault
from felice.cli.run import run
from felice.pipelines.spark.cluster import DataLoss
from felice.pipelines.spark.commit import CommitError, TornBatch
from felice.pipelines.spark.mistakes import ClusterError, OptionError, QueryError
from felice.pipelines.streams.on_spark.directory import Checkpoint, Description
from felice.pipelines.streams.on_spark.modules import SentModule
from felice.pipelines.streams.on_spark.running import failure_of, reason_of
from felice.pipelines.streams.on_spark.stage import Plan
from felice.streams import App

ONE = "from felice.streams import App\nfirst = App('first')\nfirst.stream('in').to('out')\n"


def written(folder: Path, text: str) -> Path:
    path = folder / "program.py"
    path.write_text(text)
    return path


TWO = ONE + "other = App('second')\nother.stream('in').to('out-2')\n"


def test_the_app_is_the_one_named_app_or_the_only_one_or_chosen(tmp_path: Path) -> None:
    assert app_in(written(tmp_path, ONE)).name == "first"
    assert app_in(written(tmp_path, ONE + "again = first\n")).name == "first"
    assert app_in(written(tmp_path, ONE + "app = App('second')\n")).name == "second"
    assert app_in(written(tmp_path, TWO), "second").name == "second"
    with pytest.raises(Fault, match="defines first, second; choose one with --app"):
        app_in(written(tmp_path, TWO))
    with pytest.raises(Fault, match="defines no App 'third'; it defines first, second"):
        app_in(written(tmp_path, TWO), "third")
    with pytest.raises(Fault, match="defines no App"):
        app_in(written(tmp_path, "x = 1\n"))


@pytest.mark.parametrize(
    ("mistake", "why"),
    [
        ("first.stream('in', value=avro('http://127.0.0.1:1', '7'))", "the schema cannot be used: "),
        ("avro({'url': 'http://127.0.0.1:1', 'max.retries': 0}, subject='s')", ".*does not answer"),
        ("first.stream('in', on_error='ignore')", "on_error is 'ignore'; it must be"),
    ],
)
def test_a_mistake_in_the_file_is_told_with_its_line(tmp_path: Path, mistake: str, why: str) -> None:
    path = written(tmp_path, f"{ONE}from felice.streams import avro\n{mistake}\n")
    with pytest.raises(Fault, match=f"^{path}, line 5: {why}"):
        app_in(path)


def test_a_file_with_several_apps_runs_all_unless_one_is_named_app(tmp_path: Path) -> None:
    def names(text: str, *chosen: str) -> list[str]:
        return [app.name for app in apps_in(written(tmp_path, text), chosen)]

    assert names(TWO) == ["first", "second"]
    assert names(TWO, "second", "second") == ["second"]
    assert names(TWO, "second") == ["second"]
    assert names(TWO + "app = other\n") == ["second"]
    with pytest.raises(Fault, match="several Apps with one name; their names are first, first"):
        names(ONE + "other = App('first')\n")


@pytest.fixture
def own_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """After the test, nothing remains of the modules that it imports."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if str(tmp_path) in repr(sys.modules[name]):
            del sys.modules[name]


BESIDE = """
import prices
from rates.table import rate
from linked import linked
from felice.streams import App

app = App("beside", value="string")
app.stream("in").map_values(lambda key, value: prices.doubled(value) + rate() + linked()).to("out")
"""
PRICES = """
import threading
from functools import lru_cache
import prices_more

LOCK = threading.Lock()

@lru_cache
def doubled(text):
    from prices_late import late
    with LOCK:
        return prices_more.twice(text) + late()
"""
FILES = {
    "prices.py": PRICES,
    "prices_more.py": "import prices\nimport prices_late\ndef twice(text): return text * 2\n",
    "prices_late.py": "def late(): return '?'\n",
    "rates/table.py": "import rates.shared\ndef rate(): return rates.shared.SIGN\n",
    "rates/shared.py": "import rates.table\nSIGN = '!'\n",
    "other/linked.py": "import os\ndef linked(): return os.path.basename(__file__)\n",
}
"""A package without `__init__`, modules that import each other, a lock, a cached function, an import in a function."""
ON_A_WORKER = """
import pickle, sys
topology = pickle.load(sys.stdin.buffer).application().topology
(step,) = [node.make({}) for node in topology.nodes if node.make is not None]
print(step.function("key", "x"))
"""


def on_a_worker(app: App, modules: tuple[SentModule, ...]) -> subprocess.CompletedProcess[bytes]:
    """Workers run in other directories, perhaps on other machines."""
    plan = Plan(cloudpickle.dumps(app.scope.topology), 1, (), modules=modules)
    return subprocess.run(
        [sys.executable, "-c", ON_A_WORKER],
        input=pickle.dumps(plan),
        cwd="/",
        capture_output=True,
        check=False,
    )


@pytest.mark.usefixtures("own_modules")
def test_modules_beside_the_file_are_imported_and_sent_to_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "linked.py").symlink_to(tmp_path / "other" / "linked.py")
    program = written(tmp_path, BESIDE)
    # From here the parent of the current directory is the directory of the file.
    monkeypatch.chdir(tmp_path / "other")
    app = app_in(program)
    modules = modules_beside(program)
    assert [module.name for module in modules] == [
        "linked",
        "prices",
        "prices_late",
        "prices_more",
        "rates",
        "rates.shared",
        "rates.table",
    ]
    for name in FILES:
        (tmp_path / name).unlink()
    ran = on_a_worker(app, modules)
    assert (ran.stdout, ran.stderr) == (b"xx?!linked.py\n", b"")
    assert b"No module named" in on_a_worker(app, ()).stderr


@pytest.mark.usefixtures("own_modules")
def test_a_file_that_is_read_again_gets_its_modules_as_they_are_then(tmp_path: Path) -> None:
    (tmp_path / "names.py").write_text("name = 'before'\n")
    program = written(tmp_path, "import names\n" + ONE.replace("'first'", "names.name"))
    assert app_in(program).name == "before"
    (tmp_path / "names.py").write_text("name = 'afterwards'\n")
    assert app_in(program).name == "afterwards"
    (tmp_path / "names.py").write_text("name = 'at last'\nraise KeyError(name)\n")
    with pytest.raises(KeyError, match="at last"):
        app_in(program)
    (tmp_path / "names.py").unlink()
    with pytest.raises(ModuleNotFoundError):
        app_in(program)


def used(directory: Path, application: str) -> Checkpoint:
    checkpoint = Checkpoint(directory)
    checkpoint.describe(Description(application, "", 1, {}))
    return checkpoint


def test_several_apps_have_checkpoints_of_their_own_in_the_directory(tmp_path: Path) -> None:
    settings = command.Settings(tmp_path / "program.py", (), "", "local", str(tmp_path), {})
    alone = used(tmp_path, "first")
    assert settings.checkpoint_of(App("first"), True) == alone
    assert settings.checkpoint_of(App("second"), False).path == tmp_path / "second-checkpoint"
    below = used(tmp_path / "first-checkpoint", "first")
    assert settings.checkpoint_of(App("first"), False) == below
    assert settings.checkpoint_of(App("first"), True) == alone


def test_a_checkpoint_of_a_frame_or_one_that_cannot_be_read_is_not_the_apps(tmp_path: Path) -> None:
    settings = command.Settings(tmp_path / "program.py", (), "", "local", str(tmp_path), {})
    Checkpoint(tmp_path / "first-checkpoint").describe(Description("first", "", 1, {}, is_frame=True))
    (tmp_path / "second-checkpoint").write_text("a file")
    for name in ("first", "second"):
        assert settings.checkpoint_of(App(name), True).path == tmp_path


@pytest.mark.parametrize(("place", "is_only"), [("first-checkpoint", True), (".", False)])
def test_an_app_does_not_silently_begin_again_in_another_checkpoint(
    tmp_path: Path, place: str, is_only: bool
) -> None:
    settings = command.Settings(tmp_path / "program.py", (), "", "local", str(tmp_path), {})
    before = used(tmp_path / place, "first")
    with pytest.raises(
        Fault, match=f"first has run with the checkpoint {before.path}, and would begin again"
    ):
        settings.checkpoint_of(App("first"), is_only)


def test_describe_shows_the_topology_of_each_app(tmp_path: Path) -> None:
    done = CliRunner().invoke(run, [str(written(tmp_path, TWO)), "--describe"])
    assert [line for line in done.output.splitlines() if not line.startswith("  ")] == [
        "Application first",
        "Sub-topology 0",
        "Application second",
        "Sub-topology 0",
    ]


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


@pytest.mark.parametrize("error", [ClusterError, CommitError, DataLoss, OptionError, QueryError, TornBatch])
def test_each_error_of_a_query_is_a_reason(error: type[Exception]) -> None:
    name = f"{error.__module__}.{error.__name__}"
    text = f"pyspark.errors.exceptions.base.PySparkRuntimeError: [FAILED] because of: Traceback\n{name}: gone"
    assert reason_of(text) == f"{error.__name__}: gone"


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
    late = "org.apache.spark.SparkException: Python worker failed to connect back.\n\tat org.apache…"
    assert "did not report in time" in failure_of(FailedQuery(late, error))


def test_a_broker_that_does_not_answer_is_reported_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Each look at the clock takes 15 s; two attempts, with limits of 45 s and of 15 s, are within them.
    looks = itertools.count(15, 15)
    clock = SimpleNamespace(monotonic=lambda: next(looks), sleep=lambda seconds: None)
    monkeypatch.setattr(command, "time", clock)
    monkeypatch.setattr(command, "BROKER_WITHIN_S", 60)
    monkeypatch.chdir(tmp_path)
    assert main.run(run, [str(written(tmp_path, ONE)), "-b", "127.0.0.1:1"]) == 1
    waiting, error = capsys.readouterr().err.splitlines()
    reason = "no broker answers: 127.0.0.1:1: Connection refused. Is one running, and does --bootstrap-server name it?"
    assert (waiting, error) == (f"waiting: {reason}", f"error: {reason}")
    assert [path.name for path in tmp_path.iterdir()] == ["program.py"]


def test_apps_with_an_address_have_directories_here_and_copies_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = command.Settings(
        tmp_path / "program.py", (), "", "local", f"file://{tmp_path}/far?region=x", {}
    )
    alone, one = (settings.checkpoint_of(App("first"), is_only) for is_only in (True, False))
    assert alone.path == one.path == tmp_path / "first-checkpoint"
    assert alone.copy_at == f"file://{tmp_path}/far?region=x"
    assert one.copy_at == f"file://{tmp_path}/far/first-checkpoint?region=x"
