"""The options of sinks of files, and the rules between them. No library of stores or formats is imported here."""

from __future__ import annotations

from collections.abc import Mapping

from felice.pipelines.connect.configuration.definitions import (
    ConfigDefinitions,
    Definition,
    Importance,
    Type,
    at_least,
    between,
    non_empty,
    one_of,
    parse_value,
    time_zone,
)
from felice.pipelines.connect.model.errors import ConfigError

_PARTITIONERS, _FORMATS = "io.confluent.connect.storage.partitioner.", "io.confluent.connect.s3.format."
DEFAULT, FIELD, TIME, DAILY, HOURLY = (
    f"{_PARTITIONERS}{name}Partitioner" for name in ("Default", "Field", "TimeBased", "Daily", "Hourly")
)
JSON, AVRO, PARQUET, BYTES = (
    _FORMATS + name
    for name in ("json.JsonFormat", "avro.AvroFormat", "parquet.ParquetFormat", "bytearray.ByteArrayFormat")
)
_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW


def _conflicts(config: Mapping[str, str]) -> list[tuple[str, str]]:
    """Options that do not fit together, with the error."""
    found = []
    partitioner = config.get("partitioner.class", DEFAULT)
    if partitioner == FIELD and not config.get("partition.field.name"):
        found.append(("partition.field.name", "the FieldPartitioner needs partition.field.name"))
    if partitioner == TIME:
        for name in ("path.format", "partition.duration.ms"):
            if not config.get(name):
                found.append((name, f"the TimeBasedPartitioner needs {name}"))
    rotates = _rotates_by_records(config)
    if rotates and partitioner in (DEFAULT, FIELD):
        found.append(("rotate.interval.ms", "rotate.interval.ms needs a partitioner by time"))
    if rotates and config.get("timestamp.extractor") == "Wallclock":
        found.append(
            (
                "rotate.interval.ms",
                "rotate.interval.ms needs the times of records; use rotate.schedule.interval.ms",
            )
        )
    return found


def _rotates_by_records(config: Mapping[str, str]) -> bool:
    name = "rotate.interval.ms"
    try:
        return (parse_value(name, config.get(name), Type.LONG) or 0) > 0
    except ConfigError:  # the option's own error
        return False


FILES = ConfigDefinitions(
    [
        Definition("retry.backoff.ms", Type.LONG, 5000, "The wait after a failed write.", _LOW, at_least(0)),
        Definition("topics.dir", Type.STRING, "topics", "The first folder of all names.", _HIGH),
        Definition(
            "flush.size",
            Type.INT,
            documentation="The records after which the files of a partition are written.",
            importance=_HIGH,
            validator=at_least(1),
        ),
        Definition(
            "rotate.interval.ms",
            Type.LONG,
            -1,
            "The span of the records' times in a file; with a partitioner by time.",
            _HIGH,
        ),
        Definition(
            "rotate.schedule.interval.ms",
            Type.LONG,
            -1,
            "The time after which files are written by the clock: then records may be there twice after a crash.",
            _MEDIUM,
        ),
        Definition(
            "partitioner.class",
            Type.CLASS,
            DEFAULT,
            "How records are divided among folders.",
            _HIGH,
            one_of(DEFAULT, FIELD, TIME, DAILY, HOURLY),
        ),
        Definition(
            "partition.field.name", Type.LIST, [], "The members of values that name folders.", _MEDIUM
        ),
        Definition("path.format", Type.STRING, "", "The folders of a time, as a pattern of Java.", _MEDIUM),
        Definition("partition.duration.ms", Type.LONG, -1, "The time of one folder.", _MEDIUM),
        Definition(
            "locale",
            Type.STRING,
            "en",
            "Names of months and days are English.",
            _MEDIUM,
            one_of("", "en", "en-US", "en_US"),
        ),
        Definition("timezone", Type.STRING, "UTC", "The time zone of folders.", _MEDIUM, time_zone),
        Definition(
            "timestamp.extractor",
            Type.STRING,
            "Wallclock",
            "Where a record's time comes from: Wallclock, Record or RecordField.",
            _MEDIUM,
            one_of("Wallclock", "Record", "RecordField"),
        ),
        Definition(
            "timestamp.field", Type.STRING, "timestamp", "With RecordField: the member of values.", _MEDIUM
        ),
        Definition(
            "schema.compatibility",
            Type.STRING,
            "NONE",
            "A record with another schema begins a new file.",
            _HIGH,
            one_of("NONE"),
        ),
        Definition(
            "behavior.on.null.values", Type.STRING, "fail", "fail or ignore.", _LOW, one_of("fail", "ignore")
        ),
        Definition(
            "filename.offset.zero.pad.width",
            Type.INT,
            10,
            "The digits of offsets in names.",
            _LOW,
            at_least(0),
        ),
        Definition("file.delim", Type.STRING, "+", "What stands between the parts of names.", _LOW),
        Definition(
            "avro.codec",
            Type.STRING,
            "null",
            "null, deflate, snappy, bzip2 or zstandard.",
            _LOW,
            one_of("null", "deflate", "snappy", "bzip2", "zstandard"),
        ),
        Definition(
            "parquet.codec",
            Type.STRING,
            "snappy",
            "none, snappy, gzip, zstd, lz4 or brotli.",
            _LOW,
            one_of("none", "snappy", "gzip", "zstd", "lz4", "brotli"),
        ),
        Definition(
            "json.decimal.format",
            Type.STRING,
            "BASE64",
            "BASE64 or NUMERIC.",
            _LOW,
            one_of("BASE64", "NUMERIC"),
        ),
        Definition(
            "format.bytearray.extension", Type.STRING, ".bin", "The end of names of files of bytes.", _LOW
        ),
        Definition(
            "format.bytearray.separator",
            Type.STRING,
            "\n",
            "What stands between records in files of bytes.",
            _LOW,
        ),
    ],
    _conflicts,
)
"""The options that sinks of files share."""
OPTIONS = FILES + ConfigDefinitions(
    [
        Definition(
            "s3.bucket.name", Type.STRING, documentation="The bucket.", importance=_HIGH, validator=non_empty
        ),
        Definition("s3.region", Type.STRING, "us-west-2", "The bucket's region.", _MEDIUM),
        Definition(
            "store.url",
            Type.STRING,
            None,
            "The address of a store other than Amazon's, as http://host:9000.",
            _LOW,
        ),
        Definition(
            "aws.access.key.id",
            Type.STRING,
            None,
            "The key's id; without it, as Amazon's clients find it.",
            _LOW,
        ),
        Definition("aws.secret.access.key", Type.PASSWORD, None, "The secret key.", _LOW),
        Definition(
            "s3.part.size",
            Type.INT,
            26_214_400,
            "The bytes of one part of a large object.",
            _HIGH,
            at_least(5_242_880),
        ),
        Definition(
            "s3.part.retries", Type.INT, 3, "How often a request is tried again.", _MEDIUM, at_least(0)
        ),
        Definition(
            "format.class",
            Type.CLASS,
            JSON,
            "How files are written.",
            _HIGH,
            one_of(JSON, AVRO, PARQUET, BYTES),
        ),
        Definition("directory.delim", Type.STRING, "/", "What stands between folders.", _LOW),
        Definition(
            "s3.compression.type",
            Type.STRING,
            "none",
            "none or gzip, for JSON and bytes.",
            _LOW,
            one_of("none", "gzip"),
        ),
        Definition("s3.compression.level", Type.INT, -1, "The level of gzip.", _LOW, between(-1, 9)),
        Definition(
            "storage.class",
            Type.CLASS,
            "io.confluent.connect.s3.storage.S3Storage",
            "S3.",
            _HIGH,
            one_of("io.confluent.connect.s3.storage.S3Storage"),
        ),
    ]
)
LACKING = (
    "enable.conditional.writes",
    "max.files.scan.limit",
    "store.kafka.keys",
    "store.kafka.headers",
    "keys.format.class",
    "headers.format.class",
    "s3.ssea.name",
    "s3.sse.kms.key.id",
    "s3.sse.customer.key",
    "s3.acl.canned",
    "s3.object.tagging",
    "s3.path.style.access.enabled",
    "s3.proxy.url",
    "s3.credentials.provider.class",
    "s3.wan.mode",
    "s3.elastic.buffer.enable",
    "partitioner.max.open.files",
    "tombstone.encoded.partition",
)
"""Options of Confluent's sink that this one does not have."""
