"""Where the archive of Java's classes is, when it is used, and when it is replaced."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from felice.pipelines.spark import class_archive
from felice.pipelines.spark.class_archive import (
    OPTIONS_OF_JAVA,
    ArchiveError,
    archive,
    options_of_java,
    write,
)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(OPTIONS_OF_JAVA, raising=False)
    return tmp_path


def java_writes(data: bytes | None) -> None:
    option, *_ = shlex.split(os.environ[OPTIONS_OF_JAVA])
    name, _, path = option.partition("=")
    assert name == "-XX:ArchiveClassesAtExit"
    if data is not None:
        Path(path).write_bytes(data)


def test_an_archive_is_used_when_it_is_there(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert options_of_java() == ""
    path = write(lambda: java_writes(b"one"))
    assert path == archive() and path.read_bytes() == b"one" and path.parent == cache / "felice"
    assert OPTIONS_OF_JAVA not in os.environ
    assert shlex.split(options_of_java())[0] == f"-XX:SharedArchiveFile={path}"
    # The last of equal options counts for Java.
    monkeypatch.setenv(OPTIONS_OF_JAVA, "-XX:SharedArchiveFile=other")
    assert shlex.split(options_of_java())[-1] == "-XX:SharedArchiveFile=other"


def test_an_archive_is_replaced_only_by_a_whole_one(cache: Path) -> None:
    write(lambda: java_writes(b"one"))
    with pytest.raises(ArchiveError, match="wrote no archive; install a full JDK"):
        write(lambda: java_writes(None))

    def fail() -> None:
        java_writes(b"half")
        raise OSError("stopped")

    with pytest.raises(OSError, match="stopped"):
        write(fail)
    assert [path.read_bytes() for path in (cache / "felice").iterdir()] == [b"one"]
    write(lambda: java_writes(b"two"))
    assert archive().read_bytes() == b"two"


def test_each_java_and_spark_has_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    before = archive()
    monkeypatch.setattr(class_archive.pyspark, "__version__", "9.9.9")
    assert archive() != before


def test_jars_that_were_installed_again_have_another_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Java compares the times of the jars, and would take the old archive for none."""
    jars = tmp_path / "pyspark" / "jars"
    jars.mkdir(parents=True)
    monkeypatch.setattr(class_archive.pyspark, "__file__", str(tmp_path / "pyspark" / "__init__.py"))
    before = archive()
    assert archive() == before
    os.utime(jars, (1, 1))
    assert archive() != before
