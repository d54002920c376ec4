"""`from_registry` and `to_registry`: columns of bytes with a schema's id as typed columns, and back.

Keeps true:  a value that cannot be read is never dropped in silence. FAILFAST ends the query with an error that names
             topic, partition and offset; PERMISSIVE gives null; CAPTURE gives null and the error beside it.
             An outage of the registry is no poison record: it ends the query in every mode.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.functions import col
from pyspark.sql.pandas.functions import ArrowUDFType, arrow_udf
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from felice.client.schema_registry.model import Schema
from felice.dataclass import dataclass
from felice.pipelines.errors import OutsideError, PlainError
from felice.pipelines.registry_clients import RegistryAddress, write_with
from felice.pipelines.spark.mistakes import QueryError, plain_errors
from felice.pipelines.spark.registry.target import Target

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column

FAILFAST, PERMISSIVE, CAPTURE = "FAILFAST", "PERMISSIVE", "CAPTURE"
WHERE = ("topic", "partition", "offset")
"""The columns of `format("felice")` that say where a record is."""

_TIMEZONE = "UTC"


@plain_errors
def from_registry(
    value: str | Column,
    registry: str | Mapping[str, Any],
    subject: str,
    *,
    version: int | None = None,
    message: str = "",
    mode: str = FAILFAST,
    where: Sequence[str | Column] = WHERE,
) -> Column:
    """A column of bytes from a serializer of a registry, as a column with the type of its schema.

        orders.select("key", from_registry("value", "http://127.0.0.1:8081", "orders-value").alias("order"))

    `registry` is an address, or a client's configuration with confluent_kafka's names. The type is that of the last
    version of `subject`, or of `version`; `message` chooses a Protobuf message other than the file's first. Values of
    other versions are converted to it. docs/spark.md has the types.

    `mode` is what happens to a value that cannot be read: FAILFAST, PERMISSIVE (null), or CAPTURE, for which the column
    is a struct of `value` and `error`. `where` are the columns that name a record in errors, none for `()`.
    """
    known = {FAILFAST, PERMISSIVE, CAPTURE}
    if mode not in known:
        raise QueryError(f"mode must be one of {', '.join(sorted(known))}, not {mode!r}")
    target = _target(_address(registry), subject, version, message)
    kind = target.coder().mapped.type
    if mode == CAPTURE:
        kind = StructType([StructField("value", kind), StructField("error", StringType())])
    decode = arrow_udf(_Reading(target, mode).column, kind, ArrowUDFType.SCALAR)
    made: Column = decode(*(col(one) if isinstance(one, str) else one for one in (value, *where)))
    return made


@plain_errors
def to_registry(
    value: str | Column,
    registry: str | Mapping[str, Any],
    subject: str,
    *,
    schema: str | Schema | None = None,
    version: int | None = None,
    message: str = "",
) -> Column:
    """A column as bytes for a topic, with the id of its schema, as Confluent's serializers write them.

        rows.select(to_registry("order", "http://127.0.0.1:8081", "orders-value").alias("value"))

    The schema is the last version of `subject`, or `version`. With `schema`, a text of Avro or a `Schema`, that one is
    registered first, and written. A value that does not match the schema ends the query with an error.
    """
    address = _address(registry)
    if schema is not None:
        if version is not None:
            raise QueryError("give to_registry a schema to register, or a version of the subject, not both")
        version = _registered(address, subject, schema)
    target = _target(address, subject, version, message)
    target.coder()
    encode = arrow_udf(_Writing(target).column, BinaryType(), ArrowUDFType.SCALAR)
    made: Column = encode(col(value) if isinstance(value, str) else value)
    return made


def _address(registry: str | Mapping[str, Any]) -> RegistryAddress:
    try:
        address = RegistryAddress.of(registry)
        address.check_shared()
    except (PlainError, ValueError, TypeError) as error:
        raise QueryError(f"the registry cannot be used: {error}") from error
    return address


def _target(address: RegistryAddress, subject: str, version: int | None, message: str) -> Target:
    try:
        return Target.of(address, subject, version, message)
    except (OutsideError, ValueError) as error:
        raise QueryError(f"the schema of the subject {subject} cannot be used: {error}") from error


def _registered(address: RegistryAddress, subject: str, schema: str | Schema) -> int:
    """The version that a schema has after it was registered. It may be an earlier one than the last."""
    given = Schema(schema, "AVRO") if isinstance(schema, str) else schema
    client = address.client()

    def work() -> int:
        client.register_schema(subject, given)
        version: int = client.lookup_schema(subject, given).version
        return version

    try:
        return write_with(address, work)
    except (OutsideError, ValueError) as error:
        raise QueryError(f"the schema cannot be registered under the subject {subject}: {error}") from error


@dataclass(frozen=True, slots=True)
class _Reading:
    target: Target
    mode: str

    @plain_errors
    def column(self, data: pa.Array, *where: pa.Array) -> pa.Array:
        """The typed values of a batch of a column."""
        import pyarrow as pa

        coder = self.target.coder()
        kind = to_arrow_type(coder.mapped.type, timezone=_TIMEZONE)
        errors: list[str | None] = [None] * len(data)

        def refuse(row: int, why: Exception) -> None:
            errors[row] = f"the value{_place(where, row)} cannot be read: {why}"
            if self.mode == FAILFAST:
                raise QueryError(errors[row])

        values: list[Any] = []
        for row, one in enumerate(data.to_pylist()):
            value = None
            if one is not None:
                try:
                    value = coder.read(one)
                except ValueError as error:
                    refuse(row, error)
                except OutsideError as error:
                    raise QueryError(str(error)) from error
            values.append(value)
        try:
            made = pa.array(values, kind)
        except (pa.ArrowException, ValueError, TypeError, OverflowError):
            # A value that is not of its schema's type, which only its producer could have prevented.
            for row, value in enumerate(values):
                try:
                    pa.array([value], kind)
                except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
                    values[row] = None
                    refuse(row, error)
            made = pa.array(values, kind)
        if self.mode != CAPTURE:
            return made
        return pa.StructArray.from_arrays([made, pa.array(errors, pa.string())], ["value", "error"])


@dataclass(frozen=True, slots=True)
class _Writing:
    target: Target

    @plain_errors
    def column(self, values: pa.Array) -> pa.Array:
        """The bytes of a batch of a column."""
        import pyarrow as pa

        coder = self.target.coder()
        return pa.array(
            [None if one is None else _written(coder.write, one) for one in values.to_pylist()], pa.binary()
        )


def _written(write: Callable[[Any], bytes], value: Any) -> bytes:
    try:
        return write(value)
    except OutsideError as error:
        raise QueryError(str(error)) from error
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise QueryError(f"{str(value)[:200]} cannot be written with the schema: {error}") from error


def _place(where: Sequence[Any], row: int) -> str:
    """Where a record is: topic, partition and offset, or what the query gave in their place."""
    if not where:
        return ""
    found = [str(one[row].as_py()) for one in where]
    if len(found) == len(WHERE):
        return f" of {found[0]}-{found[1]} at offset {found[2]}"
    return f" of {', '.join(found)}"
