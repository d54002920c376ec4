"""Every option as data: its name as in Kafka, its type, default, scope and meaning.

Code reads options as attributes of `BrokerConfig` and `TopicConfig` (`config.segment_bytes` for `segment.bytes`).
`BROKER_OPTIONS` and `TOPIC_OPTIONS` describe the same options for the command line and for DescribeConfigs. They
contain only options that Felice uses. `kafka_only` lists the options of Kafka that Felice ignores; `without_effect`
has those of them that DescribeConfigs shows, with their values.
"""

from felice.config.broker import BROKER_OPTIONS, BrokerConfig, Listener, directory_text, find_option
from felice.config.option import ConfigError, Kind, Option, Scope, canonical_texts, shortened
from felice.config.properties import format_properties, parse_properties
from felice.config.topic import TOPIC_OPTIONS, TopicConfig

__all__ = [
    "BROKER_OPTIONS",
    "TOPIC_OPTIONS",
    "BrokerConfig",
    "ConfigError",
    "Kind",
    "Listener",
    "Option",
    "Scope",
    "TopicConfig",
    "canonical_texts",
    "directory_text",
    "find_option",
    "format_properties",
    "parse_properties",
    "shortened",
]
