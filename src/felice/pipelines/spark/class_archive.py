"""An archive of the classes that Spark's Java loads (class data sharing), with which Spark starts in less time.

Keeps true: without an archive, or with one that does not fit, Java starts as usual. An archive is visible when it is
            whole.
How:        At its end Java writes the archive of the classes that it has loaded. When it uses one, it checks that the
            jars are the same. Each version of Java and of Spark has an archive of its own.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pyspark

from felice.env.java import find_java
from felice.env.variables import changed

OPTIONS_OF_JAVA = "SPARK_SUBMIT_OPTS"
"""Spark's launcher passes the options in this variable to the driver's Java."""
_QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"
"""Java would write to standard output that an archive does not fit."""


class ArchiveError(RuntimeError):
    """There is no archive. The message says why."""


def archive() -> Path:
    """Where the archive for Java and Spark of this process is, or would be. Java takes none whose jars were installed
    again since.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    home = find_java().home
    release = home / "release"
    version = release.read_bytes() if release.exists() else b""
    jars = Path(pyspark.__file__).parent / "jars"
    installed = jars.stat().st_mtime_ns if jars.is_dir() else 0
    spark = f"{home} {pyspark.__version__} {pyspark.__file__} {installed}".encode()
    return cache / "felice" / f"spark-{hashlib.sha256(version + spark).hexdigest()[:16]}.jsa"


def options_of_java() -> str:
    """For the variable `OPTIONS_OF_JAVA`: what it has, with the archive if there is one."""
    given, path = os.environ.get(OPTIONS_OF_JAVA, ""), archive()
    # The last of equal options counts: the user's.
    return f'"-XX:SharedArchiveFile={path}" {_QUIET} {given}'.strip() if path.is_file() else given


def write(train: Callable[[], None]) -> Path:
    """Write the archive of all classes that Java loads while `train` runs Spark in another process, until its end.

    Raises `ArchiveError` if Java has not written it. An earlier archive is replaced then, and only then.
    """
    path = archive()
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(f".{secrets.token_hex(4)}")
    with ExitStack() as stack:
        stack.callback(unfinished.unlink, missing_ok=True)
        stack.enter_context(changed({OPTIONS_OF_JAVA: f'"-XX:ArchiveClassesAtExit={unfinished}" {_QUIET}'}))
        train()
        if not unfinished.exists():
            raise ArchiveError(f"the Java at {find_java().home} wrote no archive; install a full JDK")
        unfinished.replace(path)
    return path
