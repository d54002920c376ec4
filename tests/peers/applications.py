"""What runs on top of Kafka's clients and comes from Kafka itself: Streams, Connect, MirrorMaker 2.

Keeps true: the jars are those of one Kafka release, beside the ones that `peers.java` fetched of the same; our own
programs against them are compiled again only when their source or the jars changed.
"""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from peers import versions
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
from peers.java import JVM_OPTIONS, class_path, java

# Kafka's own; whatever else they need came with its broker and tools.
ARTIFACTS = ("kafka-streams", "connect-file", "connect-mirror", "connect-mirror-client")


def _dependency(group: str, artifact: str, version: str) -> str:
    everything = (
        "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
    )
    named = f"<groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>"
    return f"<dependency>{named}{everything}</dependency>"


POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>felice</groupId><artifactId>applications</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    {"".join(_dependency("org.apache.kafka", name, versions.KAFKA) for name in ARTIFACTS)}
    {_dependency("org.rocksdb", "rocksdbjni", versions.ROCKSDB)}
  </dependencies>
</project>
"""


def jars_dir() -> Path:
    return cache_dir() / f"kafka-applications-{versions.KAFKA}"


def programs_dir() -> Path:
    return cache_dir() / "java-applications"


def _class_path() -> str:
    return os.pathsep.join([class_path(programs_dir()), f"{jars_dir()}/*"])


def prepare_jars() -> None:
    directory = jars_dir()
    digest = digest_of(POM)
    if is_stamped(directory, digest):
        return
    if not shutil.which("mvn"):
        raise PeerMissing("Maven (`mvn`) is not on the PATH")
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "pom.xml").write_text(POM)
    fetch(["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={directory}"], directory)
    stamp(directory, digest)


def prepare_programs() -> None:
    sources = sorted((PROGRAMS / "java-applications").glob("*.java"))
    digest = digest_of(POM, *sources)
    directory = programs_dir()
    if is_stamped(directory, digest):
        return
    if not shutil.which("javac"):
        raise PeerMissing("a Java compiler (`javac`) is not on the PATH")
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    fetch(["javac", "-nowarn", "-d", str(directory), "-cp", _class_path(), *map(str, sources)], directory)
    stamp(directory, digest)


def require_applications() -> None:
    def find() -> None:
        java()
        for directory in (jars_dir(), programs_dir()):
            if not (directory / ".stamp").exists():
                raise PeerMissing(f"Kafka's applications are not in {directory}; {PREPARE_HINT}")

    require("Java, javac and Maven", find)


def application_command(main_class: str, *arguments: str, options: Sequence[str] = ()) -> list[str]:
    return [java(), *JVM_OPTIONS, "-Xmx256m", *options, "-cp", _class_path(), main_class, *arguments]
