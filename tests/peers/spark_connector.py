"""Spark's own Kafka connector from Maven Central: the jars a user of `format("kafka")` adds to Spark.

Keeps true: the jars are those Maven resolves for the connector, less what PySpark ships itself.
"""

from pathlib import Path

from peers import maven
from peers.cache import PREPARE_HINT, PeerMissing, cache_dir, require
from peers.maven import lone_dependency

# The newest on Maven Central while PySpark is at 4.3.0; it runs in Spark 4.3.
CONNECTOR = "4.2.0"
# What it needs and PySpark does not ship; versions as in the connector's own POM.
KAFKA_CLIENTS = "3.9.2"
COMMONS_POOL = "2.13.1"
# Only asked whether there are delegation tokens; the newest release that Maven mirrors hold everywhere.
TOKEN_PROVIDER = "4.0.0"


# Alone, since Spark's POMs name a mirror first that not every network reaches.
POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>felice</groupId><artifactId>spark-connector</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    {lone_dependency("org.apache.spark", "spark-sql-kafka-0-10_2.13", CONNECTOR)}
    {lone_dependency("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", TOKEN_PROVIDER)}
    {lone_dependency("org.apache.kafka", "kafka-clients", KAFKA_CLIENTS)}
    {lone_dependency("org.apache.commons", "commons-pool2", COMMONS_POOL)}
  </dependencies>
</project>
"""


def connector_dir() -> Path:
    return cache_dir() / f"spark-connector-{CONNECTOR}"


def prepare() -> None:
    maven.prepare_jars(connector_dir(), POM)


def connector_jars() -> list[Path]:
    """The jars, if they were fetched; otherwise `PeerMissing`."""
    jars = sorted(connector_dir().glob("*.jar"))
    if not jars or not (connector_dir() / ".stamp").exists():
        raise PeerMissing(f"Spark's Kafka connector was not fetched from Maven; {PREPARE_HINT}")
    return jars


def require_connector() -> list[Path]:
    return require("Java and Maven", connector_jars)
