"""What ksqlDB's Java client does, with the HTTP client on which it is built (Vert.x). Its own jars are not in Maven
Central.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from peers import maven, versions
from peers.cache import PROGRAMS, cache_dir, require
from peers.java import JVM_OPTIONS, TOOL_TIMEOUT_S, compile_programs, java_for

POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>felice</groupId><artifactId>ksqldb-client</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>io.vertx</groupId><artifactId>vertx-core</artifactId><version>{versions.VERTX}</version>
    </dependency>
  </dependencies>
</project>
"""


def jars_dir() -> Path:
    return cache_dir() / f"vertx-{versions.VERTX}"


def programs_dir() -> Path:
    return cache_dir() / "java-ksqldb"


def _class_path() -> str:
    return os.pathsep.join([str(programs_dir()), f"{jars_dir()}/*"])


def prepare_jars() -> None:
    maven.prepare_jars(jars_dir(), POM)


def prepare_programs() -> None:
    compile_programs(PROGRAMS / "java-ksqldb", programs_dir(), _class_path(), POM)


def run_ksql_client(*arguments: str) -> dict[str, dict[str, Any]]:
    """`KsqlClient.java` says what it does. Returns what each of its calls got."""
    java = require("Java, javac and Maven", lambda: java_for("Vert.x", jars_dir(), programs_dir()))
    command = [java, *JVM_OPTIONS, "-Xmx256m", "-cp", _class_path(), "KsqlClient", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return {one.pop("call"): one for one in map(json.loads, done.stdout.splitlines())}
