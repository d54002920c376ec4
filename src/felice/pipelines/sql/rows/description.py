"""What a statement says of the format of keys or values, what each format can do, and what it cannot hold."""

from __future__ import annotations

import re
from collections.abc import Callable

from felice.dataclass import dataclass
from felice.pipelines.sql.rows import delimited, kafka
from felice.pipelines.sql.rows.columns import Columns, parts_of, types_in
from felice.pipelines.sql.types import STRING, Array, Decimal, Map, Primitive, SqlType, Struct, text_of

OPTIONAL, WRAPPER = "OPTIONAL", "WRAPPER"
"""How PROTOBUF can represent null."""


@dataclass(frozen=True, slots=True)
class FormatDescription:
    """A format by its name in capitals, with its properties."""

    name: str
    delimiter: str | None = None
    """As the statement has it: a character, SPACE or TAB; None for a comma."""
    is_wrapped: bool | None = None
    """Whether a single column is written as an object with its name; None for the format's own way."""
    full_name: str | None = None
    """The full name of the schema: of Avro's record, or of Protobuf's message."""
    schema_id: int | None = None
    """The schema to write with."""
    nullable: str | None = None
    """`OPTIONAL`, `WRAPPER`, or None: PROTOBUF has no null then."""


@dataclass(frozen=True, slots=True)
class Features:
    """What a format can do."""

    infers: bool = False
    """Whether a registry has its schemas, so that statements may leave out the columns."""
    has_many: bool = True
    """Whether it holds several columns."""
    wraps: bool = False
    """Whether it can write a single column as an object with the column's name."""
    unwraps: bool = False
    """Whether it can write a single column as a bare value."""
    properties: tuple[str, ...] = ()
    """Which fields of a description it has."""

    @property
    def has_choice(self) -> bool:
        """Whether a statement may choose how a single column is written."""
        return self.wraps and self.unwraps


FORMATS = {
    "KAFKA": Features(has_many=False, unwraps=True),
    "JSON": Features(wraps=True, unwraps=True),
    "DELIMITED": Features(unwraps=True, properties=("delimiter",)),
    "NONE": Features(),
    "AVRO": Features(infers=True, wraps=True, unwraps=True, properties=("full_name", "schema_id")),
    "JSON_SR": Features(infers=True, wraps=True, unwraps=True, properties=("full_name", "schema_id")),
    "PROTOBUF": Features(infers=True, wraps=True, properties=("full_name", "schema_id", "nullable")),
    "PROTOBUF_NOSR": Features(wraps=True, properties=("nullable",)),
}
"""All formats."""


AVRO_NAMESPACE = "io.confluent.ksql.avro_schemas"


def key_schema_name(owner: str) -> str:
    """The full name of the AVRO schema of a stream's or table's keys, as in ksqlDB: MyTableKey for MY_TABLE."""
    words = re.sub(r"[^A-Za-z0-9_]", "_", owner).split("_")
    name = "".join(word.capitalize() for word in words)
    return f"{AVRO_NAMESPACE}.{'_' if name[:1].isdigit() else ''}{name}Key"


def features_of(description: FormatDescription) -> Features:
    """What a format can do. Raises ValueError for a name that no format has."""
    found = FORMATS.get(description.name)
    if found is None:
        raise ValueError(f"Unknown format: {description.name}; expected one of {', '.join(FORMATS)}")
    return found


def is_bare(description: FormatDescription, columns: Columns, is_key: bool) -> bool:
    """Whether rows are written as the value of their single column."""
    return len(columns) == 1 and is_bare_schema(description, is_key)


def is_bare_schema(description: FormatDescription, is_key: bool) -> bool:
    """Whether single columns are written as bare values: keys are, and values where the statement says so."""
    if not features_of(description).has_choice:
        return False
    return is_key if description.is_wrapped is None else not description.is_wrapped


def check(description: FormatDescription, columns: Columns, is_key: bool) -> None:
    """Raise ValueError if the format cannot hold the columns, or a property is not one of its own."""
    features = features_of(description)
    _check_properties(description, features)
    if description.is_wrapped is not None:
        _check_wrapping(description, features, columns)
    if is_key:
        _check_key(columns)
    role = " KEY" if is_key else ""
    told = f"[{', '.join(f'`{name}` {text_of(type_)}{role}' for name, type_ in columns)}]"
    if description.name == "NONE" and columns:
        raise ValueError(f"The 'NONE' format can only be used when no columns are defined. Got: {told}")
    if len(columns) > 1 and not features.has_many:
        raise ValueError(f"The '{description.name}' format only supports a single field. Got: {told}")
    takes_name = _TAKES_NAME.get(description.name, _any_name)
    for name, type_ in columns:
        if (wrong := _name_limit(takes_name, ((name, type_),))) is not None:
            raise ValueError(f"Schema is not compatible with {description.name}: {wrong}")
        reason = _LIMITS[description.name](type_)
        if reason is not None:
            raise ValueError(f"The '{description.name}' format does not support {reason}, column: `{name}`")


def _check_properties(description: FormatDescription, features: Features) -> None:
    for name, told in _PROPERTIES.items():
        if getattr(description, name) is not None and name not in features.properties:
            raise ValueError(f"{description.name} does not support the following configs: [{told}]")
    if description.delimiter is not None:
        delimited.delimiter_of(description.delimiter)
    if description.full_name is not None and not description.full_name.strip():
        raise ValueError("fullSchemaName cannot be empty. Format configuration: {fullSchemaName=}")
    if description.full_name is not None and description.name == "AVRO":
        _check_avro_name(description.full_name)
    if description.nullable not in (None, OPTIONAL, WRAPPER):
        raise ValueError(
            f"{description.nullable} is not a representation of null; expected {OPTIONAL} or {WRAPPER}"
        )


def _check_avro_name(full_name: str) -> None:
    """Raise ValueError for a name that a registry would refuse when the first record is written."""
    for part in full_name.split("."):
        if _AVRO_NAME.fullmatch(part) is None:
            raise ValueError(
                f"{full_name!r} is not a full name of AVRO: each part between the points must have letters, digits and "
                f"_, and must not begin with a digit; {part!r} is wrong"
            )


_AVRO_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PROPERTIES = {
    "delimiter": "delimiter",
    "full_name": "fullSchemaName",
    "schema_id": "schemaId",
    "nullable": "nullableRepresentation",
}


def _check_wrapping(description: FormatDescription, features: Features, columns: Columns) -> None:
    if len(columns) != 1:
        raise ValueError("'WRAP_SINGLE_VALUE' is only valid for single-field value schemas")
    if not (features.wraps if description.is_wrapped else features.unwraps):
        told = str(description.is_wrapped).lower()
        raise ValueError(f"Format '{description.name}' does not support 'WRAP_SINGLE_VALUE' set to '{told}'.")


def _check_key(columns: Columns) -> None:
    for name, type_ in columns:
        if any(isinstance(one, Map) for one in types_in(type_)):
            raise ValueError(
                "Map keys, including types that contain maps, are not supported as they may lead to unexpected "
                f"behavior due to inconsistent serialization. Key column name: `{name}`. "
                f"Column type: {text_of(type_)}. See https://github.com/confluentinc/ksql/issues/6621 for more."
            )


def _kafka(type_: SqlType) -> str | None:
    return None if type_ in kafka.TYPES else f"type '{_base(type_)}'"


def _delimited(type_: SqlType) -> str | None:
    return None if type_ in delimited.TYPES or isinstance(type_, Decimal) else f"type '{_base(type_)}'"


def _base(type_: SqlType) -> str:
    return type_.name if isinstance(type_, Primitive) else type(type_).__name__.upper()


def _maps_of_texts(type_: SqlType) -> str | None:
    wrong = any(isinstance(one, Map) and one.key != STRING for one in types_in(type_))
    return "MAP keys of other types: Only MAPs with STRING keys are supported" if wrong else None


def _protobuf(type_: SqlType) -> str | None:
    if _maps_of_texts(type_) is not None:
        return "MAP keys of other types: PROTOBUF format only supports MAP types with STRING keys"
    for one in types_in(type_):
        if isinstance(one, Array) and isinstance(one.element, Array | Map):
            return f"{_base(one.element)}s in an ARRAY"
        if isinstance(one, Struct) and not parts_of(one):
            return "a STRUCT without fields"
    return None


def _name_limit(takes: Callable[[str], bool], fields: Columns) -> str | None:
    """Why a format does not take the first name of these fields, and of those inside them, that it does not take."""
    for name, type_ in fields:
        if not takes(name):
            what = "Illegal initial character" if name[:1].isdigit() else "Illegal character in"
            return f"{what}: {name}"
        for one in types_in(type_):
            if isinstance(one, Struct) and (inner := _name_limit(takes, one.fields)) is not None:
                return inner
    return None


def _any_name(name: str) -> bool:
    return True


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TAKES_NAME: dict[str, Callable[[str], bool]] = {
    "AVRO": lambda name: _NAME.fullmatch(name.replace(".", "_")) is not None,
    "PROTOBUF": lambda name: _NAME.fullmatch(name) is not None,
    "PROTOBUF_NOSR": lambda name: _NAME.fullmatch(name) is not None,
}


def _any(type_: SqlType) -> str | None:
    return None


_LIMITS: dict[str, Callable[[SqlType], str | None]] = {
    "KAFKA": _kafka,
    "JSON": _maps_of_texts,
    "DELIMITED": _delimited,
    "NONE": _any,
    "AVRO": _any,
    "JSON_SR": _maps_of_texts,
    "PROTOBUF": _protobuf,
    "PROTOBUF_NOSR": _protobuf,
}
