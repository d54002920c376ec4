"""SELECTs of clients, from the statement to rows: push queries, and pull queries of tables and streams.

Keeps true: at most `MOST_QUERIES` run at a time, those of PRINT among them. A query ends when it is closed, when its
            client goes away, or with its LIMIT.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from http import HTTPStatus
from typing import TYPE_CHECKING

from felice.client.error import KafkaException
from felice.dataclass import dataclass
from felice.pipelines.errors import OutsideError
from felice.pipelines.sql.analysis.plan import QueryPlan
from felice.pipelines.sql.analysis.queries import plan_of
from felice.pipelines.sql.offline.queries import LIMIT_REACHED, check_pull
from felice.pipelines.sql.server.connectors import unparsed
from felice.pipelines.sql.server.failures import StatementFailed, reason_of
from felice.pipelines.sql.server.lookup import TableLookup
from felice.pipelines.sql.server.rows import PushRows, Row, StreamRows
from felice.pipelines.sql.server.service import check_settings, parsed
from felice.pipelines.sql.settings import SCAN_ENABLED, with_short_names
from felice.pipelines.sql.syntax.errors import SqlError
from felice.pipelines.sql.syntax.tree import Define, PrintTopic, Query, SetProperty
from felice.pipelines.sql.types import text_of
from felice.pipelines.streams.task import StreamsError

if TYPE_CHECKING:
    from felice.pipelines.sql.server.service import SqlService

MOST_QUERIES = 100


@dataclass(frozen=True, slots=True)
class ShownColumn:
    """A column of the rows that are shown."""

    name: str
    type: str
    is_key: bool


class Select:
    """One SELECT that runs."""

    def __init__(self, id: str, plan: QueryPlan, limit: int | None, rows: AsyncIterator[list[Row]]) -> None:
        self.id = id
        self.columns = [ShownColumn(one.name, text_of(one.type), one.role == "KEY") for one in plan.outputs]
        self.limit = limit
        self.message: str | None = None
        """What is said after the last row."""
        self._rows = rows
        self.closed = asyncio.Event()

    async def parts(self) -> AsyncIterator[list[Row]]:
        """Rows, some at a time; an empty list when none came for a moment. Ends with LIMIT, or when it is closed.

        Raises `StatementFailed`.
        """
        left = self.limit
        try:
            if left == 0:
                self.message = LIMIT_REACHED
                return
            async with aclosing(self._rows) as rows:  # type: ignore[type-var]
                async for part in rows:
                    if self.closed.is_set():
                        return
                    if left is not None:
                        part = part[:left]
                        left -= len(part)
                    yield part
                    if left == 0:
                        self.message = LIMIT_REACHED
                        return
        except (KafkaException, StreamsError, OutsideError, OSError, TimeoutError) as error:
            raise StatementFailed(reason_of(error) or "the brokers did not answer in time", "") from None


class Selects:
    """The SELECTs that run."""

    def __init__(self, service: SqlService) -> None:
        self._service = service
        self.running: dict[str, Select] = {}
        self.prints = 0
        """How many PRINT run."""
        self.is_stopped = False
        """Whether the server is stopping."""

    def close(self, id: str) -> bool:
        """End a query. Returns whether it ran."""
        found = self.running.pop(id, None)
        if found is not None:
            found.closed.set()
        return found is not None

    def stop(self) -> None:
        """End all queries, also of PRINT, and start no new ones, because the server is stopping."""
        self.is_stopped = True
        self.close_all()

    def close_all(self) -> None:
        """End all queries."""
        for id in list(self.running):
            self.close(id)

    async def begin(
        self, text: str, settings: Mapping[str, str], variables: Mapping[str, str]
    ) -> Select | PrintTopic:
        """Begin the query of a text with one SELECT or PRINT. Raises `StatementFailed`."""
        self._service.check_lives()
        check_settings(settings)
        shown = unparsed(text)
        own, given = with_short_names(settings), None
        for written in await asyncio.to_thread(parsed, text, dict(variables)):
            match written.statement:
                case SetProperty(is_of_system=False) as setting:
                    self._service.set(setting, own)
                case Define():
                    continue
                case Query() | PrintTopic() if given is None:
                    given = written
                case _:
                    raise StatementFailed(
                        "the endpoint takes one SELECT or PRINT statement; other statements go to /ksql",
                        shown,
                        code=40002,
                    )
        if given is None:
            raise StatementFailed("the request has no SELECT or PRINT statement", shown, code=40002)
        if len(self.running) + self.prints >= MOST_QUERIES:
            raise StatementFailed(
                f"{MOST_QUERIES} queries run already, and the server runs no more at a time; close one", shown
            )
        if isinstance(given.statement, PrintTopic):
            return given.statement
        query = given.statement
        assert isinstance(query, Query)
        try:
            made = await self._made(query, {**self._service.engine.settings, **own})
        except SqlError as error:
            raise StatementFailed.of(error, given.text + ";") from None
        except (KafkaException, OutsideError, OSError) as error:
            raise StatementFailed(reason_of(error), given.text + ";") from None
        if self.is_stopped:
            raise StatementFailed("the server stops", shown, status=HTTPStatus.SERVICE_UNAVAILABLE)
        self.running[made.id] = made
        return made

    async def _made(self, query: Query, settings: Mapping[str, str]) -> Select:
        engine, cluster = self._service.engine, self._service.cluster
        tools = engine.tools(settings)
        id = f"transient_{secrets.token_hex(8)}"

        def planned() -> tuple[QueryPlan, PushRows | StreamRows | TableLookup]:
            plan = plan_of(query, engine.catalogue, engine.functions, settings, target=None)
            if query.emit is not None:
                return plan, PushRows(id, plan, tools)
            check_pull(query, plan)
            if plan.sides[0].source.is_table:
                return plan, TableLookup(plan, query.where, tools)
            return plan, StreamRows(plan, tools)

        plan, found = await asyncio.to_thread(planned)
        if isinstance(found, PushRows):
            return Select(id, plan, query.limit, found.follow(cluster))
        if isinstance(found, StreamRows):
            return Select(id, plan, query.limit, found.read(cluster))
        source = plan.sides[0].source
        if found.keys is None and settings.get(SCAN_ENABLED, "true").lower() == "false":
            raise SqlError(
                f"the query has no condition on the key of {source.name}, and {SCAN_ENABLED} is false",
                query.position,
            )
        follower = self._service.followers.get(source.topic)
        if follower is None:
            raise SqlError(
                f"the rows of {source.name} are not kept at present; the log says why", query.position
            )
        await follower.caught_up()
        return Select(id, plan, query.limit, found.read(follower.rows))
