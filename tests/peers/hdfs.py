"""An HDFS of one DataNode on this machine, with WebHDFS."""

from __future__ import annotations

import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from peers import maven, versions
from peers.apache_kafka import free_port
from peers.cache import PREPARE_HINT, PeerMissing, cache_dir, require
from peers.java import JVM_OPTIONS, java

START_S = 120.0
_NEEDED = (
    ("org.apache.hadoop", "hadoop-minicluster", versions.HADOOP),
    ("com.fasterxml.jackson.core", "jackson-databind", "2.18.2"),
    ("org.mockito", "mockito-core", "4.11.0"),
    ("junit", "junit", "4.13.2"),
)
_DEPENDENCIES = "".join(
    f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version></dependency>"
    for group, name, version in _NEEDED
)
POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>felice</groupId><artifactId>hdfs</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>{_DEPENDENCIES}</dependencies>
</project>
"""


def jars_dir() -> Path:
    return cache_dir() / f"hadoop-{versions.HADOOP}"


def prepare_jars() -> None:
    maven.prepare_jars(jars_dir(), POM)


@contextmanager
def running_hdfs(directory: Path) -> Iterator[str]:
    """The URL of the running system."""

    def find() -> str:
        if not (jars_dir() / ".stamp").exists():
            raise PeerMissing(f"HDFS was not fetched from Maven; {PREPARE_HINT}")
        return java()

    program = require("Java and Maven", find)
    port = free_port()
    command = [
        program,
        *JVM_OPTIONS,
        "--add-opens=java.base/java.lang=ALL-UNNAMED",
        "-Xmx400m",
        f"-Dhadoop.log.dir={directory / 'logs'}",
        f"-Dtest.build.data={directory / 'data'}",
        "-cp",
        f"{jars_dir()}/*",
        "org.apache.hadoop.test.MiniDFSClusterManager",
        *("-nnport", str(free_port()), "-httpport", str(port), "-datanodes", "1", "-format"),
        *("-D", "dfs.webhdfs.enabled=true", "-D", "dfs.permissions.enabled=false"),
    ]
    log = directory / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, cwd=directory)
        try:
            give_up_at = time.monotonic() + START_S
            while True:
                url = f"http://127.0.0.1:{port}/webhdfs/v1/ready?op=CREATE&overwrite=true&user.name=felice"
                try:
                    # Its DataNode takes a file: the NameNode answers before that.
                    request = urllib.request.Request(url, data=b"", method="PUT")
                    urllib.request.urlopen(request, timeout=5).close()
                    break
                except OSError as error:
                    code = getattr(error, "code", None)
                    location = getattr(error, "headers", {}).get("Location") if code == 307 else None
                    if location is not None:
                        break
                    assert process.poll() is None and time.monotonic() < give_up_at, log.read_text()[-2000:]
                    time.sleep(0.2)
            yield f"webhdfs://felice@127.0.0.1:{port}"
        finally:
            process.kill()
            process.wait()
