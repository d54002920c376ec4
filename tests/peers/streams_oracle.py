"""Kafka Streams' own test driver, as an oracle: topologies in Java over records that a test sends."""

import os
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from peers import applications, maven, versions
from peers.cache import PREPARE_HINT, PROGRAMS, PeerMissing, cache_dir, require
from peers.java import JVM_OPTIONS, class_path, compile_programs, java
from peers.maven import lone_dependency

POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>felice</groupId><artifactId>streams-oracle</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    {lone_dependency("org.apache.kafka", "kafka-streams-test-utils", versions.KAFKA)}
  </dependencies>
</project>
"""
Row = tuple[str, str | None, str | None, int]
"""Topic, key, value, timestamp."""
Told = tuple[str, str | None, str | None, int, str | None]
"""The same with the header `h`, or None."""
_NULL = "\\N"


def jars_dir() -> Path:
    return cache_dir() / f"kafka-streams-oracle-{versions.KAFKA}"


def programs_dir() -> Path:
    return cache_dir() / "java-streams"


def _class_path() -> str:
    return os.pathsep.join([class_path(programs_dir()), f"{applications.jars_dir()}/*", f"{jars_dir()}/*"])


def prepare_jars() -> None:
    maven.prepare_jars(jars_dir(), POM)


def prepare_programs() -> None:
    compile_programs(PROGRAMS / "java-streams", programs_dir(), _class_path(), POM)


def require_oracle() -> None:
    def find() -> None:
        java()
        for directory in (applications.jars_dir(), jars_dir(), programs_dir()):
            if not (directory / ".stamp").exists():
                raise PeerMissing(f"Kafka Streams' test driver is not in {directory}; {PREPARE_HINT}")

    require("Java, javac and Maven", find)


class Oracle:
    """One JVM that runs topologies by name, each time with fresh state."""

    def __init__(self, process: "subprocess.Popen[str]", log: Path) -> None:
        self._process, self._log = process, log
        self.has_ended = False

    def run(self, topology: str, rows: Iterable[Told]) -> list[Told]:
        assert self._process.stdin and self._process.stdout
        lines = [f"RUN {topology}", *("\t".join(map(_shown, row)) for row in rows), "END"]
        self._process.stdin.write("\n".join(lines) + "\n")
        self._process.stdin.flush()
        found = []
        for line in self._process.stdout:
            if line == "END\n":
                return found
            topic, key, value, timestamp, header = line.rstrip("\n").split("\t")
            found.append((topic, _read(key), _read(value), int(timestamp), _read(header)))
        self.has_ended = True
        raise AssertionError(
            f"the oracle ended in {topology}, exit {self._process.wait()}: {self._log.read_text()[-2000:]}"
        )


def _shown(value: str | int | None) -> str:
    return _NULL if value is None else str(value)


def _read(text: str) -> str | None:
    return None if text == _NULL else text


@contextmanager
def running_oracle(directory: Path, options: Sequence[str] = ()) -> Iterator[Oracle]:
    """Its log goes to `oracle.log` in the directory."""
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"
    command = [
        java(),
        *JVM_OPTIONS,
        "-Xmx256m",
        quiet,
        *options,
        "-cp",
        _class_path(),
        "StreamsOracle",
        str(directory),
    ]
    with (directory / "oracle.log").open("w") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, encoding="utf-8"
        )
        try:
            yield Oracle(process, directory / "oracle.log")
        finally:
            process.kill()
            process.communicate()
