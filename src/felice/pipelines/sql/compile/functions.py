"""The functions of one plan, and the operators that give records to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from felice.dataclass import dataclass
from felice.pipelines.sql.analysis.joins import ROWKEY
from felice.pipelines.sql.analysis.plan import FOREIGN_KEY, GROUPS, Field, QueryPlan
from felice.pipelines.sql.compile.generated import RowText
from felice.pipelines.sql.compile.operators import VALUE, Rows, Shape
from felice.pipelines.sql.expressions.code import Report
from felice.pipelines.sql.functions.table import FunctionTable, Settings
from felice.pipelines.sql.rows import Columns, tuples
from felice.pipelines.sql.rows.registry import Registry
from felice.pipelines.sql.types import SqlType
from felice.pipelines.streams.formats import Format
from felice.pipelines.streams.stream import Stream, Table

OF_RECORD = "key, value, timestamp, headers"
"""The parameters of a function that gets whole records."""
OF_ROW = "key, value"
"""The parameters of a function that gets rows of a table."""
Layout = Sequence[Field]
"""The columns of rows, in their order; None where rows are as the topic of the first source has them."""


@dataclass(frozen=True, slots=True)
class Tools:
    """What plans are compiled with."""

    functions: FunctionTable
    users: Mapping[str, SqlType]
    settings: Settings
    registry: Registry
    report: Report | None
    """Gets failures of expressions; None: the processing log gets them, if the settings name its topic."""


class PlanFunctions:
    """Writes the functions of a plan."""

    def __init__(self, plan: QueryPlan, tools: Tools, report: Report) -> None:
        self.plan, self.tools = plan, tools
        self._report = report
        self.value_places: dict[int, tuple[int, ...]] = {}
        """The value columns of a side that are read from its topic; without an entry all of them."""

    def text_of_side(self, number: int) -> RowText:
        """A function over the records of one source."""
        tools = self.tools
        places = self.value_places.get(number)
        return RowText([self.plan.sides[number]], None, tools.functions, tools.users, self._report, places)

    def text(self, layout: Layout | None) -> RowText:
        """A function over the rows of FROM."""
        plan, tools = self.plan, self.tools
        places = self.value_places.get(0)
        text = RowText(plan.sides, layout, tools.functions, tools.users, self._report, places)
        if plan.joins:
            key = "key.key" if plan.sides[0].source.window is not None else "key"
            text.define(GROUPS, ROWKEY, f"(None if key is None else {key}[0])", plan.joins[-1].key_type)
        return text

    def write_outputs(self, text: RowText) -> str:
        """Lines that compute the value columns of the result. Returns the text of their tuple."""
        outputs = self.plan.value_outputs
        for number, one in enumerate(outputs):
            text.assign(f"o{number}", text.code(one.expression), one.name)
        return tuple_text("o", len(outputs))

    def computed(self, table: Table, text: RowText) -> Stream:
        """The changes of a table, with the value columns of the result. A deleted row has none."""
        text.skip_null_values("None")
        text.give(self.write_outputs(text))
        return rows_of(table.to_stream(), text, "select", VALUE, table.key_format, shown_format(self.plan))

    def filtered(self, table: Table, layout: Layout | None) -> Table:
        """The rows for which WHERE is true."""
        plan = self.plan
        if plan.where is None:
            return table
        if not plan.joins or plan.joins[-1].how != FOREIGN_KEY:
            table.plan.send_old()  # So a row that never matched is not deleted. Kafka Streams keeps no old one there.
        text = self.text(layout)
        text.require(plan.where, "WHERE", "False")
        text.give("True")
        return table.filter(text.made(OF_ROW)())


def rows_of(
    stream: Stream,
    text: RowText,
    kind: str,
    shape: Shape,
    key: Format,
    value: Format,
    *,
    is_rekeyed: bool = False,
    value_is_null: bool = False,
) -> Stream:
    """The results of a function over the records of a stream."""
    make = text.made(OF_RECORD, value_is_null=value_is_null)
    node = stream.scope.topology.operator(kind, lambda stores: Rows(make, shape), stream.node)
    return Stream(stream.scope, node, key, value, is_rekeyed=is_rekeyed or stream.is_rekeyed)


def tuple_text(kind: str, count: int) -> str:
    """The text of a tuple of the names `kind0`, `kind1`, …"""
    return f"({''.join(f'{kind}{number}, ' for number in range(count))})"


def format_of(layout: Layout) -> Format:
    """The format of rows with these columns."""
    return tuples(tuple((field.name, field.type) for field in layout))


def shown_format(plan: QueryPlan) -> Format:
    """The format of the value columns of a result, between operators."""
    return tuples(tuple((one.name, one.type) for one in plan.value_outputs))


def key_columns(types: Sequence[SqlType]) -> Columns:
    """The columns of a key between operators."""
    return tuple((f"K{part}", type_) for part, type_ in enumerate(types))
