"""Connectors in Python: what an author extends, and what records and options are made of.

docs/connect.md explains it.
"""

from felice.pipelines.connect.configuration.definitions import REQUIRED as REQUIRED
from felice.pipelines.connect.configuration.definitions import ConfigDefinitions as ConfigDefinitions
from felice.pipelines.connect.configuration.definitions import ConfigValue as ConfigValue
from felice.pipelines.connect.configuration.definitions import Definition as Definition
from felice.pipelines.connect.configuration.definitions import Importance as Importance
from felice.pipelines.connect.configuration.definitions import Password as Password
from felice.pipelines.connect.configuration.definitions import Type as Type
from felice.pipelines.connect.configuration.definitions import at_least as at_least
from felice.pipelines.connect.configuration.definitions import between as between
from felice.pipelines.connect.configuration.definitions import non_empty as non_empty
from felice.pipelines.connect.configuration.definitions import one_of as one_of
from felice.pipelines.connect.connector.base import SinkConnector as SinkConnector
from felice.pipelines.connect.connector.base import SinkTask as SinkTask
from felice.pipelines.connect.connector.base import SourceConnector as SourceConnector
from felice.pipelines.connect.connector.base import SourceTask as SourceTask
from felice.pipelines.connect.connector.contexts import ConnectorContext as ConnectorContext
from felice.pipelines.connect.connector.contexts import Place as Place
from felice.pipelines.connect.connector.contexts import SinkTaskContext as SinkTaskContext
from felice.pipelines.connect.connector.contexts import SourceConnectorContext as SourceConnectorContext
from felice.pipelines.connect.connector.contexts import SourceTaskContext as SourceTaskContext
from felice.pipelines.connect.connector.contexts import TopicPartition as TopicPartition
from felice.pipelines.connect.connector.contexts import TransactionContext as TransactionContext
from felice.pipelines.connect.model.errors import ConfigError as ConfigError
from felice.pipelines.connect.model.errors import ConnectError as ConnectError
from felice.pipelines.connect.model.errors import DataError as DataError
from felice.pipelines.connect.model.errors import RetriableError as RetriableError
from felice.pipelines.connect.model.record import Header as Header
from felice.pipelines.connect.model.record import SinkRecord as SinkRecord
from felice.pipelines.connect.model.record import SourceRecord as SourceRecord
from felice.pipelines.connect.model.runs import SourceRun as SourceRun
from felice.pipelines.connect.model.runs import values_of as values_of
from felice.pipelines.connect.model.schema import Field as Field
from felice.pipelines.connect.model.schema import Schema as Schema
from felice.pipelines.connect.model.schema import Struct as Struct
from felice.pipelines.connect.model.schema import array as array
from felice.pipelines.connect.model.schema import decimal_of as decimal_of
from felice.pipelines.connect.model.schema import logical as logical
from felice.pipelines.connect.model.schema import mapping as mapping
from felice.pipelines.connect.model.schema import simple as simple
from felice.pipelines.connect.model.schema import struct as struct
