"""What a command says if a package of an extra is not installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from felice.cli.faults import describe_fault

PROGRAM = "from felice.streams import App\napp = App('words')\napp.stream('in').to('out')\n"
WITHOUT_PYSPARK = """
import sys
sys.modules["pyspark"] = None  # Makes an import of it fail.
from felice.cli.main import felice, run
sys.exit(run(felice, sys.argv[1:]))
"""
HINT = "error: pyspark is not installed; try: pip install 'felice[spark]'\n"


def without_pyspark(folder: Path, *words: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_PYSPARK, *words], cwd=folder, capture_output=True, text=True
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    "words", [("run", "words.py"), ("streams", "rescale", "words.py", "--partitions", "3")]
)
def test_a_command_that_needs_spark_names_the_extra_in_one_line(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    (tmp_path / "words.py").write_text(PROGRAM)
    assert without_pyspark(tmp_path, *words) == (1, HINT)
    assert [path.name for path in tmp_path.iterdir()] == ["words.py"]


def test_a_program_that_imports_spark_itself_gets_the_same_line(tmp_path: Path) -> None:
    (tmp_path / "words.py").write_text("import felice.spark\n" + PROGRAM)
    assert without_pyspark(tmp_path, "run", "words.py", "--describe") == (1, HINT)


def test_the_demo_names_its_own_extra_which_includes_spark(tmp_path: Path) -> None:
    code, said = without_pyspark(tmp_path, "demo")
    assert (code, said.count("\n")) == (1, 1)
    assert "pip install 'felice[demo]'" in said


def test_felice_spark_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.delitem(sys.modules, "felice.spark", raising=False)
    with pytest.raises(ImportError, match=r"felice\.spark needs Spark: pip install 'felice\[spark\]'"):
        import felice.spark  # noqa: F401


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("pyarrow.compute", "pyarrow.compute is not installed; try: pip install 'felice[spark]'"),
        ("kazoo", "kazoo is not installed; try: pip install 'felice[zookeeper]'"),
        ("cryptography", "cryptography is not installed; try: pip install 'felice[security]'"),
        ("pandas", "pandas is not installed; try: pip install 'felice[demo]'"),
        ("payments", "payments is not installed"),
    ],
)
def test_only_packages_of_an_extra_get_a_hint(module: str, line: str) -> None:
    assert describe_fault(ModuleNotFoundError(f"No module named {module!r}", name=module)) == line


def test_a_missing_module_or_name_of_felice_is_a_bug() -> None:
    assert describe_fault(ModuleNotFoundError("No module named 'felice.gone'", name="felice.gone")) is None
    assert describe_fault(ImportError("cannot import name 'gone' from 'pyspark'", name="pyspark")) is None
