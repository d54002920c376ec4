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


class Hdfs:
    """The process of NameNode and DataNode. Its files are kept when it is killed and started again."""

    def __init__(self, program: str, directory: Path) -> None:
        self._directory = directory
        self._port, self._name_port = free_port(), free_port()
        self._java = [
            program,
            *JVM_OPTIONS,
            "--add-opens=java.base/java.lang=ALL-UNNAMED",
            "-Xmx400m",
            f"-Dhadoop.log.dir={directory / 'logs'}",
            f"-Dtest.build.data={directory / 'data'}",
            "-cp",
            f"{jars_dir()}/*",
            "org.apache.hadoop.test.MiniDFSClusterManager",
        ]
        self._process: subprocess.Popen[bytes] | None = None
        self._is_formatted = False
        self.url = f"webhdfs://felice@127.0.0.1:{self._port}"

    def start(self) -> None:
        """Returns when files can be written."""
        words = ["-nnport", str(self._name_port), "-httpport", str(self._port), "-datanodes", "1"]
        words += [] if self._is_formatted else ["-format"]
        words += ["-D", "dfs.webhdfs.enabled=true", "-D", "dfs.permissions.enabled=false"]
        log = self._directory / "log"
        with log.open("ab") as out:
            process = subprocess.Popen([*self._java, *words], stdout=out, stderr=out, cwd=self._directory)
        self._process, self._is_formatted = process, True
        give_up_at = time.monotonic() + START_S
        while not self._takes_files():
            assert process.poll() is None and time.monotonic() < give_up_at, log.read_text()[-2000:]
            time.sleep(0.2)

    def _takes_files(self) -> bool:
        """Whether its DataNode takes a file: the NameNode answers before that."""
        url = f"http://127.0.0.1:{self._port}/webhdfs/v1/ready?op=CREATE&overwrite=true&user.name=felice"
        request = urllib.request.Request(url, data=b"", method="PUT")
        try:
            urllib.request.urlopen(request, timeout=5).close()
        except OSError as error:
            is_sent_on = getattr(error, "code", None) == 307
            return is_sent_on and getattr(error, "headers", {}).get("Location") is not None
        return True

    def kill(self) -> None:
        """Kills it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


@contextmanager
def running_hdfs(directory: Path) -> Iterator[Hdfs]:
    """Takes 4 s on a quiet machine."""

    def find() -> str:
        if not (jars_dir() / ".stamp").exists():
            raise PeerMissing(f"HDFS was not fetched from Maven; {PREPARE_HINT}")
        return java()

    hdfs = Hdfs(require("Java and Maven", find), directory)
    try:
        hdfs.start()
        yield hdfs
    finally:
        hdfs.kill()
