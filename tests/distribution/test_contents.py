"""What a distribution must hold is found by the rules that it is built by, without building one."""

from __future__ import annotations

import fnmatch
import tomllib
from pathlib import Path

import pytest
from setuptools import find_packages

import felice

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
BUILT = {".so", ".c", ".pyc", ".html"}


def test_every_folder_with_modules_is_a_package_that_is_found() -> None:
    folders = {path.parent.relative_to(SOURCE) for path in SOURCE.rglob("*.py")}
    packages = {Path(*name.split(".")) for name in find_packages(str(SOURCE))}
    assert folders - {Path()} <= packages


def test_every_file_beside_the_modules_is_package_data() -> None:
    patterns = PROJECT["tool"]["setuptools"]["package-data"]["felice"]
    files = [path.relative_to(SOURCE / "felice") for path in (SOURCE / "felice").rglob("*") if path.is_file()]
    others = [path for path in files if path.suffix not in {".py", *BUILT}]
    assert others, "the typing marker at least"
    for path in others:
        assert any(fnmatch.fnmatch(str(path), pattern.replace("**/", "*")) for pattern in patterns), path


def test_the_version_is_one() -> None:
    assert PROJECT["project"]["version"] == felice.__version__


@pytest.mark.parametrize("line", (ROOT / "MANIFEST.in").read_text().splitlines())
def test_what_the_source_distribution_adds_is_there(line: str) -> None:
    assert all((ROOT / name).exists() for name in line.split()[1:])
