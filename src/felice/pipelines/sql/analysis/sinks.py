"""CREATE … AS SELECT and INSERT INTO … SELECT: the stream or table that a query writes."""

from __future__ import annotations

import decimal
from collections.abc import Mapping
from dataclasses import replace

from felice.pipelines.sql.analysis.declarations import (
    Surroundings,
    check_event_time,
    check_formats,
    check_infers,
    check_known,
    check_retention,
)
from felice.pipelines.sql.analysis.plan import Output, QueryPlan
from felice.pipelines.sql.analysis.properties import (
    DEFAULT_SETTINGS,
    FORMAT_OF,
    TOPIC_PREFIX,
    WithClause,
    with_wrapping,
)
from felice.pipelines.sql.catalogue import HEADERS, KEY, VALUE, ColumnInfo, SourceInfo
from felice.pipelines.sql.expressions.arithmetic import fitting
from felice.pipelines.sql.rows import Columns, FormatDescription
from felice.pipelines.sql.syntax.errors import SqlError
from felice.pipelines.sql.syntax.tree import (
    Cast,
    CreateAsSelect,
    Expression,
    InsertSelect,
    Literal,
    TypeName,
    placed,
)
from felice.pipelines.sql.syntax.writer import name_text, quoted
from felice.pipelines.sql.types import Decimal, SqlType, common, fields_text, text_of


def sink_of(
    given: CreateAsSelect, plan: QueryPlan, settings: Mapping[str, str], around: Surroundings
) -> SourceInfo:
    """The stream or table of CREATE … AS SELECT. What WITH leaves out is as in the query's first source. Raises
    `SqlError`.
    """
    clause = WithClause.of(given.properties, of_query=True)
    first = plan.sides[0].source
    columns = columns_of(plan)
    values = tuple((one.name, one.type) for one in columns if one.role == VALUE)
    topic = clause.get("KAFKA_TOPIC", settings.get(TOPIC_PREFIX, "") + given.name)
    partitions = around.partitions(topic, clause.get("PARTITIONS", first.partitions)) or first.partitions
    found = SourceInfo(
        given.kind,
        given.name,
        columns,
        topic,
        _key_format(given, clause, plan, settings),
        with_wrapping(_value_format(given, clause, first), values, settings),
        partitions,
        clause.get("REPLICAS", first.replicas),
        plan.window,
        clause.event_time(),
        clause.topic_config(),
    )
    for part in ("KEY", "VALUE"):
        _check_schema_id(given, found, part, around)
    check_formats(found, given)
    check_event_time(found, clause)
    check_retention(found, clause)
    return found


def _check_schema_id(given: CreateAsSelect, found: SourceInfo, part: str, around: Surroundings) -> None:
    """Raise `SqlError` if the schema with the id of WITH does not have the columns of the result."""
    is_key = part == "KEY"
    format_, columns = (found.key_format, found.key) if is_key else (found.value_format, found.value)
    if format_.schema_id is None:
        return
    check_infers(format_, part, given.position)
    try:
        registered = around.schema(found.topic, is_key, format_) or ()
    except ValueError as error:
        raise SqlError(
            f"{part}_SCHEMA_ID {format_.schema_id} cannot be used: {error}", given.position
        ) from None
    changed = changed_columns(columns, registered)
    # A key that is one column has no name in its schema.
    is_bare_key = is_key and len(columns) == len(registered) == 1 and registered[0][1] == columns[0][1]
    if changed and not is_bare_key:
        raise SqlError(
            f"The following {part.lower()} columns are changed, missing or reordered: [{fields_text(changed)}]. "
            f"Schema from schema registry is [{fields_text(registered)}]",
            given.position,
        )


def changed_columns(own: Columns, others: Columns) -> list[tuple[str, SqlType]]:
    """The columns that are not in the same place among others."""
    return [one for place, one in enumerate(own) if one not in others[place : place + 1]]


def columns_of(plan: QueryPlan) -> tuple[ColumnInfo, ...]:
    """The columns of a query's result: those of the key, then those of the values."""
    return tuple(ColumnInfo(one.name, one.type, one.role) for one in (*plan.key_outputs, *plan.value_outputs))


def _key_format(
    given: CreateAsSelect, clause: WithClause, plan: QueryPlan, settings: Mapping[str, str]
) -> FormatDescription:
    like = plan.sides[0].source.key_format
    name = clause.format_name("KEY")
    if name is not None:
        check_known(name, given.position)
        if plan.key == () and name != "NONE":
            raise SqlError(
                f"Key format specified for stream without key columns. Its key format is NONE, not {name}",
                given.position,
            )
    elif plan.key == ():
        name = "NONE"
    elif like.name == "NONE" and plan.key_outputs:
        name = (DEFAULT_SETTINGS | dict(settings))[FORMAT_OF["KEY"]].upper()
    else:
        name = like.name
    return clause.format("KEY", name, given.name, like)


def _value_format(given: CreateAsSelect, clause: WithClause, first: SourceInfo) -> FormatDescription:
    name = clause.format_name("VALUE") or first.value_format.name
    check_known(name, given.position)
    return clause.format("VALUE", name, given.name, first.value_format)


def check_insert(given: InsertSelect, plan: QueryPlan, target: SourceInfo) -> None:
    """Raise `SqlError` for a target that does not take the result of a query."""
    if target.is_table:
        raise SqlError(
            f"INSERT INTO can only be used to insert into a stream. {target.name} is a table.",
            given.position,
        )
    if target.is_read_only:
        raise SqlError(
            f"Cannot insert into read-only stream: {name_text(target.name)}; only other programs write its topic",
            given.position,
        )
    if target.of_role(HEADERS):
        raise SqlError(
            f"Cannot insert into {name_text(target.name)} because it has header columns", given.position
        )
    if plan.is_table:
        raise SqlError(
            f"Incompatible data sink and query result. Data sink ({name_text(target.name)}) type is STREAM but select "
            "query result is TABLE",
            given.position,
        )
    own, wanted = (_listed(one) for one in (columns_of(plan), (*target.of_role(KEY), *target.of_role(VALUE))))
    if own != wanted:
        raise SqlError(
            f"Incompatible schema between results and sink. Result schema is {own}. Sink schema is {wanted}",
            given.position,
        )
    if (plan.window is None) != (target.window is None):
        raise SqlError(
            f"the keys of the query and of {name_text(target.name)} are not both windowed", given.position
        )


def with_decimals(plan: QueryPlan, target: SourceInfo) -> QueryPlan:
    """The plan with decimals as those of the target: literal numbers, and columns whose numbers always fit."""
    values = zip(plan.value_outputs, target.value, strict=False)
    changed = {one: _as_decimal(one, type_) for one, (_, type_) in values}
    return replace(plan, outputs=tuple(changed.get(one, one) for one in plan.outputs))


def _as_decimal(output: Output, wanted: SqlType) -> Output:
    given = output.expression
    if given is None or not isinstance(wanted, Decimal) or output.type == wanted:
        return output
    if isinstance(given, Literal):
        found = _decimal_of(given.value, wanted)
        return (
            output if found is None else replace(output, type=wanted, expression=_at(given, Literal(found)))
        )
    if isinstance(output.type, Decimal) and common(output.type, wanted) == wanted:
        type_ = TypeName("DECIMAL", (wanted.precision, wanted.scale))
        return replace(output, type=wanted, expression=_at(given, Cast(given, type_)))
    return output


def _decimal_of(value: object, wanted: Decimal) -> decimal.Decimal | None:
    if type(value) not in (int, float, decimal.Decimal):
        return None
    number = decimal.Decimal(str(value))
    try:
        found = fitting(wanted)(number)
    except ValueError:
        return None
    return found if found == number else None


def _at(given: Expression, made: Expression) -> Expression:
    return placed(made, given.position)


def _listed(columns: tuple[ColumnInfo, ...]) -> str:
    listed = (f"{quoted(one.name)} {text_of(one.type)}{' KEY' if one.role == KEY else ''}" for one in columns)
    return ", ".join(listed)
