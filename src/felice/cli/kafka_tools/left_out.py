"""The options of Kafka's tools that Felice's tools do not have, each with its reason.

A test compares this table, and the options that are there, with the help of Kafka's own tools.
"""

from __future__ import annotations

from collections.abc import Mapping

_NO_CONTROLLERS = "there are no controllers to connect to; use --bootstrap-server"
_ONE_RESPONSE = "topics are described in one response"
_JAVA_CLASS = "it names a Java class"
_PERF_METRICS = "the metrics of Java's clients do not exist here"
_PLAIN_BYTES = "keys and values are printed as they are"
_OWN_TOPIC = "Felice's records of this topic are printed as they are"

LEFT_OUT: Mapping[str, dict[str, str]] = {
    "kafka-configs": {
        "--bootstrap-controller": _NO_CONTROLLERS,
        "--broker-logger": "levels of loggers are changed with Kafka's own tool, or any client",
        "--client-metrics": "kafka-client-metrics has them",
    },
    "kafka-console-consumer": {
        "--enable-systest-events": "it is for the system tests of Apache Kafka",
    },
    "kafka-console-producer": {
        "--line-reader": f"{_JAVA_CLASS}; each line is a record, and --reader-property says how",
    },
    "kafka-consumer-perf-test": {
        "--date-format": "it is a pattern of Java; times are printed as yyyy-MM-dd HH:mm:ss:SSS",
        "--print-metrics": _PERF_METRICS,
    },
    "kafka-dump-log": {
        "--cluster-metadata-decoder": "there is no topic of metadata; see felice metadata",
        "--deep-iteration": "records are always read one by one, with --print-data-log",
        "--index-sanity-check": "indexes are always checked; see felice dump-log",
        "--key-decoder-class": f"{_JAVA_CLASS}; {_PLAIN_BYTES}",
        "--max-bytes": "a file is read to its end",
        "--max-message-size": "a batch may have any size",
        "--offsets-decoder": _OWN_TOPIC,
        "--remote-log-metadata-decoder": "there is no tiered storage",
        "--share-group-state-decoder": "there are no share groups",
        "--skip-record-metadata": "leave --print-data-log out to see batches only",
        "--transaction-log-decoder": _OWN_TOPIC,
        "--value-decoder-class": f"{_JAVA_CLASS}; {_PLAIN_BYTES}",
        "--verify-index-only": "indexes are always checked; see felice dump-log",
    },
    "kafka-features": {"--bootstrap-controller": _NO_CONTROLLERS},
    "kafka-producer-perf-test": {"--print-metrics": _PERF_METRICS},
    "kafka-reassign-partitions": {
        "--bootstrap-controller": _NO_CONTROLLERS,
        "--disallow-replication-factor-change": "compare the plan with --generate's before --execute",
        "--replica-alter-log-dirs-throttle": "replicas are moved between directories with felice log-dirs move",
        "--timeout": "a move between directories is not part of a plan, so nothing is waited for",
    },
    "kafka-topics": {
        "--delete-config": "kafka-configs --alter --delete-config removes options",
        "--partition-size-limit-per-response": _ONE_RESPONSE,
    },
}
