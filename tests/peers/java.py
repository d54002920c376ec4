"""Kafka's own jars from Maven Central, and Java programs run against them.

Keeps true: the class path holds exactly what Maven resolves for the pinned Kafka, so a tool here is the tool
of a Kafka installation; a Java program is compiled again only when its source or the jars changed.
"""

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from peers import maven, versions
from peers.cache import (
    PREPARE_HINT,
    PROGRAMS,
    PeerMissing,
    cache_dir,
    digest_of,
    fetch,
    is_stamped,
    require,
    stamp,
)

# Small and quick to start: these processes live for a second or serve a test, not a benchmark.
JVM_OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
TOOL_TIMEOUT_S = 300

POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>felice</groupId><artifactId>peers</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka_{versions.SCALA}</artifactId><version>{versions.KAFKA}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka-tools</artifactId><version>{versions.KAFKA}</version>
    </dependency>
    <dependency>
      <groupId>org.slf4j</groupId>
      <artifactId>slf4j-simple</artifactId><version>{versions.SLF4J}</version>
    </dependency>
  </dependencies>
</project>
"""


def jars_dir() -> Path:
    return cache_dir() / f"kafka-{versions.KAFKA}"


def programs_dir() -> Path:
    return cache_dir() / "java-programs"


def class_path(*first: Path) -> str:
    return os.pathsep.join([*(str(path) for path in first), f"{jars_dir()}/*"])


def prepare_jars() -> None:
    maven.prepare_jars(jars_dir(), POM)


def prepare_programs() -> None:
    compile_programs(PROGRAMS / "java", programs_dir(), class_path(), POM)


def compile_programs(folder: Path, directory: Path, against: str, pom: str) -> None:
    """Every program of a folder, against a class path that the POM stands for."""
    sources = sorted(folder.glob("*.java"))
    digest = digest_of(pom, *sources)
    if is_stamped(directory, digest):
        return
    if not shutil.which("javac"):
        raise PeerMissing("a Java compiler (`javac`) is not on the PATH")
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    fetch(["javac", "-nowarn", "-d", str(directory), "-cp", against, *map(str, sources)], directory)
    stamp(directory, digest)


def java_for(what: str, *directories: Path) -> str:
    """The `java` that runs what these directories hold, once it is there."""
    found = shutil.which("java")
    if not found:
        raise PeerMissing("Java (`java`) is not on the PATH")
    for directory in directories:
        if not (directory / ".stamp").exists():
            raise PeerMissing(f"{what} is not in {directory}; {PREPARE_HINT}")
    return found


@functools.cache
def java() -> str:
    """The `java` that runs Kafka's jars, once they are there."""
    return java_for(f"Kafka {versions.KAFKA}", jars_dir())


def require_java() -> str:
    return require("Java and Maven", java)


def require_java_programs() -> Path:
    def find() -> Path:
        java()
        if not (programs_dir() / ".stamp").exists():
            raise PeerMissing(f"the Java test programs were not compiled; {PREPARE_HINT}")
        return programs_dir()

    return require("Java, javac and Maven", find)


def java_command(
    main_class: str, *arguments: str, first: Sequence[Path] = (), options: Sequence[str] = ()
) -> list[str]:
    return [java(), *JVM_OPTIONS, *options, "-cp", class_path(*first), main_class, *arguments]


def run_tool(
    main_class: str,
    *arguments: str,
    stdin: str | bytes = "",
    check: bool = True,
    timeout_s: float = TOOL_TIMEOUT_S,
) -> subprocess.CompletedProcess[str]:
    """Run one of Kafka's command-line tools by class name to its end."""
    require_java()
    command = java_command(main_class, *arguments, options=["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"])
    sent = stdin.encode() if isinstance(stdin, str) else stdin
    raw = subprocess.run(command, input=sent, capture_output=True, timeout=timeout_s)
    done = subprocess.CompletedProcess(
        command, raw.returncode, raw.stdout.decode("utf-8", "replace"), raw.stderr.decode("utf-8", "replace")
    )
    if check and done.returncode:
        sys.stderr.write(done.stdout + done.stderr)
        raise AssertionError(f"{main_class} {arguments} ended with {done.returncode}: {done.stderr[-2000:]}")
    return done
