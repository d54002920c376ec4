"""Avro's Java library as an oracle for texts and comparisons of schemas."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from peers import maven, versions
from peers.cache import PROGRAMS, cache_dir, require
from peers.java import JVM_OPTIONS, compile_programs, java_for
from peers.oracle import Oracle, running

POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>felice</groupId><artifactId>avro-oracle</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.avro</groupId><artifactId>avro</artifactId><version>{versions.AVRO}</version>
    </dependency>
  </dependencies>
</project>
"""


def jars_dir() -> Path:
    return cache_dir() / f"avro-{versions.AVRO}"


def programs_dir() -> Path:
    return cache_dir() / "java-avro"


def _class_path() -> str:
    return os.pathsep.join([str(programs_dir()), f"{jars_dir()}/*"])


def prepare_jars() -> None:
    maven.prepare_jars(jars_dir(), POM)


def prepare_programs() -> None:
    compile_programs(PROGRAMS / "java-avro", programs_dir(), _class_path(), POM)


def require_avro_java() -> str:
    return require(
        "Java, javac and Maven", lambda: java_for("Avro's Java library", jars_dir(), programs_dir())
    )


class AvroOracle:
    """`AvroOracle.java` says what an answer holds."""

    def __init__(self, oracle: Oracle) -> None:
        self._oracle = oracle

    def ask(self, reader: str, writer: str, references: Sequence[str] = ()) -> dict[str, Any]:
        return self._oracle.ask({"reader": reader, "writer": writer, "references": list(references)})


@contextmanager
def running_avro_oracle() -> Iterator[AvroOracle]:
    command = [require_avro_java(), *JVM_OPTIONS, "-Xmx256m", "-cp", _class_path(), "AvroOracle"]
    with running(command) as oracle:
        yield AvroOracle(oracle)
