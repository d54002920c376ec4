"""Connectors in Python: what an author extends, and what records and options are made of.

docs/connect.md explains it.
"""

from felice.pipelines.connect.configuration.definitions import (
    REQUIRED,
    ConfigDefinitions,
    ConfigValue,
    Definition,
    Importance,
    Password,
    Type,
    at_least,
    between,
    non_empty,
    one_of,
)
from felice.pipelines.connect.connector.base import SinkConnector, SinkTask, SourceConnector, SourceTask
from felice.pipelines.connect.connector.contexts import (
    ConnectorContext,
    Place,
    SinkTaskContext,
    SourceConnectorContext,
    SourceTaskContext,
    TopicPartition,
    TransactionContext,
)
from felice.pipelines.connect.model.errors import ConfigError, ConnectError, DataError, RetriableError
from felice.pipelines.connect.model.record import Header, SinkRecord, SourceRecord
from felice.pipelines.connect.model.runs import SourceRun, values_of
from felice.pipelines.connect.model.schema import (
    Field,
    Schema,
    Struct,
    array,
    decimal_of,
    logical,
    mapping,
    simple,
    struct,
)

__all__ = [
    "REQUIRED",
    "ConfigDefinitions",
    "ConfigError",
    "ConfigValue",
    "ConnectError",
    "ConnectorContext",
    "DataError",
    "Definition",
    "Field",
    "Header",
    "Importance",
    "Password",
    "Place",
    "RetriableError",
    "Schema",
    "SinkConnector",
    "SinkRecord",
    "SinkTask",
    "SinkTaskContext",
    "SourceConnector",
    "SourceConnectorContext",
    "SourceRecord",
    "SourceRun",
    "SourceTask",
    "SourceTaskContext",
    "Struct",
    "TopicPartition",
    "TransactionContext",
    "Type",
    "array",
    "at_least",
    "between",
    "decimal_of",
    "logical",
    "mapping",
    "non_empty",
    "one_of",
    "simple",
    "struct",
    "values_of",
]
