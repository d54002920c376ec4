"""Arrow's types for schemas of Connect, for files of columns."""

from __future__ import annotations

from typing import Any

from felice.dataclass import dataclass
from felice.pipelines.connect.model.schema import (
    ARRAY,
    BOOLEAN,
    BYTES,
    DATE,
    DECIMAL,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    MAP,
    SCALE,
    STRING,
    TIME,
    TIMESTAMP,
    Schema,
    Struct,
)


@dataclass(frozen=True, slots=True)
class Forms:
    """What a format has for decimals and times: the most digits, and the unit."""

    digits: int
    unit: str

    def decimal(self, scale: int) -> Any:
        """The type of decimals with so many digits after the point."""
        import pyarrow

        made = pyarrow.decimal256 if self.digits > 38 else pyarrow.decimal128
        return made(self.digits, scale)


PARQUET = Forms(76, "ms")
ICEBERG = Forms(38, "us")


def arrow_field(name: str, schema: Schema, forms: Forms) -> Any:
    """The field of a member."""
    import pyarrow

    return pyarrow.field(name, _arrow_type(schema, forms), nullable=schema.optional)


def _arrow_type(schema: Schema, forms: Forms) -> Any:
    import pyarrow

    if schema.name == DECIMAL:
        return forms.decimal(int(schema.parameter(SCALE) or 0))
    logical = {
        DATE: pyarrow.date32(),
        TIME: pyarrow.time32("ms") if forms.unit == "ms" else pyarrow.time64("us"),
        TIMESTAMP: pyarrow.timestamp(forms.unit, "UTC"),
    }
    if schema.name in logical:
        return logical[schema.name]
    simple = {
        INT8: pyarrow.int8(),
        INT16: pyarrow.int16(),
        INT32: pyarrow.int32(),
        INT64: pyarrow.int64(),
        FLOAT32: pyarrow.float32(),
        FLOAT64: pyarrow.float64(),
        BOOLEAN: pyarrow.bool_(),
        STRING: pyarrow.string(),
        BYTES: pyarrow.binary(),
    }
    if schema.type in simple:
        return simple[schema.type]
    if schema.type == ARRAY:
        assert schema.value_schema is not None
        return pyarrow.list_(arrow_field("element", schema.value_schema, forms))
    if schema.type == MAP:
        assert schema.key_schema is not None and schema.value_schema is not None
        return pyarrow.map_(
            _arrow_type(schema.key_schema, forms), arrow_field("value", schema.value_schema, forms)
        )
    return pyarrow.struct([arrow_field(one.name, one.schema, forms) for one in schema.fields])


def arrow_value(value: Any) -> Any:
    """What Arrow makes a value of."""
    if isinstance(value, Struct):
        return {name: arrow_value(one) for name, one in value.items()}
    if isinstance(value, list):
        return [arrow_value(one) for one in value]
    if isinstance(value, dict):
        return [(key, arrow_value(one)) for key, one in value.items()]
    return value
