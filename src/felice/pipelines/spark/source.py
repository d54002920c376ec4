"""`format("felice")`: the entry point that Spark calls, which creates readers and writers.

Keeps true: a wrong option or schema is refused before anything is read or written.
            Parameters have Spark's names, because Spark passes them by keyword.
"""

from __future__ import annotations

import os
from typing import ClassVar

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from felice.pipelines.spark.filter_values import take_any_value
from felice.pipelines.spark.mistakes import OptionError, QueryError, plain_errors
from felice.pipelines.spark.options import SinkOptions, SourceOptions
from felice.pipelines.spark.reader import BatchReader, NarrowingBatchReader, RefusedStream, StreamReader
from felice.pipelines.spark.schema import source_schema
from felice.pipelines.spark.writer import BatchWriter, StreamWriter, check_schema


class FeliceDataSource(DataSource):
    """The data source that Spark instantiates for each query with `format("felice")`."""

    # The session's cores, set by `session.register`; 0 means this machine's.
    cores: ClassVar[int] = 0
    # Whether the session allows readers to take filters, set by `session.register`, too.
    takes_filters: ClassVar[bool] = False

    @classmethod
    def name(cls) -> str:
        """The name for `format`."""
        return "felice"

    @plain_errors
    def schema(self) -> StructType:
        """The columns of a reader with these options."""
        return source_schema(SourceOptions.parse(self.options).include_headers)

    @plain_errors
    def reader(self, schema: StructType) -> BatchReader:
        """The reader of a batch query; it takes filters only if the session allows that."""
        options = self._source_options(schema)
        if not self.takes_filters:
            return BatchReader(options, self.cores_of_session())
        take_any_value()
        return NarrowingBatchReader(options, self.cores_of_session())

    def streamReader(self, schema: StructType) -> StreamReader | RefusedStream:
        """The reader of a streaming query."""
        try:
            return self.make_stream_reader(schema)
        except QueryError as error:
            return RefusedStream(error.with_traceback(None))

    def make_stream_reader(self, schema: StructType) -> StreamReader:
        """The reader of a streaming query. Raises `QueryError` if the options are wrong; `streamReader` must not."""
        return StreamReader(self._source_options(schema), self.cores_of_session())

    @plain_errors
    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """The writer of a batch query. Raises `OptionError` for mode "overwrite"."""
        if overwrite:
            raise OptionError("mode", 'a topic cannot be overwritten; use mode("append")')
        return BatchWriter(self._sink_options(schema))

    @plain_errors
    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        """The writer of a streaming query."""
        # `overwrite` says output mode "complete": as in Spark's Kafka sink, each batch is appended whole.
        return StreamWriter(self._sink_options(schema))

    def cores_of_session(self) -> int:
        """How many tasks can run at once, as far as it is known."""
        return self.cores or os.cpu_count() or 1

    def _source_options(self, schema: StructType) -> SourceOptions:
        options = SourceOptions.parse(self.options)
        own = source_schema(options.include_headers)
        if schema != own:
            raise OptionError("schema", f"a topic's columns are fixed: {own.simpleString()}")
        return options

    def _sink_options(self, schema: StructType) -> SinkOptions:
        options = SinkOptions.parse(self.options)
        check_schema(schema, options)
        return options
