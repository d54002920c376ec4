"""Spark's own Kafka connector from Maven Central: the jars a user of `format("kafka")` adds to Spark.

Keeps true: the jars are those Maven resolves for the connector, less what PySpark ships itself.
"""

import shutil
from pathlib import Path

from peers.cache import PREPARE_HINT, PeerMissing, cache_dir, digest_of, fetch, is_stamped, require, stamp

# The newest on Maven Central while PySpark is at 4.3.0; it runs in Spark 4.3.
CONNECTOR = "4.2.0"
# What it needs and PySpark does not ship; versions as in the connector's own POM.
KAFKA_CLIENTS = "3.9.2"
COMMONS_POOL = "2.13.1"
# Only asked whether there are delegation tokens; the newest release that Maven mirrors hold everywhere.
TOKEN_PROVIDER = "4.0.0"


def _dependency(group: str, artifact: str, version: str) -> str:
    """Without what it depends on: Spark's POMs name a mirror first that not every network reaches."""
    everything = (
        "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
    )
    named = f"<groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>"
    return f"<dependency>{named}{everything}</dependency>"


POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>felice</groupId><artifactId>spark-connector</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    {_dependency("org.apache.spark", "spark-sql-kafka-0-10_2.13", CONNECTOR)}
    {_dependency("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", TOKEN_PROVIDER)}
    {_dependency("org.apache.kafka", "kafka-clients", KAFKA_CLIENTS)}
    {_dependency("org.apache.commons", "commons-pool2", COMMONS_POOL)}
  </dependencies>
</project>
"""


def connector_dir() -> Path:
    return cache_dir() / f"spark-connector-{CONNECTOR}"


def prepare() -> None:
    directory = connector_dir()
    digest = digest_of(POM)
    if is_stamped(directory, digest):
        return
    if not shutil.which("mvn"):
        raise PeerMissing("Maven (`mvn`) is not on the PATH")
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    (directory / "pom.xml").write_text(POM)
    fetch(["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={directory}"], directory)
    stamp(directory, digest)


def require_connector() -> list[Path]:
    def find() -> list[Path]:
        jars = sorted(connector_dir().glob("*.jar"))
        if not jars or not (connector_dir() / ".stamp").exists():
            raise PeerMissing(f"Spark's Kafka connector was not fetched from Maven; {PREPARE_HINT}")
        return jars

    return require("Java and Maven", find)
