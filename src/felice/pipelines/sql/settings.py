"""The settings that SET and the requests of clients may have."""

from __future__ import annotations

import re
from collections.abc import Mapping

from felice.pipelines.sql.analysis.properties import FORMAT_OF, START, STARTS, WRAPPING
from felice.pipelines.sql.functions.collecting import LIST_LIMIT, SET_LIMIT
from felice.pipelines.sql.processing_log import TOPIC_SETTING

SCAN_ENABLED = "ksql.query.pull.table.scan.enabled"
"""Whether SELECT without EMIT may look at each row of a table."""
FAIL_ON_BAD_RECORD = "ksql.fail.on.deserialization.error"
"""Whether a record that is not in its topic's format stops the query, instead of being skipped."""
THROW_ON_INVALID_TIME = "ksql.timestamp.throw.on.invalid"
"""Whether a record without a valid time stops the query, instead of being skipped."""
KNOWN = {
    START: "where queries begin to read: earliest or latest",
    FORMAT_OF["KEY"]: "the format of keys where a statement names none",
    FORMAT_OF["VALUE"]: "the format of values where a statement names none",
    WRAPPING: "whether a value of one column is written with the column's name",
    TOPIC_SETTING: "the topic of the processing log",
    "ksql.output.topic.name.prefix": "what names of made topics begin with",
    FAIL_ON_BAD_RECORD: "whether a record that is not in its topic's format stops the query",
    THROW_ON_INVALID_TIME: "whether a record without a valid time stops the query",
    LIST_LIMIT: "the most elements of COLLECT_LIST",
    SET_LIMIT: "the most elements of COLLECT_SET",
    SCAN_ENABLED: "whether SELECT without EMIT may look at each row of a table",
}
"""Settings, with what they do."""
TUNING = frozenset(
    {
        "cache.max.bytes.buffering",
        "commit.interval.ms",
        "num.stream.threads",
        "processing.guarantee",
    }
)
"""Settings of Kafka Streams that scripts have, and that need no value here: results are exactly once, each batch is
committed, and Spark has the threads.
"""


def is_on(settings: Mapping[str, str], name: str) -> bool:
    """Whether a setting is true; without it, it is not."""
    return settings.get(name, "").lower() == "true"


COMPILED = (START, TOPIC_SETTING, FAIL_ON_BAD_RECORD, THROW_ON_INVALID_TIME, LIST_LIMIT, SET_LIMIT)
"""The settings that a running query depends on. Others matter only to the analysis of a statement or to SELECT."""


def short_name(name: str) -> str:
    """The name by which a setting is kept and looked up: those of Kafka Streams may begin with `ksql.streams.`."""
    short = name.removeprefix("ksql.streams.")
    return short if short == START or short in TUNING else name


def with_short_names(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings by the names by which they are looked up."""
    return {short_name(name): value for name, value in settings.items()}


def is_known(name: str) -> bool:
    """Whether a setting may be set."""
    short = short_name(name)
    return short in KNOWN or short in TUNING


_NUMBERS = (LIST_LIMIT, SET_LIMIT)
_NUMBER = re.compile(r"-?[0-9]{1,19}")
_TOPIC = re.compile(r"(?!\.{1,2}\Z)[a-zA-Z0-9._-]{1,249}")
_FLAGS = (SCAN_ENABLED, WRAPPING, FAIL_ON_BAD_RECORD, THROW_ON_INVALID_TIME)


def check_value(name: str, value: str) -> None:
    """Raise ValueError for a value that a setting cannot have."""
    if short_name(name) == START and value not in STARTS:
        raise ValueError(f"{name} is {value!r}; it must be {' or '.join(STARTS)}")
    if name in _NUMBERS and not _NUMBER.fullmatch(value):
        raise ValueError(f"{name} is {value!r}; it must be a whole number")
    if name == TOPIC_SETTING and not _TOPIC.fullmatch(value):
        raise ValueError(
            f"{name} is {value!r}; it must be the name of a topic: up to 249 letters, digits and . _ -"
        )
    if name in _FLAGS and value.lower() not in ("true", "false"):
        raise ValueError(f"{name} is {value!r}; it must be true or false")
