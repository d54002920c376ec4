"""The archive of Java's classes that `felice streams prepare` writes, which each start of Spark uses."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs Spark: pip install 'felice[spark]'")

from conformance.spark_session import QUICK
from felice.pipelines.spark.class_archive import OPTIONS_OF_JAVA, archive

# Prints the files of this kind that Java has mapped.
MAPPED = """
import pathlib, sys
from felice.pipelines.spark.session import session, stop
config = {"spark.ui.enabled": "false", "spark.log.level": "OFF"}
if len(sys.argv) > 1:
    config["spark.driver.extraClassPath"] = sys.argv[1]
spark = session("archive", "local[1]", config=config)
java = spark._jvm.java.lang.ProcessHandle.current().pid()
names = {line.split()[-1] for line in pathlib.Path(f"/proc/{java}/maps").read_text().splitlines()}
print(*(name for name in names if "felice" in name and name.endswith(".jsa")))
stop(spark)
"""


def start(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", MAPPED, *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | environment,
        check=True,
    )


@pytest.fixture
def written() -> Path:
    path = archive()
    if not path.exists():
        done = subprocess.run(
            [sys.executable, "-m", "felice.cli.main", "streams", "prepare"],
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        if "wrote no archive" in done.stderr:
            pytest.skip(done.stderr)
        assert done.returncode == 0, done.stderr
        assert str(path) in done.stdout
    return path


def test_spark_uses_the_archive(written: Path) -> None:
    assert start().stdout.split() == [str(written)]


def test_spark_starts_without_a_word_if_the_archive_does_not_fit(written: Path, tmp_path: Path) -> None:
    # The class path of the archive begins otherwise.
    other = tmp_path / "other.jar"
    other.write_bytes(b"PK\5\6" + bytes(18))
    done = start(str(other))
    assert done.stdout.split() == [] and "[warning]" not in done.stderr


def test_the_users_options_of_java_count(written: Path) -> None:
    assert start(**{OPTIONS_OF_JAVA: f"{QUICK} -Xshare:off"}).stdout.split() == []
