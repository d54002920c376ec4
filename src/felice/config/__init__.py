"""Every option as data: its name as in Kafka, its type, default, scope and meaning.

`BrokerConfig` and `TopicConfig` are read by attribute (`config.segment_bytes` for
`segment.bytes`); `BROKER_OPTIONS` and `TOPIC_OPTIONS` describe the same options
for the command line and for DescribeConfigs. An option exists there only if
something reads it. Kafka's options that mean nothing here are in `kafka_only`
and, with what DescribeConfigs shows of them, in `without_effect`.
"""

from felice.config.broker import BROKER_OPTIONS, BrokerConfig, Listener
from felice.config.option import ConfigError, Kind, Option, Scope, shortened
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
    "format_properties",
    "parse_properties",
    "shortened",
]
