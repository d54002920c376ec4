"""What runs on top of Kafka's clients and comes from Kafka itself: Streams, Connect, MirrorMaker 2.

Keeps true: the jars are those of one Kafka release, beside the ones that `peers.java` fetched of the same; our own
programs against them are compiled again only when their source or the jars changed.
"""

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from peers import maven, versions
from peers.cache import PREPARE_HINT, PROGRAMS, PeerMissing, cache_dir, require
from peers.java import JVM_OPTIONS, class_path, compile_programs, java
from peers.maven import lone_dependency
from peers.oracle import Oracle, running

# Kafka's own; their other dependencies came with its broker and tools.
ARTIFACTS = ("kafka-streams", "connect-file", "connect-mirror", "connect-mirror-client")


POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>felice</groupId><artifactId>applications</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    {"".join(lone_dependency("org.apache.kafka", name, versions.KAFKA) for name in ARTIFACTS)}
    {lone_dependency("org.rocksdb", "rocksdbjni", versions.ROCKSDB)}
  </dependencies>
</project>
"""


def jars_dir() -> Path:
    return cache_dir() / f"kafka-applications-{versions.KAFKA}"


def programs_dir() -> Path:
    return cache_dir() / "java-applications"


def application_class_path() -> str:
    return os.pathsep.join([class_path(programs_dir()), f"{jars_dir()}/*"])


def prepare_jars() -> None:
    maven.prepare_jars(jars_dir(), POM)


def prepare_programs() -> None:
    compile_programs(PROGRAMS / "java-applications", programs_dir(), application_class_path(), POM)


def find_applications() -> None:
    """Raise `PeerMissing` if the jars or the programs are not there."""
    java()
    for directory in (jars_dir(), programs_dir()):
        if not (directory / ".stamp").exists():
            raise PeerMissing(f"Kafka's applications are not in {directory}; {PREPARE_HINT}")


def running_connect_oracle() -> AbstractContextManager[Oracle]:
    """`ConnectOracle.java` says what questions and answers hold."""
    require_applications()
    return running([java(), *JVM_OPTIONS, "-Xmx256m", "-cp", application_class_path(), "ConnectOracle"])


def require_applications() -> None:
    require("Java, javac and Maven", find_applications)


def application_command(main_class: str, *arguments: str, options: Sequence[str] = ()) -> list[str]:
    return [
        java(),
        *JVM_OPTIONS,
        "-Xmx256m",
        *options,
        "-cp",
        application_class_path(),
        main_class,
        *arguments,
    ]
