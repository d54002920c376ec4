"""Fetch, build and install every foreign peer; quick when nothing changed.

Run as a script: `python tests/peers/prepare.py [--strict]`. What cannot be had is named and its tests skip;
with `--strict` (or `CI` set) that is a failure.
"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from peers import (
    applications,
    avro_java,
    golang,
    hdfs,
    java,
    kcat,
    ksqldb_java,
    node,
    prometheus,
    search,
    spark_connector,
    streams_oracle,
)
from peers.cache import PeerMissing, cache_locked, peers_are_required

STEPS = {
    "Kafka's jars (Maven)": java.prepare_jars,
    "Java programs (javac)": java.prepare_programs,
    "Streams, Connect, MirrorMaker (Maven)": applications.prepare_jars,
    "Streams programs (javac)": applications.prepare_programs,
    "Streams' test driver (Maven)": streams_oracle.prepare_jars,
    "Streams topologies (javac)": streams_oracle.prepare_programs,
    "HDFS (Maven)": hdfs.prepare_jars,
    "OpenSearch (Maven)": search.prepare_jars,
    "Avro's Java library (Maven)": avro_java.prepare_jars,
    "Avro programs (javac)": avro_java.prepare_programs,
    "Vert.x (Maven)": ksqldb_java.prepare_jars,
    "Vert.x programs (javac)": ksqldb_java.prepare_programs,
    "Spark's Kafka connector (Maven)": spark_connector.prepare,
    "franz-go (Go)": golang.prepare,
    "franz-go's login (Go)": golang.prepare_login,
    "kafkajs (npm)": node.prepare,
    "kcat (Debian)": kcat.prepare,
    "Prometheus (Debian)": prometheus.prepare,
}


def prepare_all() -> dict[str, str]:
    """Every step in turn; the reasons of those that failed."""
    missing = {}
    with cache_locked():
        for name, step in STEPS.items():
            began = time.monotonic()
            try:
                step()
            except PeerMissing as reason:
                missing[name] = str(reason)
            state = "missing" if name in missing else "ready"
            print(f"{name}: {state} ({time.monotonic() - began:.1f} s)", flush=True)
    return missing


def main() -> int:
    missing = prepare_all()
    for name, reason in missing.items():
        print(f"{name}: {reason}", file=sys.stderr)
    strict = "--strict" in sys.argv[1:] or peers_are_required()
    return 1 if missing and strict else 0


if __name__ == "__main__":
    sys.exit(main())
