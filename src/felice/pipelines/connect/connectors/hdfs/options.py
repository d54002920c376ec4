"""The options of the sink, and the rules between them. No library of file systems is imported here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from felice.pipelines.connect.configuration.definitions import (
    ConfigDefinitions,
    Definition,
    Importance,
    Type,
    invalid,
    non_empty,
    one_of,
)
from felice.pipelines.connect.connectors.objects.options import FILES

_FORMATS = "io.confluent.connect.hdfs."
AVRO, JSON, PARQUET, STRING = (
    _FORMATS + name
    for name in ("avro.AvroFormat", "json.JsonFormat", "parquet.ParquetFormat", "string.StringFormat")
)


def _url(name: str, value: Any) -> None:
    if value and not re.match(r"(webhdfs|swebhdfs)://[^/\s]+|file:///", value):
        raise invalid(name, value, "expected webhdfs://host:9870, swebhdfs://host:9871 or file:///directory")


def _conflicts(config: Mapping[str, str]) -> list[tuple[str, str]]:
    """Options that do not fit together, with the error."""
    if not url_of(config):
        return [("store.url", "store.url is missing: the NameNode's address, as webhdfs://host:9870")]
    return []


OPTIONS = FILES + ConfigDefinitions(
    [
        Definition(
            "store.url",
            Type.STRING,
            "",
            "The NameNode's address for HTTP, as webhdfs://user@host:9870; swebhdfs:// with TLS; or file:///directory.",
            Importance.HIGH,
            _url,
        ),
        Definition("hdfs.url", Type.STRING, "", "The same by its older name.", Importance.HIGH, _url),
        Definition(
            "logs.dir",
            Type.STRING,
            "logs",
            "The directory of the logs that make writing exact.",
            Importance.HIGH,
            non_empty,
        ),
        Definition(
            "format.class",
            Type.CLASS,
            AVRO,
            "How files are written.",
            Importance.HIGH,
            one_of(AVRO, JSON, PARQUET, STRING),
        ),
        Definition(
            "storage.class",
            Type.CLASS,
            "io.confluent.connect.hdfs.storage.HdfsStorage",
            "HDFS.",
            Importance.LOW,
            one_of("io.confluent.connect.hdfs.storage.HdfsStorage"),
        ),
    ],
    _conflicts,
)
LACKING = (
    "connect.hdfs.principal",
    "connect.hdfs.keytab",
    "hadoop.conf.dir",
    "hadoop.home",
    "hdfs.authentication.kerberos",
    "hdfs.namenode.principal",
    "hive.integration",
    "hive.metastore.uris",
    "hive.conf.dir",
    "hive.database",
    "kerberos.ticket.renew.period.ms",
    "shutdown.timeout.ms",
)
"""Options of Confluent's sink that this one does not have."""


def url_of(config: Mapping[str, Any]) -> str:
    """The address that the options give."""
    return config.get("store.url") or config.get("hdfs.url") or ""
